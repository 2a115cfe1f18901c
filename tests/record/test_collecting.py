"""What is recorded of what a generator yields, put together, and that the generator is none the wiser."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import pytest

from autotrace.config.plan import Settings
from autotrace.record import calls, closing, collecting, faults, iterators
from autotrace.record.snapshot import Limits
from autotrace.spool.records import Close

from .conftest import Recorder


def spoken(*texts: str) -> Iterator[str]:
    yield from texts


def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **more}


def test_texts_are_joined(recorder: Recorder) -> None:
    assert list(recorder.wrap(spoken, role="llm")("It ", "is ", "4.")) == ["It ", "is ", "4."]
    (close,) = recorder.records(Close)
    assert (close.output, close.items, close.status) == ("It is 4.", 3, "OK")


def test_all_texts_are_joined_and_counted_whichever_way_they_were_kept(recorder: Recorder) -> None:
    """Short ones by the wrapper, most of the time; long ones and what is no text by the room."""
    words: list[Any] = [f"word {number} " for number in range(300)]
    words[100:100], words[200:200], words[201:201] = ["long " * 200], [7, None], [""]

    async def speak() -> AsyncIterator[str]:
        for word in words:
            yield word

    assert list(recorder.wrap(spoken, role="llm")(*words)) == words
    said = "".join(word for word in words if type(word) is str)
    (close,) = recorder.records(Close)
    assert (close.output, close.items) == (said, 304)

    async def read() -> list[str]:
        return [word async for word in recorder.wrap(speak, key="async", role="llm")()]

    assert asyncio.run(read()) == words
    close = recorder.records(Close)[-1]
    assert (close.output, close.items) == (said, 304)


@pytest.mark.parametrize("last", ["text", 7, 0.5, None, True, {"a": 1}, "long " * 200])
@pytest.mark.parametrize("before", [1, 64, 65, 200])
def test_the_last_item_of_many_whatever_they_are(recorder: Recorder, last: Any, before: int) -> None:
    def steps(first: Any) -> Iterator[Any]:
        for _ in range(before):
            yield first
        yield last

    for number, first in enumerate(("text", 3, {"b": 2}, None)):
        stream = recorder.wrap(steps, key=str(number), role="tool")(first)
        assert [next(stream) for _ in range(before + 1)][-1] is last
        stream.close()
        close = recorder.records(Close)[-1]
        assert (close.output, close.items, close.status) == (last, before + 1, "CANCELLED")


def test_the_last_few_items_of_many(recorder: Recorder) -> None:
    items = [*map(str, range(200)), {"a": 1}, "one", "two"]
    assert list(recorder.wrap(spoken, role="tool", items=4)(*items)) == items
    (close,) = recorder.records(Close)
    assert (close.output, close.items) == (["199", {"a": 1}, "one", "two"], 203)


def test_of_texts_that_are_kept_only_a_few_are_held(recorder: Recorder) -> None:
    """Texts that could change, or be large, are not among them."""

    class Text(str):
        __slots__ = ("__weakref__",)

    released: list[Any] = []

    def read() -> Iterator[str]:
        yield "first"
        for _ in range(100):
            text = Text("x" * 10)
            released.append(weakref.ref(text))
            yield text
            del text
            yield "x" * 100_000

    stream = recorder.wrap(read, role="tool")()
    before, peak = 0, 0
    tracemalloc.start()
    try:
        for _ in stream:
            before = before or tracemalloc.get_traced_memory()[0]
            peak = max(peak, tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert peak - before < 5 * 100_000
    assert not any(reference() for reference in released)


async def test_of_anything_else_the_last_item_as_it_was(recorder: Recorder) -> None:
    last: dict[str, Any] = {"rows": [1, 2]}

    async def search() -> AsyncIterator[dict[str, Any]]:
        yield {"rows": []}
        yield last

    async for rows in recorder.wrap(search, role="tool")():
        if rows is last:
            rows["rows"].append("changed by its caller")
    (close,) = recorder.records(Close)
    assert (close.output, close.items) == ({"rows": [1, 2]}, 2)


def test_what_a_generator_returns_is_its_result(recorder: Recorder) -> None:
    def steps() -> Iterator[str]:
        yield "one"
        return "all"

    assert list(recorder.wrap(steps, attributes={"said": ("result",)})()) == ["one"]
    (close,) = recorder.records(Close)
    assert (close.output, close.attributes) == ("all", {"said": "all"})


def test_result_paths_read_what_was_put_together(recorder: Recorder) -> None:
    def ask() -> Iterator[Any]:
        yield chunk({"role": "assistant", "content": ""}, prompt_token_ids=[1, 2])
        yield chunk({"content": "4"})
        yield chunk({}, "stop")
        yield {"id": "c1", "choices": [], "usage": {"completion_tokens": 1}}

    paths = {"finish_reason": ("result.choices.0.finish_reason",), "cost": ("result.usage.completion_tokens",)}
    list(recorder.wrap(ask, role="llm", attributes=paths, tokens={"prompt": ("result.prompt_token_ids",)})())
    (close,) = recorder.records(Close)
    assert close.attributes == {"finish_reason": "stop", "cost": 1}
    assert close.output["choices"][0]["message"] == {"role": "assistant", "content": "4"}


def test_parallel_tool_calls_and_reasoning(recorder: Recorder) -> None:
    def call(index: int, **function: str) -> dict[str, Any]:
        return {"index": index, **({"id": f"call_{index}"} if "name" in function else {}), "function": function}

    def ask() -> Iterator[Any]:
        yield chunk({"reasoning_content": "Two "})
        yield chunk({"reasoning_content": "tools."})
        yield chunk({"tool_calls": [call(0, name="add", arguments=""), call(1, name="sub", arguments='{"b"')]})
        yield chunk({"tool_calls": [call(1, arguments=": 1}"), call(0, arguments="{}")]})
        yield chunk({}, "tool_calls")

    list(recorder.wrap(ask, role="llm")())
    message = recorder.records(Close)[0].output["choices"][0]["message"]
    assert message["reasoning_content"] == "Two tools." and message["content"] is None
    functions = [(call["id"], call["function"]) for call in message["tool_calls"]]
    assert functions == [
        ("call_0", {"name": "add", "arguments": "{}"}),
        ("call_1", {"name": "sub", "arguments": '{"b": 1}'}),
    ]


def test_content_blocks(recorder: Recorder) -> None:
    def ask() -> Iterator[Any]:
        yield {"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 9, "output_tokens": 1}}}
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me "}}
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "see."}}
        tool = {"type": "tool_use", "id": "t1", "name": "search", "input": {}}
        yield {"type": "content_block_start", "index": 1, "content_block": tool}
        yield {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}}
        yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 6}}
        yield {"type": "message_stop"}

    list(recorder.wrap(ask, role="llm")())
    output = recorder.records(Close)[0].output
    assert output["stop_reason"] == "tool_use" and output["usage"] == {"input_tokens": 9, "output_tokens": 6}
    assert output["content"] == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "t1", "name": "search", "input": "{}"},
    ]


def test_a_response_that_broke_off_has_what_came(recorder: Recorder) -> None:
    def ask() -> Iterator[Any]:
        yield {"type": "response.created", "response": {"id": "r1", "model": "m", "output": []}}
        item = {"type": "function_call", "name": "add", "call_id": "c1", "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": 0, "item": item}
        yield {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"a"'}
        yield {"type": "response.output_text.delta", "output_index": 1, "delta": "It "}
        raise ConnectionError("reset")

    with pytest.raises(ConnectionError):
        list(recorder.wrap(ask, role="llm")())
    (close,) = recorder.records(Close)
    assert (close.status, close.output["id"]) == ("ERROR", "r1")
    assert close.output["output"] == [
        {"type": "function_call", "name": "add", "call_id": "c1", "arguments": '{"a"'},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It "}]},
    ]


def test_a_stream_that_is_left_keeps_what_came_and_is_over_only_if_it_had_said_so(recorder: Recorder) -> None:
    def ask(reason: str | None) -> Iterator[Any]:
        yield chunk({"content": "It "})
        yield chunk({"content": "is"}, reason)
        yield chunk({"content": " never read"})

    traced = recorder.wrap(ask, role="llm")
    for reason in (None, "length"):
        stream = traced(reason)
        next(stream), next(stream)
        stream.close()
    left, over = recorder.records(Close)
    assert [close.output["choices"][0]["message"]["content"] for close in (left, over)] == ["It is", "It is"]
    assert (left.status, left.attributes) == ("CANCELLED", {"outcome": "dropped"})
    assert (over.status, over.output["choices"][0]["finish_reason"]) == ("OK", "length")


@pytest.mark.parametrize("item", ["x" * 1000, chunk({"content": "x" * 1000})], ids=["texts", "chunks"])
def test_what_is_kept_has_a_bound(recorder: Recorder, item: Any) -> None:
    recorder.use(Settings(max_string=5_000, flush_interval=0.01))

    def ask() -> Iterator[Any]:
        for _ in range(2_000):
            yield item

    assert sum(1 for _ in recorder.wrap(ask, role="llm", key=str(type(item)))()) == 2_000
    (close,) = recorder.records(Close)
    output = close.output if isinstance(close.output, str) else close.output["choices"][0]["message"]["content"]
    assert 5_000 <= len(output) < 7_000 and "characters more" in output and close.items == 2_000


@pytest.mark.parametrize(
    "first", [chunk({"content": "x"}), {"type": "response.created"}, {"type": "message_start"}, "x"]
)
def test_what_was_put_together_goes_with_its_call(first: Any) -> None:
    """Also where the garbage collector is off, as in many training programs."""
    collected = collecting.begin("llm", first, Limits())
    collected.add(first)
    kind = type(collected)
    gc.collect()
    gc.disable()
    try:
        before = sum(type(thing) is kind for thing in gc.get_objects())
        del collected
        assert sum(type(thing) is kind for thing in gc.get_objects()) == before - 1
    finally:
        gc.enable()


def test_a_credential_across_the_cut_is_recognised(recorder: Recorder) -> None:
    recorder.use(Settings(max_string=5_000, flush_interval=0.01))

    def ask() -> Iterator[str]:
        yield "x" * 4_980 + " sk-a1B2c3D4e5"
        yield "F6g7H8i9" * 200

    list(recorder.wrap(ask, role="llm", key="cut")())
    (close,) = recorder.records(Close)
    assert "a1B2" not in close.output


class Hostile:
    """Says that it is a chunk, and counts who asks."""

    asked: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> Any:
        Hostile.asked.append(name)
        raise RuntimeError(name)


@pytest.mark.parametrize(
    "items",
    [
        [Hostile()],
        [
            chunk({"content": 5}),
            {"choices": None},
            {"choices": [None, 3]},
            None,
            "text",
            chunk({"tool_calls": [7, {}]}),
        ],
        [{"type": "response.created"}, {"type": "response.output_item.added", "output_index": "?"}, 5],
        [int, chunk({"content": str}), type],
        [{"type": "message_start"}, {"type": "content_block_delta", "delta": None}, {"type": ["no", "text"]}, ()],
    ],
)
def test_items_of_any_form_cost_nothing_and_none_of_their_code_runs(recorder: Recorder, items: list[Any]) -> None:
    before = dict(faults.counts)
    Hostile.asked.clear()
    key = f"hostile {len(items)} {type(items[0]).__name__} {str(items[0])[:30] if type(items[0]) is dict else ''}"

    def ask() -> Iterator[Any]:
        yield from items

    yielded = list(recorder.wrap(ask, role="llm", key=key)())
    assert len(yielded) == len(items) and all(one is other for one, other in zip(yielded, items, strict=True))
    (close,) = recorder.records(Close)
    assert (close.status, close.items, calls.probes[key].counts.faults) == ("OK", len(items), 0)
    assert Hostile.asked == [] and before == faults.counts


def test_no_item_is_kept_alive(recorder: Recorder) -> None:
    class Item:
        def __init__(self) -> None:
            self.choices: list[Any] = []

    def ask() -> Iterator[Item]:
        yield Item()
        yield Item()

    for role in ("llm", "tool"):
        stream = recorder.wrap(ask, role=role, key=role)()
        first = weakref.ref(next(stream))
        gc.collect()
        assert first() is None
        stream.close()


class Stream:
    """As generated clients make them: an object that iterates a generator of its own."""

    def __init__(self, items: list[Any]) -> None:
        self.closed = False
        self._iterator = self.__stream__(items)

    def __iter__(self) -> Iterator[Any]:
        yield from self._iterator

    def __next__(self) -> Any:
        return next(self._iterator)

    def __stream__(self, items: list[Any]) -> Iterator[Any]:
        yield from items

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


class AsyncStream:
    def __init__(self, items: list[Any]) -> None:
        self._iterator = self.__stream__(items)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for item in self._iterator:
            yield item

    async def __stream__(self, items: list[Any]) -> AsyncIterator[Any]:
        for item in items:
            await asyncio.sleep(0)
            yield item


def create(items: list[Any]) -> Stream:
    return Stream(items)


async def create_async(items: list[Any]) -> AsyncStream:
    return AsyncStream(items)


def test_the_call_that_returned_a_stream_ends_with_it(recorder: Recorder) -> None:
    inside: list[bool] = []

    def look() -> Iterator[str]:
        inside.append(calls.current.get() is not None)
        yield "It "
        yield "is 4."

    with recorder.wrap(create, role="llm")(look()) as stream:  # type: ignore[arg-type]
        assert type(stream) is Stream and set(vars(stream)) == {"closed", "_iterator"}
        assert recorder.records(Close) == [] and calls.current.get() is None
        assert next(stream) + "".join(stream) == "It is 4."
    assert stream.closed and inside == [True] and calls.current.get() is None
    (close,) = recorder.records(Close)
    assert (close.output, close.items, close.status) == ("It is 4.", 2, "OK") and close.first_item_at


async def test_the_same_for_an_asynchronous_stream(recorder: Recorder) -> None:
    stream = await recorder.wrap(create_async, role="llm")(["It ", "is 4."])
    assert type(stream) is AsyncStream and [item async for item in stream] == ["It ", "is 4."]
    assert [close.output for close in recorder.records(Close)] == ["It is 4."]


def test_a_stream_that_nobody_reads_ends_with_its_object_and_one_that_was_begun_is_left_alone(
    recorder: Recorder,
) -> None:
    traced = recorder.wrap(create, role="llm")
    stream = traced(["never"])
    del stream
    gc.collect()
    (close,) = recorder.records(Close)
    assert (close.status, close.attributes) == ("CANCELLED", {"outcome": "dropped"})

    begun = Stream(["one", "two"])
    assert next(begun) == "one"

    def get() -> Stream:
        return begun

    assert list(recorder.wrap(get, role="llm")()) == ["two"]
    assert recorder.records(Close)[1].items == 0


def test_a_stream_that_said_everything_ends_although_it_is_kept_and_not_read_on(recorder: Recorder) -> None:
    traced = recorder.wrap(create, role="llm")
    kept = traced([chunk({"content": "4"}), chunk({}, "stop"), {"choices": [], "usage": {"completion_tokens": 1}}])
    unsaid = traced([chunk({"content": "4"}), chunk({"content": "2"})])
    for stream in (kept, unsaid):
        next(stream), next(stream)
    iterators.settle()
    assert recorder.records(Close) == [], "the usage may come"
    iterators.settle(idle_ns=0)
    (close,) = recorder.records(Close)
    assert (close.status, close.items, close.output["choices"][0]["finish_reason"]) == ("OK", 2, "stop")
    assert close.first_item_at <= close.at
    assert len(list(kept)) == 1 and list(unsaid) == []
    assert [record.items for record in recorder.records(Close)] == [2, 2], "ended once"


def test_what_comes_after_the_finish_reason_is_waited_for(recorder: Recorder) -> None:
    stream = recorder.wrap(create, role="llm")([chunk({}, "stop"), {"choices": [], "usage": {"completion_tokens": 1}}])
    next(stream)
    iterators.settle()
    assert list(stream) != []
    iterators.settle(idle_ns=0)
    (close,) = recorder.records(Close)
    assert close.output["usage"] == {"completion_tokens": 1}


@pytest.mark.parametrize("first", ["reader", "flusher"])
@pytest.mark.parametrize("how", ["exhausted", "closed"])
def test_a_finished_stream_is_ended_once_by_its_reader_or_by_the_flusher(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, first: str, how: str
) -> None:
    """Each begins while the other is in the middle of it."""
    stream = recorder.wrap(create, role="llm")([chunk({"content": "4"}), chunk({}, "stop")])
    next(stream), next(stream)
    inside = threading.Event()

    def settle() -> None:
        iterators.settle(idle_ns=0)

    def read() -> None:
        stream._iterator.close() if how == "closed" else list(stream)

    one, other = (read, settle) if first == "reader" else (settle, read)
    answered = closing.answered

    def interrupted(result: Any) -> Any:
        if not inside.is_set():
            inside.set()
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        return answered(result)

    monkeypatch.setattr(closing, "answered", interrupted)
    one()
    assert inside.is_set()
    (close,) = recorder.records(Close)
    assert (close.status, close.output["choices"][0]["finish_reason"]) == ("OK", "stop")
    assert not faults.counts
