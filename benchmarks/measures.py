"""What runs inside a subject's process. Each measure takes the subject and returns numbers; times are nanoseconds."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from benchmarks.subjects import Subject
from benchmarks.workload import CHUNKS, ITEMS, Agent, Chat, Client, Streamed, Tool, send

_thread_ns, _process_ns = time.thread_time_ns, time.process_time_ns


def speed(subject: Subject | None = None) -> dict[str, float]:
    """How fast this machine is right now: ``ContextVar.set`` and ``reset``, which no library can change."""
    variable: ContextVar[int] = ContextVar("speed")
    put, back = variable.set, variable.reset
    began = _thread_ns()
    for _ in range(5_000):
        back(put(1))
    return {"ns": (_thread_ns() - began) / 5_000}


def small(subject: Subject, kind: str, calls: int, root: bool = False) -> dict[str, float]:
    """One call of a small tool. ``root``: not part of a trajectory."""
    key = f"small-{kind}"
    tool: Any = _kept(subject, key, lambda: _wrapped_tool(subject))
    run = {"sync": _sync, "coroutine": _coroutine, "stream": _stream, "async_stream": _async_stream}[kind]
    began = _process_ns()
    if root:
        ns = run(getattr(tool, kind), calls)
    else:
        with subject.trajectory():
            ns = run(getattr(tool, kind), calls)
    subject.settle()
    per = calls * ITEMS if "stream" in kind else calls
    return {"ns": ns / per, "process_ns": (_process_ns() - began) / per}


def _wrapped_tool(subject: Subject) -> Any:
    class Traced(Tool):
        pass

    for name in ("sync", "coroutine", "stream", "async_stream"):
        original = Tool.__dict__[name]
        try:
            setattr(Traced, name, subject.wrap(_copy(original)))
        except Exception:  # a peer that knows no such functions leaves the original
            setattr(Traced, name, original)
    return Traced()


def _copy(function: Any) -> Any:
    """A function of its own for each wrapper: some tracers mark what they wrapped."""
    import types

    return types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )


def _sync(method: Callable[[str], Any], calls: int) -> int:
    began = _thread_ns()
    for _ in range(calls):
        method("weather in Paris")
    return _thread_ns() - began


def _coroutine(method: Callable[[str], Any], calls: int) -> int:
    async def run() -> int:
        began = _thread_ns()
        for _ in range(calls):
            await method("weather in Paris")
        return _thread_ns() - began

    return int(send(run()))


def _stream(method: Callable[[str], Any], calls: int) -> int:
    began = _thread_ns()
    for _ in range(calls):
        for _item in method("weather in Paris"):
            pass
    return _thread_ns() - began


def _async_stream(method: Callable[[str], Any], calls: int) -> int:
    async def run() -> int:
        began = _thread_ns()
        for _ in range(calls):
            async for _item in method("weather in Paris"):
                pass
        return _thread_ns() - began

    return int(send(run()))


def streamed(subject: Subject, client: str, calls: int) -> dict[str, float]:
    """A chunk of a streamed answer, read through a real client; its share of the call's own cost is in it."""
    model: Streamed = _kept(subject, f"streamed-{client}", lambda: Streamed(client))
    subject.settle()
    spent, began = 0, _process_ns()
    with subject.trajectory():
        for _ in range(calls):
            start = _thread_ns()
            model.read()
            spent += _thread_ns() - start
    subject.settle()
    return {"ns": spent / calls / CHUNKS, "process_ns": (_process_ns() - began) / calls / CHUNKS}


def llm(subject: Subject, prompt: int, response: int, logprobs: bool, calls: int) -> dict[str, float]:
    """One call of the LLM client with so many tokens and 4 KB of messages; ``process_ns``: with all of it written."""

    def make() -> Client:
        class Traced(Client):
            pass

        Traced.generate = subject.wrap(_copy(Client.generate), "llm")  # type: ignore[method-assign]
        return Traced(prompt, response, logprobs)

    client: Client = _kept(subject, f"llm-{prompt}-{response}-{logprobs}", make)

    async def run() -> int:
        spent = 0
        for _ in range(calls):
            began = _thread_ns()
            await client.call()
            spent += _thread_ns() - began
        return spent

    subject.settle()
    began = _process_ns()
    with subject.trajectory():
        ns = int(send(run()))
    subject.settle()
    return {"ns": ns / calls, "process_ns": (_process_ns() - began) / calls}


def chat(subject: Subject, messages: int, nested: bool, new: int, calls: int) -> dict[str, float]:
    """One call with a conversation, of which ``new`` messages are new; ``process_ns``: with all of it written, and the
    new messages made."""
    key = f"chat-{messages}-{nested}-{new}"
    model: Chat = _kept(subject, key, lambda: _wrapped_chat(subject, messages, nested, new))
    spent = 0
    subject.settle()
    process = _process_ns()
    with subject.trajectory():
        for _ in range(calls):
            model.next_turn()
            began = _thread_ns()
            model.complete(model.messages)
            spent += _thread_ns() - began
    subject.settle()
    return {"ns": spent / calls, "process_ns": (_process_ns() - process) / calls}


def _wrapped_chat(subject: Subject, messages: int, nested: bool, new: int) -> Any:
    class Traced(Chat):
        pass

    Traced.complete = subject.wrap(_copy(Chat.complete))  # type: ignore[method-assign]
    return Traced(messages, nested, new)


class TimedOut(Exception):
    """What the signal handler raises."""


def timeouts(subject: Subject, number: int) -> dict[str, float]:
    """Milliseconds by which the exception of a signal handler arrives later than the signal was due, while calls with
    200 nested messages are made one after the other."""
    model = _wrapped_chat(subject, 200, nested=True, new=2)
    late: list[float] = []

    def handler(*_: Any) -> None:
        raise TimedOut

    before = signal.signal(signal.SIGALRM, handler)
    gc.collect()
    gc.disable()  # Python swallows what arrives in a callback of its collector
    try:
        with subject.trajectory():
            for attempt in range(number):
                delay = 0.001 + attempt % 50 * 0.00002
                due = time.perf_counter() + delay
                try:
                    signal.setitimer(signal.ITIMER_REAL, delay)
                    while True:
                        model.complete(model.messages)
                except TimedOut:
                    late.append((time.perf_counter() - due) * 1e3)
                if attempt % 10 == 0:
                    subject.settle()
    finally:
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    late.sort()
    return {"late_ms": late[len(late) // 2], "late_p90_ms": late[len(late) * 9 // 10], "late_max_ms": late[-1]}


def concurrent(
    subject: Subject, trajectories: int, turns: int, prompt: int, response: int, seconds: float, stagger: float = 0.0
) -> dict[str, Any]:
    """So many trajectories at once in one event loop: its longest stall, the wall time, memory.

    A stall is how much later than asked a task that sleeps 1 ms at a time came to run: by the clock (other programs of
    the machine show in it) and as CPU time that this process spent meanwhile, in whatever thread. ``stagger``: seconds
    over which the trajectories start.
    """

    class Traced(Agent):
        pass

    for name, role in (("generate", "llm"), ("tool", "tool"), ("run", "trajectory")):
        setattr(Traced, name, subject.wrap(_copy(Agent.__dict__[name]), role))
    agent = Traced(turns, prompt, response, seconds)
    lags: list[float] = []
    busy: list[float] = []

    async def watch(done: asyncio.Event) -> None:
        while not done.is_set():
            before, cpu = time.perf_counter(), _process_ns()
            await asyncio.sleep(0.001)
            lags.append(time.perf_counter() - before - 0.001)
            busy.append((_process_ns() - cpu) / 1e9)

    async def one(number: int) -> None:
        if stagger:
            await asyncio.sleep(stagger * number / trajectories)
        await agent.run(f"uid-{number // 8}", 1, number % 8)

    async def run() -> float:
        done = asyncio.Event()
        watcher = asyncio.ensure_future(watch(done))
        began = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(trajectories)))
        wall = time.perf_counter() - began
        done.set()
        await watcher
        return wall

    gc.collect()
    gc.freeze()  # what a peer imported is not to be looked through again and again
    before = _rss()
    cpu = _process_ns()
    thread = _thread_ns()
    wall = asyncio.run(run())
    thread = _thread_ns() - thread
    held = _rss() - before
    subject.settle()
    lags.sort()
    busy.sort()
    return {
        "wall_s": wall,
        "stall_cpu_max_ms": busy[-1] * 1e3,
        "stall_cpu_p999_ms": busy[int(len(busy) * 0.999)] * 1e3,
        "stall_max_ms": lags[-1] * 1e3 if lags else 0.0,
        "stall_p999_ms": lags[int(len(lags) * 0.999)] * 1e3 if lags else 0.0,
        "stall_p99_ms": lags[int(len(lags) * 0.99)] * 1e3 if lags else 0.0,
        "thread_s": thread / 1e9,
        "process_s": (_process_ns() - cpu) / 1e9,
        "rss_delta_mb": held / 1e6,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        **subject.about(),
    }


def growth(subject: Subject, turns: int, prompt: int, response: int) -> dict[str, Any]:
    """One trajectory of many turns: caller's and flusher's time of each turn, spool bytes for each unique token."""

    class Traced(Agent):
        pass

    Traced.generate = subject.wrap(_copy(Agent.generate), "llm")  # type: ignore[method-assign]
    agent = Traced(turns, prompt, response, 0.0)
    caller: list[float] = []
    process: list[float] = []

    async def run() -> None:
        for turn, ids in enumerate(agent.prompts):
            began, cpu = _thread_ns(), _process_ns()
            await agent.generate(str(turn), prompt_ids=ids, sampling_params={"temperature": 1.0})
            caller.append(_thread_ns() - began)
            subject.settle()
            process.append(_process_ns() - cpu)

    with subject.trajectory():
        asyncio.run(run())
    return {"caller_ns": caller, "process_ns": process, "unique_tokens": agent.unique_tokens, **subject.about()}


def _rss() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


_made: dict[tuple[int, str], Any] = {}


def _kept(subject: Subject, key: str, make: Callable[[], Any]) -> Any:
    if (id(subject), key) not in _made:
        _made[id(subject), key] = make()
    return _made[id(subject), key]
