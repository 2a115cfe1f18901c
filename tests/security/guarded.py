"""Runs commands that read a place of somebody else's, in a process that may take so much memory and time, and reports
what each did beside reading.

``python -P guarded.py``: each line of stdin is JSON, ``{"here", "environ", "mine", "commands", "memory", "seconds"}``;
so is the line that answers it: a list of ``{"words", "code", "out", "err", "seconds", "did", "peak"}``, with seconds of
CPU, and the most bytes that the commands of a fork took, with the libraries.
``did`` names what no reading does: a start of a process, a connection, a file written that belongs to somebody, a file
of the reader's (``mine``) read.

The libraries are imported once, and commands run in a fork: an interpreter a command would take a second of CPU.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork", "os.forkpty")
ASKS = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
ROUTES = (
    "", "/columns?names=start,reward,uid", "/names", "/where?q=reward+%3E+0", "/findings", "/search?q=text",
    "/group?ids=ab,cd", "/steps/1", "/traces/ab", "/traces/ab/tokens", "/traces/ab/perfetto",
    "/traces/cd", "/traces/cd/tokens",
)  # fmt: skip
LIBRARIES = (
    "fsspec.implementations.memory",
    "pyarrow.dataset",
    "duckdb",
    "tokenizers",
    "starlette.testclient",
    "autotrace.view.app",
)


def watched(mine: str, did: list[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that notes in ``did`` what reading does not do."""

    def hook(event: str, values: tuple[Any, ...]) -> None:
        if event in STARTS or event in ASKS:
            did.append(f"{event} {str(values[:2])[:200]}")
        elif event == "open" and values[2] & os.O_NOFOLLOW and os.path.islink(values[0]):
            return  # it was tried, and fails
        elif event in ("open", "sqlite3.connect") and isinstance(values[0], (str, bytes)):
            path = os.path.realpath(os.fsdecode(values[0]).removeprefix("file://").partition("?")[0])
            if path.startswith(mine):
                did.append(f"{event} {path}")
            elif event == "open" and values[2] & WRITING and not path.startswith((os.getcwd(), "/dev/", "/proc/")):
                did.append(f"written {path}")
        elif event in ("os.remove", "os.rename", "os.mkdir", "os.truncate") and isinstance(values[0], (str, bytes)):
            path = os.path.realpath(os.fsdecode(values[0]))
            if not path.startswith(os.getcwd()):
                did.append(f"{event} {path}")

    return hook


def command(words: list[str]) -> None:
    """``autotrace WORDS``; ``door PLACE`` is ``autotrace.open``, ``page PLACE`` what the page asks for."""
    if words[0] == "door":
        opened(words[1])
    elif words[0] == "page":
        served(words[1])
    elif words[0].startswith("mcp"):
        asked(words[1], in_process=words[0] == "mcp")
    else:
        from autotrace.cli.main import main

        main(words, prog_name="autotrace")


def asked(place: str, *, in_process: bool) -> None:
    """Ask every tool of ``autotrace mcp PLACE``; commands run in this process, or each in its own as they do there."""
    import anyio

    from autotrace.cli import mcp
    from autotrace.cli.runs import chosen

    async def output(*words: str) -> tuple[str, bool]:
        print(words, ended([*words]))
        return "", True

    if in_process:
        mcp._output = output
    questions = mcp.Questions(chosen(place).absolute())  # which takes no bucket
    given = {"trajectory": ["ab"], "search": ["text"], "sql": ["FROM spans"], "link": ["ab"], "help": ["data"]}

    async def ask(name: str) -> None:
        answer = getattr(questions, name)(*given.get(name, ()))
        print(name, answer if isinstance(answer, str) else await answer)

    for name in (name for name in dir(questions) if not name.startswith("_")):
        try:
            anyio.run(ask, name)
        except Exception as error:  # a refusal is one
            print(name, str(error)[:300])


def opened(place: str) -> None:
    import autotrace

    runs = autotrace.open(place)
    for name in ("trajectories", "turns", "spans", "facts", "tokens", "chains", "metrics"):
        print(name, len(runs.table(name)))
    print(runs.steps(), len(list(runs.trajectories())), len(runs.sql("SELECT * FROM trajectories")))


def served(place: str) -> None:
    from starlette.testclient import TestClient

    from autotrace.tables.errors import QueryError
    from autotrace.view.app import application

    try:
        app = application(Path(place))
    except QueryError as error:  # the command says so
        raise SystemExit(str(error)) from None
    with TestClient(app, raise_server_exceptions=False) as client:
        runs = client.get("/api/runs").json()["runs"]
        for run in runs[:2]:
            for route in ROUTES:
                answer = client.get(f"/api/runs/{quote(run['run'], safe='')}{route}")
                print(json.dumps([route, answer.status_code, len(answer.content)]))
                if answer.status_code == 500:
                    print(f"Traceback: {route}: {answer.text[:300]}", file=sys.stderr)


Answer = dict[str, Any]


def answers(given: dict[str, Any]) -> list[Answer]:
    """Of all commands. They run one after the other in one fork, which is half the work; what ends it, another goes on
    behind. Each may take memory and time as if none had run before it."""
    made: list[Answer] = []
    while len(made) < len(given["commands"]):
        made += in_fork(given["commands"][len(made) :], given)
    return made


def in_fork(commands: list[list[str]], given: dict[str, Any]) -> list[Answer]:
    """Of ``commands``, up to the first that ends the process."""
    with contextlib.ExitStack() as stack:
        notes, *texts = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(1 + 2 * len(commands)))
        files = [(out.fileno(), err.fileno()) for out, err in zip(texts[::2], texts[1::2], strict=True)]
        if not (child := os.fork()):
            with contextlib.suppress(BaseException):
                in_child(commands, given, files, notes.fileno())
            os._exit(99)
        noted, began = 0, time.monotonic()
        while not (gone := os.wait4(child, os.WNOHANG))[0]:
            if noted != (noted := os.fstat(notes.fileno()).st_size):
                began = time.monotonic()
            if time.monotonic() > began + 10 * given["seconds"]:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.005)
        notes.seek(0)
        made: list[Answer] = [json.loads(line) for line in notes]
        if len(made) < len(commands):
            seconds = gone[2].ru_utime + gone[2].ru_stime
            made.append({"code": os.waitstatus_to_exitcode(gone[1]), "seconds": seconds, "did": []})
        for number, answer in enumerate(made):
            answer |= {"words": commands[number], "peak": gone[2].ru_maxrss << 10}
            for name, file in zip(("out", "err"), texts[2 * number :], strict=False):
                file.seek(0)
                answer[name] = file.read(1 << 20).decode("utf-8", "replace")
    return made


def in_child(commands: list[list[str]], given: dict[str, Any], files: list[tuple[int, int]], notes: int) -> None:
    os.chdir(given["here"])
    os.environ.update(given["environ"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    did: list[str] = []
    if given["bucket"]:
        import fsspec

        fsspec.filesystem("memory").put(given["bucket"], "/bucket", recursive=True)
    sys.addaudithook(watched(given["mine"], did))
    for words, (out, err) in zip(commands, files, strict=True):
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + given["memory"], resource.RLIM_INFINITY))
        used = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (int(used + given["seconds"]), resource.RLIM_INFINITY))
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        code = ended(words)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        answer = {"code": code, "seconds": time.process_time() - used, "did": [*dict.fromkeys(did)]}
        os.write(notes, json.dumps(answer).encode() + b"\n")
        did.clear()
    os._exit(0)


def ended(words: list[str]) -> int:
    """The exit code of a command."""
    try:
        command(words)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException as error:
        import traceback

        expected = words[0] in ("door", "mcp") and not isinstance(error, (MemoryError, RecursionError))
        print(f"{type(error).__name__}: {error}"[:300] if expected else traceback.format_exc(), file=sys.stderr)
        return 98
    return 0


def imported() -> Iterator[str]:
    from autotrace.cli.main import COMMANDS

    for module in [*(module for module, _ in COMMANDS.values()), *LIBRARIES]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
            yield module


if __name__ == "__main__":
    list(imported())
    from autotrace.trajectory.model import REPEATED, Allowance

    Allowance.__init__.__defaults__ = (REPEATED // 64,)  # prompts cost in proportion to it
    for line in sys.stdin:
        given = json.loads(line)
        print(json.dumps(answers(given)), flush=True)
