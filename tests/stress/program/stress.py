"""Calls recorded functions under collections, threads, signals, tracers, forks and an exchange of their code.

    python stress.py PART SECONDS SEED

Prints one line of JSON: rounds, collections, and how often each body ran, here and in forked children. Ends with an
error at the first wrong value.
"""

from __future__ import annotations

import asyncio
import contextvars
import decimal
import faulthandler
import gc
import json
import multiprocessing
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import kinds

PADS = [contextvars.ContextVar(f"pad{number}") for number in range(24)]
"""A service has variables of its own; with many of them the mapping has several levels."""
children: Counter[str] = Counter()


def check(value: Any, expected: Any) -> None:
    """Fail on a wrong value."""
    if value != expected:
        raise AssertionError(f"{value!r} instead of {expected!r}")


def every_kind(x: int) -> int:
    """Call every synchronous kind once, some to their end and some not."""
    check(kinds.plain(x), x + 1)
    check(list(kinds.generator(3)), [1, 2, 3])
    check(list(kinds.returns_generator(2)), [1, 2])
    check(kinds.Thing(x).method(2), x + 3)
    with kinds.manager(x) as value, kinds.returns_manager(x) as again:
        check((value, again), (x + 1, x + 1))
    check(stepped(kinds.coroutine(x)), x + 2)
    check(stepped(kinds.returns_coroutine(x)), x + 2)
    check(next(kinds.Stream(5).iteration), 0)
    left = kinds.generator(9)
    check(next(left), 1)
    return x


def stepped(coroutine: Any) -> Any:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the coroutine waited")


def suspended() -> Any:
    """A recorded coroutine that waits, and that nobody goes on with."""

    class Never:
        def __await__(self) -> Any:
            yield

    coroutine = kinds.coroutine(1, Never())
    coroutine.send(None)
    return coroutine


def inside_manager() -> Any:
    """Stand inside the body of recorded managers."""
    with kinds.manager(1), kinds.returns_manager(1):
        yield 1


def with_decimals() -> Any:
    """Set the context of ``decimal`` again when the generator is closed."""
    with decimal.localcontext() as context:
        context.prec = 5
        yield plain_decimal()


def plain_decimal() -> decimal.Decimal:
    """Compute in the current context."""
    return decimal.Decimal(1) / decimal.Decimal(3)


def garbage(kind: type[kinds.Cycle], sets: bool) -> None:
    """Leave recorded generators and coroutines in cycles."""
    made = [kinds.generator(5), kinds.returns_generator(5), inside_manager(), kinds.Stream(3).iteration]
    if sets:
        made.append(with_decimals())
    for one in made:
        next(one)
    kind(*made)
    kind(suspended())


async def every_asynchronous_kind(x: int) -> int:
    """Call every asynchronous kind once."""
    check(await kinds.coroutine(x, asyncio.sleep(0)), x + 2)
    check(await kinds.returns_coroutine(x), x + 2)
    check([item async for item in kinds.asynchronous(2)], [1, 2])
    check([item async for item in kinds.returns_asynchronous(2)], [1, 2])
    async with kinds.asynchronous_manager(x) as value:
        check(value, x + 1)
    async for item in kinds.asynchronous(5):
        check(item, 1)
        break
    kinds.Cycle(kinds.asynchronous(3))
    return x


async def loop(x: int) -> int:
    """Several tasks at once."""
    tasks = [asyncio.ensure_future(every_asynchronous_kind(x + number)) for number in range(4)]
    check(await asyncio.gather(*tasks), [x, x + 1, x + 2, x + 3])
    garbage(kinds.Cycle, False)
    return x


def collections(x: int) -> int:
    """Set variables of the host all the time; finalizers call recorded functions."""
    for number, pad in enumerate(PADS):
        pad.set(x + number)
        garbage(kinds.Cycle, False) if number % 8 == 0 else None
    every_kind(x)
    check([pad.get() for pad in PADS], list(range(x, x + len(PADS))))
    return x


def finalizers(x: int) -> int:
    """Finalizers set variables of the host; nothing else of the host does, or Python 3.10 would die without us."""
    garbage(kinds.Setting, True)
    every_kind(x)
    value = kinds.seen.get()
    check(value is None or (type(value) is list and type(value[0]) is object), True)
    plain_decimal()
    return x


def in_child(pipe: Any, x: int) -> None:
    """Run in a forked child; send how often each body ran there."""
    before = numbers()
    check(kinds.root(every_kind, x), x)
    garbage(kinds.Cycle, False)
    gc.collect()
    pipe.send({name: number - before[name] for name, number in numbers().items()})


def processes(x: int) -> int:
    """Fork while other threads record."""
    receiver, sender = multiprocessing.Pipe(False)
    child = multiprocessing.get_context("fork").Process(target=in_child, args=(sender, x))
    child.start()
    sender.close()
    children.update(receiver.recv())
    child.join()
    check(child.exitcode, 0)
    return x


def numbers() -> dict[str, int]:
    """How often each body ran."""
    return {name: len(times) for name, times in kinds.ran.items()}


def exchange(stop: threading.Event) -> None:
    """Give all functions their own code back, and the wrappers again, over and over."""
    from autotrace.patch import wrapper

    placed = [(function, key) for function in wrapper._living() if (key := wrapper.key_of(function))]
    while not stop.is_set():
        wrapper.restore()
        for function, key in placed:
            wrapper.place(function, key)
        stop.wait(0.001)


def traced(run: Callable[[], None], x: int) -> None:
    """``run()`` under ``sys.settrace``, under ``sys.monitoring``, or plain."""
    if x % 3 == 1:
        sys.settrace(lambda *_: lambda *_: None)
        try:
            run()
        finally:
            sys.settrace(None)
    elif x % 3 == 2 and sys.version_info >= (3, 12):
        events, tool = sys.monitoring.events, sys.monitoring.PROFILER_ID
        sys.monitoring.use_tool_id(tool, "stress")
        for event in (events.PY_START, events.PY_RETURN, events.PY_YIELD, events.LINE):
            sys.monitoring.register_callback(tool, event, lambda *_: None)
        sys.monitoring.set_events(tool, events.PY_START | events.PY_RETURN | events.PY_YIELD | events.LINE)
        try:
            run()
        finally:
            sys.monitoring.set_events(tool, 0)
            sys.monitoring.free_tool_id(tool)
    else:
        run()


def worker(stop: threading.Event, errors: list[BaseException], part: Callable[[int], int], seed: int) -> None:
    """Record in a thread of its own until ``stop``."""
    x = seed
    try:
        while not stop.is_set():
            x += 1
            check(kinds.root(part, x), x)
            time.sleep(0.001)
    except BaseException as error:
        errors.append(error)
        raise


def main(part: str, seconds: float, seed: int) -> None:
    """Run one part."""
    faulthandler.enable()
    chance = random.Random(seed)
    stop, errors = threading.Event(), []
    body = {"collections": collections, "finalizers": finalizers, "processes": processes, "exchange": every_kind}[part]
    beside = finalizers if part == "finalizers" else every_kind
    threads = [threading.Thread(target=worker, args=(stop, errors, beside, number * 1000)) for number in range(2)]
    if part == "exchange":
        threads.append(threading.Thread(target=exchange, args=(stop,)))
    gc.set_threshold(chance.choice((1, 2, 5, 50, 700)))
    for thread in threads:
        thread.start()
    numbered = {thread.native_id for thread in threads}
    signal.signal(signal.SIGALRM, lambda *_: check(kinds.handled(1), 2))
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
    rounds, end = 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end and not errors:
            rounds += 1
            traced(lambda: check(kinds.root(body, rounds), rounds), rounds)  # noqa: B023 - called at once
            if part in ("collections", "exchange"):
                check(kinds.root(asyncio.run, loop(rounds)), rounds)
            if chance.random() < 0.1:
                gc.collect(chance.randrange(3))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        stop.set()
        for thread in threads:
            thread.join()
        gc.set_threshold(700, 10, 10)
    gc.collect()
    if errors:
        raise errors[0]
    check(kinds.finalized_in - {threading.get_native_id(), *numbered}, set())
    collected = sum(stats["collections"] for stats in gc.get_stats())
    print(json.dumps({"rounds": rounds, "collections": collected, "ran": Counter(numbers()) + children}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
