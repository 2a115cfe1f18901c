"""Calls of one tree's ``autotrace``, a row at a time: ``python call_program.py TREE FOLDER SUBJECT``.

``TREE/autotrace`` records them; the workloads are this checkout's. ``SUBJECT``: ``autotrace``, ``not sampled``, ``off``
or ``floor``. Reads one JSON request a line (``[row, calls]``), answers each with nanoseconds of the caller's thread
for one call. ``call_rows.DELAY`` adds to them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from benchmarks.call_rows import DELAY, FLOOR, NOT_SAMPLED, OFF  # noqa: E402
from benchmarks.workload import ITEMS, Chat, Client, TokenOutput, Tool, send  # noqa: E402

sys.path[0] = sys.argv[1]

Function = Callable[..., Any]
Run = Callable[[int], int]
"""Makes so many calls, and returns nanoseconds of the thread."""
TOKENIZER_BYTES = 7_000_000
"""As in ``worker``: a process that calls models has freed a large block before."""
_ns = time.thread_time_ns


class Chatty(Client):
    """A client that is asked with one message of 4 KB, with tokens or without."""

    def __init__(self) -> None:
        super().__init__(2_000, 2_000)
        self.messages = [{"role": "user", "content": "What is in library 7? " * 186}]

    async def complete(self, messages: list[Any], sampling_params: dict[str, Any]) -> str:
        return "It has 12 books about the sea."


FOUND = TokenOutput([1, 2, 3], None, extra_fields={"global_steps": 3})


def answer(query: str, top_k: int = 3) -> str:
    return query


async def answer_later(query: str, top_k: int = 3) -> str:
    return query


def find(query: str) -> TokenOutput:
    """Returns an object."""
    return FOUND


def judge(query: str) -> str:
    """Is watched: ``judged`` calls it by name, and would catch what it raises."""
    return query


def judged(query: str) -> str:
    """Catches what a watched function raises."""
    try:
        return judge(query)
    except ValueError:
        return ""


def calling(call: Function, argument: Any) -> Run:
    def run(calls: int) -> int:
        began = _ns()
        for _ in range(calls):
            call(argument)
        return _ns() - began

    return run


def awaited(call: Function, *arguments: Any) -> Run:
    async def several(calls: int) -> int:
        began = _ns()
        for _ in range(calls):
            await call(*arguments)
        return _ns() - began

    return lambda calls: int(send(several(calls)))


def streamed(call: Function) -> Run:
    def run(calls: int) -> int:
        began = _ns()
        for _ in range(calls):
            for _item in call("weather in Paris"):
                pass
        return (_ns() - began) // ITEMS

    return run


def talking(model: Chat) -> Run:
    def run(calls: int) -> int:
        spent = 0
        for _ in range(calls):
            model.next_turn()
            began = _ns()
            model.complete(model.messages)
            spent += _ns() - began
        return spent

    return run


def wrapped(kind: type, wrap: Function, role: str, *names: str) -> Any:
    """A class of its own, whose methods are recorded."""
    return type(kind.__name__, (kind,), {name: wrap(getattr(kind, name), role) for name in names})


def rows(wrap: Function) -> dict[str, Run]:
    """What is measured, by the name it has in the table."""
    tool = wrapped(Tool, wrap, "tool", "sync", "stream")()
    client = wrapped(Chatty, wrap, "llm", "generate", "complete")()
    chats = wrapped(Chat, wrap, "tool", "complete")
    llm_chats = wrapped(Chat, wrap, "llm", "complete")
    return {
        "function": calling(wrap(answer, "tool"), "weather in Paris"),
        "coroutine": awaited(wrap(answer_later, "tool"), "weather in Paris"),
        "method": calling(tool.sync, "weather in Paris"),
        "object": calling(wrap(find, "tool"), "weather in Paris"),
        "watched": calling(wrap(judged, "tool"), "weather in Paris"),
        "item": streamed(tool.stream),
        "llm": awaited(client.call),
        "llm without tokens": awaited(client.complete, client.messages, {"temperature": 1.0}),
        "4 messages": talking(llm_chats(4, False, 2)),
        "40 messages": talking(chats(40, False, 2)),
        "200 nested messages": talking(chats(200, True, 2)),
    }


class Floor:
    """Copies the lists and dicts that the caller may change, and hands them over."""

    def __init__(self) -> None:
        self.queue: deque[Any] = deque()

    def wrap(self, function: Function, role: str = "tool") -> Function:
        queue = self.queue
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                copies = [copied(value) for value in (*args, *kwargs.values())]
                result = await function(*args, **kwargs)
                queue.append((copies, copied(result)))
                return result

            return coroutine
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
                for item in function(*args, **kwargs):
                    queue.append(item)
                    yield item

            return generator

        @functools.wraps(function)
        def plain(*args: Any, **kwargs: Any) -> Any:
            copies = [copied(value) for value in (*args, *kwargs.values())]
            result = function(*args, **kwargs)
            queue.append((copies, copied(result)))
            return result

        return plain

    def settle(self) -> None:
        self.queue.clear()

    @contextlib.contextmanager
    def trajectory(self) -> Iterator[None]:
        yield


def copied(value: Any) -> Any:
    """A copy of a list of numbers or messages, or of what holds one; the levels below stay the caller's."""
    kind = type(value)
    if kind is list:
        return [item.copy() for item in value] if value and type(value[0]) is dict else tuple(value)
    if kind is TokenOutput:
        return tuple(value.token_ids)
    return value.copy() if kind is dict else value


class Autotrace:
    """Records everything into a spool; no shipper runs."""

    def __init__(self, folder: str, sampling: dict[str, Any]) -> None:
        try:
            from autotrace.config.plan import Plan, Settings, Target
        except ImportError:  # the commit before has it elsewhere
            from autotrace.spec.plan import Plan, Settings, Target  # type: ignore
        from autotrace.patch import engine

        targets = (
            Target("bench.trajectory", ("bench.trajectory",), role="trajectory", attributes={
                "uid": ("uid",), "step": ("step",), "rollout_n": ("rollout_n",)}),
            Target("bench.tool", ("bench.tool",), role="tool"),
            Target("bench.llm", ("bench.llm",), role="llm", include=("sampling_params", "messages", "result"),
                   tokens={"prompt": ("prompt_ids",), "response": ("result.token_ids",)},
                   attributes={"stop_reason": ("result.stop_reason",), "request_id": ("request_id",)}),
        )  # fmt: skip
        engine.start(Plan(targets, Settings(sampling=sampling)), folder, "bench")

    def wrap(self, function: Function, role: str = "tool") -> Function:
        from autotrace.patch.wrapper import wrap

        return wrap(function, f"bench.{role}")

    def settle(self) -> None:
        from autotrace.record import flusher

        flusher.flush()

    @contextlib.contextmanager
    def trajectory(self) -> Iterator[None]:
        from autotrace.record import calls

        span = calls.begin(_rollout, "bench.trajectory", ("uid-1", 1, 0), {})
        try:
            yield
        finally:
            if span is not None:
                calls.end(span, None)


def _rollout(uid: str, step: int, rollout_n: int) -> None:
    """What the trajectory of the calls is called with."""


def main() -> None:
    """Serve requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    _, folder, what = sys.argv[1:]
    subject: Any = Floor() if what == FLOOR else Autotrace(folder, {"rate": 0.0} if what == NOT_SAMPLED else {})
    made = rows(subject.wrap)
    made["root, not sampled"] = calling(subject.wrap(_root, "trajectory"), "uid-1")
    if what == OFF:
        from autotrace.record import calls

        for probe in calls.probes.values():
            setattr(probe, "is_off" if hasattr(probe, "is_off") else "off", True)
    made["call that is off"] = made["function"]
    bytes(TOKENIZER_BYTES)
    delayed, _, share = os.environ.get(DELAY, "").partition("=")
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        row, number = json.loads(line)
        subject.settle()
        around = contextlib.nullcontext() if row == "root, not sampled" else subject.trajectory()
        with around:
            ns = made[row](number)
        if row == delayed:
            ns += _waited(ns * float(share))
        print(json.dumps(ns / number), file=answers, flush=True)
    os._exit(0)


def _waited(ns: float) -> int:
    began = _ns()
    while _ns() - began < ns:
        pass
    return _ns() - began


def _root(uid: str, step: int = 1, rollout_n: int = 0) -> str:
    return uid


if __name__ == "__main__":
    main()
