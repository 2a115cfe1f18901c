"""A traced process for the fault tests: ``python -m tests.faults.program RUN_FOLDER SCENARIO [ARGUMENT...]``.

It notes each call in a file of its own (in the folder ``LEDGER``) once the call is over, with one ``write`` of its own:
what stands there has happened, whatever becomes of the process afterwards.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from autotrace.adapters import registry
from autotrace.config.plan import Plan, Settings, Target
from autotrace.patch.wrapper import wrap
from autotrace.record import faults, flusher, record_writer
from autotrace.spool.reader import segments
from autotrace.spool.writer import LOOK_EVERY, REMOVE_ABOVE
from tests.waiting import until

TARGETS = (
    Target("program.rollout", ("program.rollout",), role="trajectory", attributes={
        "uid": ("uid",), "session_id": ("number",), "step": ("step",)}),
    Target("program.generate", ("program.generate",), role="llm", include=("number", "result"),
           tokens={"prompt": ("prompt_ids",), "response": ("result",)}),
    Target("program.tool", ("program.tool",), role="tool"),
)  # fmt: skip
FOLDER, SCENARIO, *ARGUMENTS = sys.argv[1:]
PAUSES = 40
_ledger = -1


def _note(number: int) -> None:
    """The call ``number`` is over. The file is opened anew in a forked child."""
    global _ledger
    name = os.path.join(os.environ["LEDGER"], f"{os.path.basename(FOLDER)}.ledger-{os.getpid()}")
    if _ledger < 0 or os.readlink(f"/proc/self/fd/{_ledger}") != name:
        _ledger = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(_ledger, b"%d %d\n" % (number, time.monotonic_ns()))


def beat() -> None:
    """From now on a thread notes when it could run that works as the flusher does. It sleeps for 0.2 s, then gives way
    to others as often as the flusher while it writes what ``calls`` records in that time: on a busy machine it waits
    each time."""
    path = os.path.join(os.environ["LEDGER"], f"{os.path.basename(FOLDER)}.beats-{os.getpid()}")

    def beats() -> None:
        with open(path, "a", buffering=1) as file:
            while True:
                file.write(f"{time.monotonic_ns()}\n")
                time.sleep(0.2)
                for _ in range(PAUSES):
                    time.sleep(flusher.PAUSE)

    threading.Thread(target=beats, daemon=True).start()


_counts: dict[int, Iterator[int]] = {}


def next_number() -> int:
    """The number of the next call: different in every process."""
    pid = os.getpid()
    return next(_counts.setdefault(pid, itertools.count(pid << 32)))


def rollout(uid: str, number: int, step: int, turns: int) -> None:
    """One trajectory; each turn is a call of the model and one of a tool."""
    ids = list(range(200))
    for _ in range(turns):
        at = next_number()
        ids = ids + generate(at, prompt_ids=ids)
        _note(at)
        at = next_number()
        tool(at, {"query": "what"})
        _note(at)


def generate(number: int, prompt_ids: list[int]) -> list[int]:
    """The model's answer."""
    return [number % 50_000] * 40


def tool(number: int, arguments: dict[str, Any]) -> str:
    """A tool's."""
    return "result " * 20


rollout, generate, tool = (wrap(each, f"program.{each.__name__}") for each in (rollout, generate, tool))  # type: ignore[assignment]


def settings(**given: Any) -> None:
    """Start recording."""
    registry.start(Plan(TARGETS, Settings(**given)), FOLDER, os.path.basename(FOLDER))


def calls(count: int, pause: float = 0.0) -> None:
    """``count`` trajectories of four turns; 0: for ever."""
    number = 0
    while number < count or not count:
        rollout(f"{os.getpid()}-{number}", number, 1, 4)
        number += 1
        if pause:
            time.sleep(pause)


def endless() -> None:
    """Until something ends it."""
    beat()
    settings()
    calls(0, 0.001)


def leave() -> None:
    """``os._exit`` after so many trajectories."""
    beat()
    settings()
    calls(int(ARGUMENTS[0]), 0.001)
    os._exit(3)


def some() -> None:
    """So many trajectories, then an ordinary end; with a pause (seconds) after each if one is given."""
    settings()
    calls(int(ARGUMENTS[0]), float(ARGUMENTS[1]) if ARGUMENTS[1:] else 0.0)


def out_of_memory() -> None:
    """No more memory is to be had: allocations fail in every thread until the host gives up, as C++ does, or is ended:
    CPython goes round in its own loop where an exception is handled and there is no memory for the number of the
    instruction (``exception_unwind``)."""
    import resource
    import signal

    settings()
    signal.setitimer(signal.ITIMER_REAL, 10.0)  # nobody handles it: it needs no memory
    calls(20, 0.001)
    flusher.flush()
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + (48 << 20), size + (48 << 20)))
    held: list[bytearray] = []
    until = time.monotonic() + 0.8  # some writes of the flusher's fall into it
    while True:
        try:
            if time.monotonic() > until:
                break
            calls(1, 0.001)
            while True:
                held.append(bytearray(64 << 10))
        except MemoryError:  # anywhere in this loop: there is none for a number either
            continue
    os.abort()


def fork() -> None:
    """A child is forked in the middle of a trajectory; both go on."""
    settings()
    calls(2)

    def around(uid: str, number: int, step: int, turns: int) -> None:
        child = os.fork()
        if child == 0:
            calls(5)
            flusher.shutdown()
            os._exit(0)
        at = next_number()
        tool(at, {})
        _note(at)
        os.waitpid(child, 0)

    wrap(around, "program.rollout")("forks", 99, 1, 1)


def bounded() -> None:
    """Trajectories with a limit on the spool, until no more are taken."""
    settings(spool_limit=int(ARGUMENTS[0]), flush_interval=0.01)
    deadline = time.monotonic() + 240
    while "drop:spool_limit" not in faults.counts and time.monotonic() < deadline:
        calls(20)
    flusher.flush()
    print(faults.counts.get("drop:spool_limit", 0))


def paced() -> None:
    """So many trajectories with a limit on the spool, ten at a time and the next ones when there is room for them; how
    many were refused."""
    limit = int(ARGUMENTS[0])
    settings(spool_limit=limit)
    for number in range(int(ARGUMENTS[1])):
        rollout(f"{os.getpid()}-{number}", number, 1, 4)
        if number % 10 == 9:
            flusher.flush()
            until(lambda: sum(file.size for file in segments(FOLDER)) <= REMOVE_ABOVE * limit)
            time.sleep(LOOK_EVERY / 4)  # until the next look, a writer does not know that there is room
    flusher.flush()
    print(faults.counts.get("drop:spool_limit", 0))


def file_size() -> None:
    """The disk is full: no file of this process may grow beyond so many bytes; later there is room again. Who writes
    into such a file gets a signal, for which the process has the given handler."""
    import resource
    import signal

    limit = int(ARGUMENTS[0])
    heard: list[int] = []
    handlers = {"ignored": signal.SIG_IGN, "default": signal.SIG_DFL, "heard": lambda number, _: heard.append(number)}
    signal.signal(signal.SIGXFSZ, handlers[ARGUMENTS[1]])
    settings(flush_interval=0.01)
    calls(5)
    flusher.flush()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    calls(100)
    flusher.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    time.sleep(record_writer.RETRY_EVERY)
    calls(5)
    assert not heard, "a signal of ours reached the host"


def read_only() -> None:
    """Nothing can be written; says what was counted."""
    settings(flush_interval=0.01)
    calls(20)
    flusher.flush()
    print(dict(faults.counts))


def clock() -> None:
    """The wall clock is set back an hour between two segments."""
    from autotrace.spool import writer

    settings(flush_interval=0.01)
    calls(10)
    flusher.flush()
    now = time.time_ns
    time.time_ns = lambda: now() - 3_600_000_000_000
    writer.MAX_SEGMENT = 1
    calls(10)


def closed_descriptors() -> None:
    """The host closes every descriptor it has, as a daemon or sandbox does, and opens a database, which gets the number
    of our segment; then it goes on."""
    import sqlite3

    global _ledger
    settings(flush_interval=0.01)
    calls(20)
    flusher.flush()
    paths = {fd: os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    ours = [fd for fd, path in paths.items() if path.endswith(".seg")]
    os.closerange(3, 4096)
    _ledger = -1
    database = sqlite3.connect(ARGUMENTS[0], isolation_level=None)
    database.execute("CREATE TABLE answers (text)")
    log = os.open(ARGUMENTS[1], os.O_CREAT | os.O_RDWR, 0o600)
    print(*[os.path.realpath(f"/proc/self/fd/{fd}") for fd in ours])
    for number in range(20):
        database.execute("INSERT INTO answers VALUES (?)", (f"answer {number}",))
        os.write(log, b"line\n")
        calls(1)
        flusher.flush()
    os.write(log, b"end\n")


def backlog() -> None:
    """So many trajectories whose tools get long conversations, as fast as they can be made; then an ordinary end."""
    global tool
    settings(max_items=256)
    record, messages = tool, [{"role": "user", "content": f"message {number} " * 8} for number in range(200)]
    tool = lambda number, arguments: record(number, {"messages": messages})  # noqa: E731
    calls(int(ARGUMENTS[0]))


def slow_writes() -> None:
    """Each write to the spool, as on a network file system in trouble, stands still until more calls were made."""
    from autotrace.spool import writer

    more, made, waited, over = int(ARGUMENTS[0]), 0, 0, False
    write = os.write

    def slowly(fd: int, data: bytes) -> int:
        nonlocal waited
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".seg"):
            enough, end = made + more, time.monotonic() + 120
            while made < enough and not over:
                assert time.monotonic() < end, "a call waits for this write"
                time.sleep(0.001)
            waited += 1
        return write(fd, data)

    settings(flush_interval=0.01)
    writer.os = type("os", (), {**vars(os), "write": staticmethod(slowly)})  # type: ignore[attr-defined]
    began = time.monotonic()
    while waited < 5 and time.monotonic() - began < 120:
        calls(1)
        made += 1
        time.sleep(0.001)
    over = True
    print(waited)


def from_environment() -> None:
    """Activation as the ``.pth`` line does it: the plan comes from the environment."""
    import json as traced  # a module the plan names

    import autotrace.bootstrap.activate  # noqa: F401

    print(traced.dumps({"a": 1}))


if __name__ == "__main__":
    {
        "endless": endless,
        "leave": leave,
        "out_of_memory": out_of_memory,
        "some": some,
        "fork": fork,
        "bounded": bounded,
        "paced": paced,
        "file_size": file_size,
        "read_only": read_only,
        "clock": clock,
        "closed_descriptors": closed_descriptors,
        "backlog": backlog,
        "slow_writes": slow_writes,
        "from_environment": from_environment,
    }[SCENARIO]()
