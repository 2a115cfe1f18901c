"""Iterator objects that a call returns: what is recorded of their items, and that they stay what they were."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from copy import copy
from typing import Any

import pytest

from autotrace.record import calls, context, flusher, iterators
from autotrace.spool.records import Close, Open

from .conftest import Recorder


def chunk(text: str, reason: str | None = None) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}


def make_stream() -> type[Any]:
    """A class as clients have it, with iteration of its own; new, so that nothing is on it yet."""

    class Stream:
        def __init__(self, items: list[Any]) -> None:
            self.items, self.closed = items, False

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            if not self.items:
                raise StopIteration
            item = self.items.pop(0)
            if isinstance(item, Exception):
                raise item
            return item

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> Any:
            await asyncio.sleep(0)
            if not self.items:
                raise StopAsyncIteration
            return self.items.pop(0)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: Any) -> None:
            self.closed = True

    return Stream


CHUNKS = [chunk("It "), chunk("is "), chunk("4.", "stop")]
ANSWER = {"role": "assistant", "content": "It is 4."}


def test_the_steps_of_an_iterator_are_put_together_and_it_stays_what_it_was(recorder: Recorder) -> None:
    Stream = make_stream()
    made = Stream([*CHUNKS])

    def ask() -> Any:
        return made

    before = dict(vars(made))
    with recorder.wrap(ask, role="llm")() as stream:
        assert stream is made and type(stream) is Stream and vars(stream) == before
        assert next(stream) == CHUNKS[0] and context.current.get() is None
        assert list(stream) == CHUNKS[1:]
    assert made.closed
    (close,) = recorder.records(Close)
    assert (close.status, close.items, close.output["choices"][0]["message"]) == ("OK", 3, ANSWER)
    assert close.first_item_at


async def test_so_are_asynchronous_steps(recorder: Recorder) -> None:
    Stream = make_stream()

    async def ask() -> Any:
        return Stream([*CHUNKS])

    assert [item async for item in await recorder.wrap(ask, role="llm")()] == CHUNKS
    (close,) = recorder.records(Close)
    assert (close.status, close.items, close.output["choices"][0]["message"]) == ("OK", 3, ANSWER)


async def test_a_plain_anext_is_followed_too(recorder: Recorder) -> None:
    class Stream:
        def __init__(self) -> None:
            self.inner = self.read()

        async def read(self) -> AsyncIterator[Any]:
            for item in CHUNKS:
                yield item

        def __aiter__(self) -> Any:
            return self

        def __anext__(self) -> Any:
            return self.inner.__anext__()

    assert [item async for item in recorder.wrap(lambda: Stream(), key="ask", role="llm")()] == CHUNKS
    assert recorder.records(Close)[0].output["choices"][0]["message"] == ANSWER


def test_other_objects_of_the_class_are_not_recorded(recorder: Recorder) -> None:
    Stream = make_stream()
    assert list(recorder.wrap(lambda: Stream([*CHUNKS]), key="ask", role="llm")()) == CHUNKS
    assert list(Stream([*CHUNKS])) == CHUNKS
    followed = recorder.wrap(lambda: Stream([*CHUNKS]), key="again", role="llm")()
    assert list(copy(followed)) == CHUNKS
    assert len(recorder.records(Close)) == 1


def test_what_a_step_raises_ends_the_call_and_arrives(recorder: Recorder) -> None:
    Stream = make_stream()
    stream = recorder.wrap(lambda: Stream([chunk("It "), ValueError("cut"), chunk("more")]), key="ask", role="llm")()
    next(stream)
    with pytest.raises(ValueError, match="cut"):
        next(stream)
    (close,) = recorder.records(Close)
    assert (close.status, close.error[0]) == ("ERROR", "ValueError")
    assert close.output["choices"][0]["message"]["content"] == "It "
    assert next(stream) == chunk("more"), "it goes on, if the host's can"


async def test_a_cancelled_step_is_cancelled(recorder: Recorder) -> None:
    class Slow:
        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> Any:
            await asyncio.Event().wait()

    stream = recorder.wrap(lambda: Slow(), key="ask", role="llm")()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(stream.__anext__(), 0.01)
    assert [close.status for close in recorder.records(Close)] == ["CANCELLED"]
    assert context.current.get() is None


def test_a_dropped_iterator_ends_its_call_at_once(recorder: Recorder) -> None:
    Stream = make_stream()
    ask = recorder.wrap(lambda items: Stream(items), key="ask", role="llm")
    gc.disable()
    try:
        unread, begun, said = ask([*CHUNKS]), ask([*CHUNKS]), ask([*CHUNKS])
        next(begun)
        for _ in range(3):
            next(said)
        del unread, begun, said
        closes = recorder.records(Close)
    finally:
        gc.enable()
    assert [close.status for close in closes] == ["CANCELLED", "CANCELLED", "OK"]
    assert closes[1].output["choices"][0]["message"]["content"] == "It "


def test_one_that_said_everything_and_is_kept_is_settled(recorder: Recorder) -> None:
    Stream = make_stream()
    stream = recorder.wrap(lambda: Stream([*CHUNKS]), key="ask", role="llm")()
    for item in stream:
        if item["choices"][0]["finish_reason"]:
            break
    iterators.settle(idle_ns=0)
    assert [(close.status, close.items) for close in recorder.records(Close)] == [("OK", 3)]
    assert list(stream) == []


def test_what_a_step_calls_is_below_the_call(recorder: Recorder) -> None:
    tool = recorder.wrap(lambda: None, key="tool")

    class Agent:
        def __next__(self) -> Any:
            tool()
            return "x"

    stream = recorder.wrap(lambda: Agent(), key="ask", role="llm")()
    next(stream)
    tool()
    call, below, beside = recorder.records(Open)
    assert (below.parent, beside.parent) == (call.span, 0)


def test_a_step_that_takes_a_step_is_one_item(recorder: Recorder) -> None:
    class Skipping:
        def __init__(self) -> None:
            self.items = ["", "a", "", "b"]

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            if not self.items:
                raise StopIteration
            return self.items.pop(0) or next(self)

    assert list(recorder.wrap(lambda: Skipping(), key="ask", role="llm")()) == ["a", "b"]
    (close,) = recorder.records(Close)
    assert (close.items, close.output, close.status) == (2, "ab", "OK")


def test_what_cannot_be_followed_ends_with_its_call(recorder: Recorder) -> None:
    class Slots:
        __slots__ = ()

        def __next__(self) -> Any:
            return 1

    class Generated:
        def __iter__(self) -> Iterator[Any]:
            yield from CHUNKS

        def __next__(self) -> Any:
            return CHUNKS[0]

    for number, value in enumerate((Slots(), Generated(), iter([1]), map(str, [1]))):
        result = recorder.wrap(lambda value=value: value, key=f"ask{number}", role="llm")()
        assert result is value and len(recorder.records(Close)) == number + 1
        assert next(result)


def test_a_generator_that_is_made_later_is_followed_and_forms_no_cycle(recorder: Recorder) -> None:
    class Stream:
        """As the client of anthropic has it."""

        def __init__(self) -> None:
            self.items = [*CHUNKS]

        @functools.cached_property
        def _iterator(self) -> Iterator[Any]:
            return copy(self).read()

        def read(self) -> Iterator[Any]:
            while self.items:
                yield self.items.pop(0)

        def __iter__(self) -> Iterator[Any]:
            for item in self._iterator:  # noqa: UP028 - which would close it
                yield item

        def __next__(self) -> Any:
            return next(self._iterator)

    ask = recorder.wrap(lambda: Stream(), key="ask", role="llm")
    whole = ask()
    assert next(whole) == CHUNKS[0]
    for item in whole:
        assert item == CHUNKS[1]
        break
    assert list(whole) == CHUNKS[2:]
    gc.disable()
    try:
        left = ask()
        next(left)
        gone = weakref.ref(left)
        del left
        assert gone() is None
        unread = ask()
        del unread
        closes = recorder.records(Close)
    finally:
        gc.enable()
    assert [(close.status, close.items) for close in closes] == [("OK", 3), ("CANCELLED", 1), ("CANCELLED", 0)]
    assert closes[0].output["choices"][0]["message"] == ANSWER


def test_items_keeps_the_last_ones_of_any_call_s_iterator(recorder: Recorder) -> None:
    Stream = make_stream()
    rows = [{"row": number} for number in range(5)]
    assert list(recorder.wrap(lambda: Stream([*rows]), key="a", role="tool", items=3)()) == rows
    assert list(recorder.wrap(lambda: iter(Stream([*rows])), key="b", items=64, attributes={"n": ("result.-1.row",)})())
    assert list(recorder.wrap(lambda: (row for row in rows), key="c", role="tool", items=2)()) == rows
    closes = recorder.records(Close)
    assert [close.output for close in closes] == [rows[2:], rows, rows[3:]]
    assert closes[1].attributes == {"n": 4} and closes[0].items == 5


def test_without_items_a_tool_that_returns_an_iterator_ends_at_once(recorder: Recorder) -> None:
    Stream = make_stream()
    stream = recorder.wrap(lambda: Stream([1]), key="tool", role="tool")()
    assert len(recorder.records(Close)) == 1 and list(stream) == [1]
    assert "__wrapped__" not in vars(vars(Stream)["__next__"])


def test_a_process_that_stopped_recording_iterates_as_ever(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    Stream = make_stream()
    stream = recorder.wrap(lambda: Stream([*CHUNKS]), key="ask", role="llm")()
    with contextlib.suppress(KeyError):
        monkeypatch.delitem(__import__("sys").modules, "autotrace.record.calls")
    assert list(stream) == CHUNKS
    assert calls.probes


def make_client_s_stream(asynchronous: bool = False) -> type[Any]:
    """As the clients of model servers have it: the generator refers to the stream."""

    class Base:
        def __init__(self, items: list[Any], refused: bool = False) -> None:
            self.items, self.refused, self.closed = items, refused, 0
            self._iterator: Any = self.aread() if asynchronous else self.read()

        def read(self) -> Iterator[Any]:
            while self.items:
                yield self.items.pop(0)

        async def aread(self) -> AsyncIterator[Any]:
            while self.items:
                yield self.items.pop(0)

    class Stream(Base):
        def __next__(self) -> Any:
            return next(self._iterator)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: Any) -> None:
            self.close()

        def close(self) -> str:
            self.closed += 1
            if self.refused:
                raise OSError("refused")
            return "closed"

    class AsyncStream(Base):
        async def __anext__(self) -> Any:
            return await self._iterator.__anext__()

        async def close(self) -> str:
            self.closed += 1
            return "closed"

        async def aclose(self) -> str:
            return await self.close()

    return AsyncStream if asynchronous else Stream


def cancelled(close: Close) -> tuple[Any, ...]:
    output = close.output and close.output["choices"][0]["message"]["content"]
    return close.status, close.attributes, close.items, output


DROPPED = {"outcome": "dropped"}


def test_a_stream_that_is_closed_ends_its_call_with_what_came(recorder: Recorder) -> None:
    Stream = make_client_s_stream()
    ask = recorder.wrap(lambda items, **more: Stream(items, **more), key="ask", role="llm")
    kept = ask([*CHUNKS])
    next(kept)
    assert kept.close() == "closed" and kept.closed == 1
    assert [cancelled(close) for close in recorder.records(Close)] == [("CANCELLED", DROPPED, 1, "It ")]
    assert next(kept) == CHUNKS[1] and kept.close() == "closed", "it goes on, as the client's does"
    assert list(kept._iterator) == CHUNKS[2:]
    with ask([*CHUNKS]) as unread:
        pass
    refused = ask([*CHUNKS], refused=True)
    next(refused)
    with pytest.raises(OSError, match="refused"):
        refused.close()
    said = ask([*CHUNKS])
    for _ in CHUNKS:
        next(said)
    said.close()
    whole = ask([*CHUNKS])
    assert list(whole._iterator) == CHUNKS
    whole.close()
    Stream([*CHUNKS]).close()
    assert [cancelled(close)[::2] for close in recorder.records(Close)[1:]] == [
        ("CANCELLED", 0), ("CANCELLED", 1), ("OK", 3), ("OK", 3),
    ]  # fmt: skip
    assert unread.closed == 1 and context.current.get() is None


async def test_so_does_an_asynchronous_one(recorder: Recorder) -> None:
    Stream = make_client_s_stream(asynchronous=True)
    kept = recorder.wrap(lambda: Stream([*CHUNKS]), key="ask", role="llm")()
    await kept.__anext__()
    assert await kept.aclose() == "closed" and kept.closed == 1
    assert [cancelled(close) for close in recorder.records(Close)] == [("CANCELLED", DROPPED, 1, "It ")]


def test_so_does_an_iterator_with_steps_of_its_own(recorder: Recorder) -> None:
    class Stream(make_stream()):  # type: ignore[misc]
        def close(self) -> None:
            self.closed = True

    kept = recorder.wrap(lambda: Stream([*CHUNKS]), key="ask", role="llm")()
    next(kept)
    kept.close()
    assert [cancelled(close) for close in recorder.records(Close)] == [("CANCELLED", DROPPED, 1, "It ")]
    assert list(kept) == CHUNKS[1:] and len(recorder.records(Close)) == 1


def test_a_stream_that_is_closed_in_the_middle_of_a_step_ends_with_the_step(recorder: Recorder) -> None:
    class Stream(make_client_s_stream()):  # type: ignore[misc]
        def read(self) -> Iterator[Any]:
            self.close()
            yield CHUNKS[0]
            raise ValueError("cut")

    stream = recorder.wrap(lambda: Stream([]), key="ask", role="llm")()
    next(stream)
    with pytest.raises(ValueError, match="cut"):
        next(stream)
    assert [close.status for close in recorder.records(Close)] == ["ERROR"]


def test_a_stream_that_is_kept_keeps_nothing_of_its_call(recorder: Recorder) -> None:
    Stream = make_client_s_stream()
    kept = recorder.wrap(lambda: Stream([*CHUNKS]), key="ask", role="llm")()
    holder = iterators._open[id(kept)].holder
    assert holder() is not None and list(kept._iterator) == CHUNKS
    assert holder() is None
    number = id(kept)
    del kept
    gc.collect()
    assert number not in iterators._open


def test_a_stream_whose_response_is_closed_ends_its_call(recorder: Recorder) -> None:
    class Response:
        def close(self) -> str:
            return "closed"

    class Stream(make_client_s_stream()):  # type: ignore[misc]
        def __init__(self, items: list[Any]) -> None:
            super().__init__(items)
            self.response = Response()

        def close(self) -> str:
            return self.response.close()

    ask = recorder.wrap(lambda: Stream([*CHUNKS]), key="ask", role="llm")
    kept, both = ask(), ask()
    next(kept)
    assert kept.response.close() == "closed"
    assert [cancelled(close) for close in recorder.records(Close)] == [("CANCELLED", DROPPED, 1, "It ")]
    assert both.close() == "closed" and len(recorder.records(Close)) == 2


def test_a_stream_that_nobody_closed_ends_with_the_process(recorder: Recorder) -> None:
    kept = recorder.wrap(lambda: make_client_s_stream()([*CHUNKS]), key="ask", role="llm")()
    next(kept)
    flusher.stop()
    assert [cancelled(close) for close in recorder.read(Close)] == [("CANCELLED", DROPPED, 1, "It ")]
    assert list(kept._iterator) == CHUNKS[1:]
