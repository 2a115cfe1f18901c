"""The call of a function that ``contextlib`` made a context manager of lasts as long as the body of its ``with``."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from autotrace.record import calls, context, statements
from autotrace.spool.records import Close, Fact, Open

from .conftest import Recorder


@dataclass
class Answer:
    text: str = ""


@contextlib.contextmanager
def session(fail: str = "", swallow: bool = False) -> Iterator[Answer]:
    if fail == "enter":
        raise LookupError(fail)
    try:
        yield Answer()
    except ValueError:
        if not swallow:
            raise
    if fail == "exit":
        raise LookupError(fail)


@contextlib.asynccontextmanager
async def asynchronous(fail: str = "", swallow: bool = False) -> AsyncIterator[Answer]:
    with session(fail, swallow) as answer:
        await asyncio.sleep(0)
        yield answer
        await asyncio.sleep(0)


def tool() -> None:
    pass


def ends(recorder: Recorder) -> list[tuple[Any, ...]]:
    """Status, outcome and error type of the calls that ended."""
    closes = recorder.records(Close)
    return [(one.status, (one.attributes or {}).get("outcome"), one.error and one.error[0]) for one in closes]


def parents(recorder: Recorder) -> list[int]:
    """Of each call in the order in which they began: the number of the one it is inside of; -1: none."""
    opens = recorder.records(Open)
    numbers = {call.span: number for number, call in enumerate(opens)}
    return [numbers.get(call.parent, -1) for call in opens]


def test_the_body_is_inside_of_the_call_and_what_it_was_given_is_the_result(recorder: Recorder) -> None:
    work = recorder.wrap(tool)
    made = recorder.wrap(session, attributes={"said": ("result.text",)})()
    assert type(made) is contextlib._GeneratorContextManager and not recorder.records(Open)
    with made as answer:
        assert type(answer) is Answer and not recorder.records(Close)
        work()
        answer.text = "4"
    assert context.current.get() is None
    assert parents(recorder) == [-1, 0]
    close = recorder.records(Close)[-1]
    assert (close.status, close.output["text"], close.attributes, close.items) == ("OK", "4", {"said": "4"}, 0)


async def test_so_it_is_for_an_asynchronous_one_and_its_tasks(recorder: Recorder) -> None:
    work = recorder.wrap(tool)
    opened = recorder.wrap(asynchronous)

    async def task() -> None:
        work()

    async with opened() as outer:
        async with opened(swallow=True) as answer:
            await asyncio.gather(task(), task())
            answer.text = "inner"
        work()
        outer.text = "outer"
    work()
    assert parents(recorder) == [-1, 0, 1, 1, 0, -1]
    closes = recorder.records(Close)
    assert [close.output["text"] for close in closes if close.output] == ["inner", "outer"]


@pytest.mark.parametrize(
    ("fail", "raised", "swallow", "left", "recorded"),
    [
        ("enter", None, False, LookupError, ("ERROR", None, "LookupError")),
        ("exit", None, False, LookupError, ("ERROR", None, "LookupError")),
        ("", ValueError, False, ValueError, ("ERROR", None, "ValueError")),
        ("", ValueError, True, None, ("OK", None, None)),
        ("", StopIteration, False, StopIteration, ("ERROR", None, "RuntimeError")),
        ("", GeneratorExit, False, GeneratorExit, ("CANCELLED", "dropped", None)),
        ("", KeyboardInterrupt, False, KeyboardInterrupt, None),
    ],
)
async def test_what_is_raised_arrives_as_ever(
    recorder: Recorder, fail: str, raised: Any, swallow: bool, left: Any, recorded: Any
) -> None:
    error = raised and raised("from the body")
    for manager in (session, asynchronous):
        for function in (manager, recorder.wrap(manager)):
            caught: Any = None
            try:
                if manager is session:
                    with function(fail, swallow):
                        if error:
                            raise error
                else:
                    async with function(fail, swallow):
                        if error:
                            raise error
            except BaseException as error_that_left:
                caught = error_that_left
            assert type(caught) is (left or type(None)) and (caught is error or not raised or swallow)
            assert caught is None or (caught.__context__, caught.__cause__) == (None, None)
    assert context.current.get() is None and len(recorder.records(Close)) == 2
    if recorded:
        assert ends(recorder) == [recorded] * 2


def test_a_decorator_of_it_records_each_call_and_one_that_is_not_entered_is_none(recorder: Recorder) -> None:
    made = recorder.wrap(session)()

    @made
    def decorated() -> str:
        work()
        return "done"

    work = recorder.wrap(tool)
    assert (decorated(), decorated()) == ("done", "done")
    recorder.wrap(session)()
    assert parents(recorder) == [-1, 0, -1, 2] and len(recorder.records(Close)) == 4


async def test_stacks_leave_what_they_entered(recorder: Recorder) -> None:
    work = recorder.wrap(tool)
    entered, opened = recorder.wrap(session), recorder.wrap(asynchronous)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(entered())
        await stack.enter_async_context(opened())
        work()
    with contextlib.ExitStack() as others:
        others.enter_context(entered())
        kept = others.pop_all()
        work()
    kept.close()
    work()
    assert parents(recorder) == [-1, 0, 1, -1, 3, -1] and len(recorder.records(Close)) == 6


def test_to_enter_twice_is_the_error_it_was(recorder: Recorder) -> None:
    messages = []
    for function in (session, recorder.wrap(session)):
        made = function()
        with made:
            pass
        with pytest.raises((RuntimeError, AttributeError)) as caught, made:
            pass
        messages.append((type(caught.value), str(caught.value)))
    assert messages[0] == messages[1]


async def test_a_body_that_is_cancelled_ends_the_call_as_cancelled(recorder: Recorder) -> None:
    opened = recorder.wrap(asynchronous)
    inside = asyncio.Event()

    async def run() -> None:
        async with opened():
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(run())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [end[:2] for end in ends(recorder)] == [("CANCELLED", "cancelled")]


def test_a_generator_that_is_closed_in_the_body_ends_the_call(recorder: Recorder) -> None:
    entered = recorder.wrap(session)

    def rows() -> Iterator[int]:
        with entered():
            yield 1
            yield 2

    reading = rows()
    next(reading)
    reading.close()
    assert ends(recorder) == [("CANCELLED", "dropped", None)] and context.current.get() is None


def test_a_manager_that_is_dropped_in_the_body_ends_the_call_and_is_garbage(recorder: Recorder) -> None:
    made = recorder.wrap(session)()
    gone = weakref.ref(made.__enter__()), weakref.ref(made.gen)
    gc.disable()
    try:
        del made
        assert gone[0]() is None and gone[1]() is None
    finally:
        gc.enable()
    assert ends(recorder) == [("CANCELLED", "dropped", None)] and context.current.get() is None


@pytest.mark.parametrize("sampled", [True, False])
async def test_one_that_is_left_in_another_task_is_current_no_longer(recorder: Recorder, sampled: bool) -> None:
    work = recorder.wrap(tool)
    opened = recorder.wrap(asynchronous, role="trajectory")
    if not sampled:
        calls.decide = lambda attributes: False
    made = opened()
    await made.__aenter__()
    work()
    await asyncio.ensure_future(made.__aexit__(None, None, None))
    work()
    calls.decide = None
    async with opened():
        work()
    work()
    assert parents(recorder) == ([-1, 0, -1, -1, 3, -1] if sampled else [-1, -1, 1, -1])
    assert context.standing(context.current.get()) is None and context.current_carrier() is None
    statements.fact("reward", 1.0)
    assert not recorder.records(Fact), "it would be that of a trajectory which is over"


def test_threads_enter_and_leave_for_themselves(recorder: Recorder) -> None:
    work, entered = recorder.wrap(tool), recorder.wrap(session)
    made = entered()
    made.__enter__()
    other = threading.Thread(target=made.__exit__, args=(None, None, None))
    other.start()
    other.join()
    work()
    assert parents(recorder) == [-1, -1] and [end[0] for end in ends(recorder)] == ["OK", "OK"]


def test_the_body_of_a_request_is_not_inside_of_it(recorder: Recorder) -> None:
    work = recorder.wrap(tool)
    asked = recorder.wrap(session, key="ask", role="llm")
    with recorder.wrap(session)(), asked():
        work()
    assert parents(recorder) == [-1, 0, 0] and context.current.get() is None


def test_what_takes_no_weak_reference_is_copied(recorder: Recorder) -> None:
    @contextlib.contextmanager
    def numbers() -> Iterator[list[int]]:
        yield [1, 2]

    with recorder.wrap(numbers)() as given:
        given.append(3)
    (close,) = recorder.records(Close)
    assert close.output == [1, 2]


def test_a_name_and_parameters_put_on_it_later_are_the_ones_shown(recorder: Recorder) -> None:
    @functools.wraps(session)
    @contextlib.contextmanager
    def budgeted(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with session(*args, **kwargs) as answer:
            yield answer

    with recorder.wrap(budgeted, key="session")("", swallow=True):
        pass
    (call,) = recorder.records(Open)
    assert call.inputs == {"fail": "", "swallow": True}


def test_one_that_yields_twice_is_told_so_as_ever(recorder: Recorder) -> None:
    @contextlib.contextmanager
    def twice() -> Iterator[int]:
        yield 1
        yield 2

    for function in (twice, recorder.wrap(twice)):
        with pytest.raises(RuntimeError, match="didn't stop"), function():
            pass
    gc.collect()
    assert len(recorder.records(Close)) == 1


async def test_one_that_another_function_made_is_no_different(recorder: Recorder) -> None:
    work = recorder.wrap(tool)
    made, later = recorder.wrap(lambda: session(), key="made"), recorder.wrap(lambda: asynchronous(), key="later")
    with made() as answer:
        answer.text = "4"
        async with later():
            work()
    assert parents(recorder) == [-1, 0, 1] and len(recorder.records(Close)) == 3
    assert recorder.records(Close)[-1].output["text"] == "4"
    made()
    assert ends(recorder)[-1] == ("CANCELLED", "dropped", None), "it was never entered"
    held = session()
    with recorder.wrap(lambda: held, key="held")():
        assert len(recorder.records(Close)) == 5, "it is somebody else's, too"


@pytest.mark.parametrize("left_by", [None, ValueError, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("manager", [session, asynchronous])
async def test_what_was_bound_is_read_however_the_with_is_left(recorder: Recorder, manager: Any, left_by: Any) -> None:
    paths = {"facts": {"said": ("result.text",)}, "attributes": {"words": ("result.text",)}}
    opened = recorder.wrap(manager, **paths, role="agent")

    async def body(answer: Answer) -> None:
        answer.text = "4"
        if left_by is not None:
            raise left_by

    with contextlib.suppress(ValueError, GeneratorExit, asyncio.CancelledError):
        if manager is session:
            with opened() as answer:
                await body(answer)
        else:
            async with opened() as answer:
                await body(answer)
    assert [(fact.name, fact.value) for fact in recorder.records(Fact)] == [("said", "4")]
    (close,) = recorder.records(Close)
    assert (close.attributes or {})["words"] == "4" and close.output["text"] == "4"
    status, outcome = {
        None: ("OK", None), ValueError: ("ERROR", None), GeneratorExit: ("CANCELLED", "dropped"),
        asyncio.CancelledError: ("CANCELLED", "cancelled"),
    }[left_by]  # fmt: skip
    assert (close.status, (close.attributes or {}).get("outcome")) == (status, outcome)
    assert (close.error is not None) == (left_by in (ValueError, asyncio.CancelledError))
