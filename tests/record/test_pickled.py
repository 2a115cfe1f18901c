"""Nested values are encoded in C: exact builtin types only, bounded, and the record is the one that a copy gives."""

from __future__ import annotations

import array
import collections
import enum
import gc
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotrace.config.plan import Settings
from autotrace.record import faults, pickled
from autotrace.record.conversations import Conversations
from autotrace.record.pickled import MAX_PICKLED, WALKS, Pickled, captured
from autotrace.record.snapshot import Limits, snapshot
from autotrace.record.weights import LARGE, NOT_KEPT, weigh, without_large
from autotrace.redact.redactor import Redactor
from autotrace.spool.records import Close, Open
from tests.cases import examples

from .conftest import Recorder
from .test_no_host_code import hostile, ran


def history(messages: int) -> list[dict[str, Any]]:
    """A conversation with nested metadata."""
    return [
        {"role": "user", "content": f"message {n}", "metadata": {"turn": n, "tags": ["a", "b"], "usage": {"in": n}}}
        for n in range(messages)
    ]


def encoded(value: Any) -> Pickled:
    """``value`` encoded, whatever it looks like."""
    found = pickled._pickled(value)
    assert found is not None
    return found


class Ways:
    """What is written of a value, encoded by the caller or copied."""

    def __init__(self, **options: Any) -> None:
        self.settings = Settings(**options)
        self.conversations = Conversations(Redactor(self.settings), self.limits())
        self.redactor = Redactor(self.settings)

    def limits(self) -> Limits:
        return Limits(self.settings.max_depth, self.settings.max_items, self.settings.max_string)

    def encoded(self, value: Any, name: str = "messages") -> bytes:
        cleaned = self.conversations.clean(name, encoded(value))
        return msgspec.msgpack.encode(cleaned)

    def copied(self, value: Any, name: str = "messages") -> bytes:
        return msgspec.msgpack.encode(self.redactor.clean(name, snapshot(value, self.limits())))


texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from([
        "x" * 40, "x" * 600, "ü" * 300, "\ud800", "sk-abcdefghijklmnopqrstuvwx1", "password=hunter2hunter2",
        "-----BEGIN PRIVATE KEY-----", "--password", "data:image/png;base64," + "A" * 600,
        "Bearer abcdefghij0123456789",
    ]),
)  # fmt: skip
keys = st.one_of(
    st.sampled_from(["role", "content", "api_key", "token", "name", "value", "logprob", "k" * 300, "a"]),
    texts,
    st.integers(-3, 3),
    st.booleans(),
    st.none(),
    st.tuples(st.integers(0, 2), st.text(max_size=2)),
)
leaves = st.one_of(
    texts,
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.booleans(),
    st.none(),
    st.binary(max_size=20),
    st.lists(st.integers(), min_size=0, max_size=12),
    st.lists(st.floats(allow_nan=False), max_size=12),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=7),
        st.lists(st.dictionaries(keys, inner, max_size=4), max_size=7),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=7),
    ),
    max_leaves=25,
)
ways = {
    "small": Ways(max_depth=3, max_items=5, max_string=200),
    "usual": Ways(),
    "flat": Ways(max_depth=1, max_items=5, max_string=200),
    "strict": Ways(redact_keys=("con*",), redact_patterns=(r"x{4,}",)),
}


@pytest.mark.parametrize("way", ways)
@settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(
    value=values.filter(lambda value: type(value) in (list, tuple, dict)), name=st.sampled_from(["messages", "auth"])
)
def test_the_record_is_the_same_both_ways(way: str, value: Any, name: str) -> None:
    both = ways[way]
    if len(value) <= both.settings.max_items:
        assert both.encoded(value, name) == both.copied(value, name)
        assert both.encoded(value, name) == both.copied(value, name)  # what is remembered, too


def test_an_empty_value_below_the_depth_limit_is_the_same_both_ways() -> None:
    both = ways["flat"]
    assert both.encoded([{}], "auth") == both.copied([{}], "auth")


def test_what_has_too_many_nodes_is_cut_in_the_same_place() -> None:
    both = Ways()
    for messages, each in ((250, 7), (250, 8), (250, 9), (199, 10), (200, 10), (4, 600)):
        value = [{"parts": [[n] for n in range(each)]} for _ in range(messages)]
        assert both.encoded(value) == both.copied(value), (messages, each)


def test_values_that_refer_to_themselves_are_declined() -> None:
    both, loop = Ways(), history(10)
    shared = [loop[0]] * 9
    assert both.encoded(shared) == both.copied(shared)
    loop[3]["metadata"]["all"] = loop
    assert pickled._pickled(loop) is None


def test_what_is_shared_takes_no_more_than_its_encoding() -> None:
    """Nodes of a tree that refer to those before them in two places: remembered by each, and endless to write out."""
    both, nodes = Ways(), [{"role": "root"}, {"role": "first"}]
    for _ in range(200):
        nodes.append({"role": "node", "parent": nodes[-1], "state": {"before": nodes[-1]}})  # type: ignore[dict-item]
    assert pickled._pickled(nodes) is None and pickled._pickled([nodes[-1]] * 2) is None
    few = nodes[:6]
    assert encoded(few).load() == few and both.encoded(few) == both.copied(few)


def test_members_of_a_set_have_no_order() -> None:
    both = Ways()
    value = {"tags": {"a", "b", "c"}, "numbers": frozenset({1, 2})}
    one, other = (msgspec.msgpack.decode(data) for data in (both.encoded(value), both.copied(value)))
    assert {name: sorted(items) for name, items in one.items()} == {
        name: sorted(items) for name, items in other.items()
    }


class Number(int):
    pass


class Color(enum.IntEnum):
    RED = 1


class Named(NamedTuple):
    a: int


@dataclass
class Data:
    a: int


class Reducing:
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise AssertionError("was asked to be pickled")

    __reduce__ = __getstate__ = __getnewargs__ = __reduce_ex__


@pytest.mark.parametrize(
    "value",
    [
        Number(1), Color.RED, Named(1), Data(1), Reducing(), len, Data, type, test_members_of_a_set_have_no_order,
        1j, range(3), slice(1), memoryview(b"a"), pickle.PickleBuffer(b"a"), collections.OrderedDict(a=1),
        collections.defaultdict(int), collections.deque([1]), array.array("I", [1]), ValueError("a"), ...,
        NotImplemented, sys, (n for n in ()), object(), type("Text", (str,), {})("a"), type("Items", (list,), {})(),
        threading.Lock(), bytearray(b"a"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_only_exact_builtin_values_are_encoded(value: Any) -> None:
    for nested in ([value], {"a": value}, {"a": [1, (value,)]}):
        assert pickled._pickled(nested) is None
    assert not faults.counts.get("fault:copy")


def test_keys_that_are_no_builtin_values_are_declined() -> None:
    assert pickled._pickled({Data: 1}) is None
    assert pickled._pickled([{Color.RED: 1}]) is None


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.one_of(hostile(), st.dictionaries(st.text(max_size=3), hostile(), max_size=2)), min_size=1, max_size=9)
)
def test_nothing_of_the_hosts_is_called(value: list[Any]) -> None:
    ran.clear()
    pickled._pickled(value)
    captured([[value] * 9] * 9, Limits())
    assert ran == []


DECLINED: dict[str, Callable[[], Any]] = {
    "long text": lambda: [{"content": "x" * (1 << 16)}] * 9,
    "other script": lambda: [{"content": "ü" * (1 << 16)}] * 9,
    "bytes": lambda: [{"content": b"x" * (1 << 16)}] * 9,
    "huge text": lambda: [{"a": "x" * 60_000}, {"b": "y" * 300_000_000}],
    "huge text behind a frame": lambda: ["x" * 65_535, "y" * 300_000_000],
    "long texts": lambda: [{"content": str(n) * 10_000} for n in range(9, 130)],
    "many texts": lambda: [{"content": str(n) * 500} for n in range(1_000, 2_000)],
    "numbers": lambda: [[number / 3 for number in range(200_000)]],
    "many numbers": lambda: [list(range(20_000_000))],
}
"""Made by the test: a gigabyte that the whole session would carry through each collection and each fork."""


@pytest.mark.parametrize("kind", DECLINED)
def test_what_is_large_is_given_up_before_it_is_copied(kind: str) -> None:
    value = DECLINED[kind]()
    began = time.thread_time()
    assert pickled._pickled(value) is None
    assert time.thread_time() - began < 0.05


def test_encodings_of_several_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "LONGEST_NS", 10**9)
    value = [{"content": f"{n} " * 200} for n in range(900)]
    found = encoded(value)
    assert len(found.chunks) > 2 and found.size == sum(map(len, found.chunks)) < MAX_PICKLED
    assert found.load() == value
    for length in range(65_500, 65_536):  # with what follows right behind a frame, or in it
        for rest in ([], [1], ["x"], [[]], ["x" * 30_000]):
            value = [*map(str, range(80)), "x" * length, *rest]
            assert encoded(value).load() == value


def test_nesting_that_is_too_deep_is_declined() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert pickled._pickled(deep) is None
    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(1_000_000)  # would exhaust the stack
        assert pickled._pickled(deep) is None
    finally:
        sys.setrecursionlimit(before)
    both = Ways()
    assert both.copied(deep) == both.copied(deep[0])
    while deep:  # frees it level by level
        deep = deep.pop()


def test_many_frozen_sets_are_declined() -> None:
    """CPython's fast mode loses count of them, and raises a KeyError behind 50."""
    value = [[{frozenset({number})} for number in range(80)] for _ in range(3)]
    assert pickled._pickled(value) is None


def test_what_was_declined_is_copied_for_a_while() -> None:
    limits, value = Limits(), [*history(9), Data(1)]
    assert type(captured(value, limits)) is list
    for _ in range(WALKS):
        assert type(captured(history(9), limits)) is list
    assert type(captured(history(9), limits)) is Pickled


@pytest.mark.parametrize(
    "value",
    [[1, 2], [{"a": 1}], {"a": [1]}, {"a": "x" * 600}, list(range(1_000)), {"ids": list(range(1_000))}, history(257),
     "text", None, [list(range(1_000))] * 9, Data(1), ["x" * 600] * 9],
)  # fmt: skip
def test_what_is_small_or_will_be_cut_is_not_encoded(value: Any) -> None:
    assert captured(value, Limits()) == snapshot(value, Limits())


@pytest.mark.parametrize(
    "value",
    [history(8), tuple(history(200)), {"messages": history(20)}, [history(20)], {"a": {str(n): [n] for n in range(9)}}],
)
def test_what_is_nested_is_encoded(value: Any) -> None:
    limits = Limits()
    found = captured(value, limits)
    assert type(found) is Pickled and found.load() == value
    assert limits.take_weight() >= found.size


def test_an_encoding_is_charged_with_its_size() -> None:
    found = encoded(history(50))
    assert weigh(found) == found.size > LARGE
    assert without_large([found, 1]) == (NOT_KEPT, 1)


def test_arguments_and_results_are_recorded_as_they_were(recorder: Recorder) -> None:
    def chat(messages: Any, *, tools: Any = None) -> Any:
        messages[0]["content"] = "changed"
        return [{"messages": messages[:20]}] * 9

    messages = history(30)
    recorder.wrap(chat)(messages, tools=history(9))
    opened, closed = recorder.records(Open)[-1], recorder.records(Close)[-1]
    assert opened.inputs == {"messages": history(30), "tools": history(9)}
    assert len(closed.output) == 9 and closed.output[0]["messages"][0]["content"] == "changed"
    assert not faults.counts


def test_secrets_of_remembered_messages_are_hidden(recorder: Recorder) -> None:
    def chat(messages: Any) -> None: ...

    traced = recorder.wrap(chat)
    messages = [*history(20), {"role": "tool", "content": "key sk-abcdefghijklmnopqrstuvwx1", "password": "hunter2"}]
    for _ in range(3):
        traced(messages)
    for opened in recorder.records(Open)[-3:]:
        last = opened.inputs["messages"][-1]
        assert last == {"role": "tool", "content": "key <redacted>", "password": "<redacted>"}


def test_a_value_that_nobody_read_back_is_not_written() -> None:
    found = encoded([{"password": "hunter2hunter2"}] * 2)
    for value in ([found], {"a": found}):
        cleaned = Redactor(Settings()).clean("x", value)
        assert b"hunter2" not in msgspec.msgpack.encode(cleaned, enc_hook=lambda _: None)


def test_secrets_in_further_positional_arguments_are_hidden(recorder: Recorder) -> None:
    def chat(first: Any, *rest: Any) -> None: ...

    messages = [{"role": "user", "password": "hunter2hunter2"}] * 9
    recorder.wrap(chat)(messages, messages, [messages])
    hidden = [{"role": "user", "password": "<redacted>"}] * 9
    assert recorder.records(Open)[-1].inputs == {"first": hidden, "rest": [hidden, [hidden]]}


def test_what_a_hook_redacts_is_redacted(recorder: Recorder) -> None:
    def chat(messages: Any) -> None: ...

    recorder.use(Settings(redact_hook=f"{__name__}:without_content"))
    recorder.wrap(chat)(history(20))
    assert recorder.records(Open)[-1].inputs == {"messages": ["no content"] * 20}


def without_content(name: str, value: Any) -> Any:
    return ["no content" for _ in value] if name == "messages" else value


def test_memory_of_remembered_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotrace.record.conversations.MAX_REMEMBERED", 20_000)
    both = Ways()
    for number in range(200):
        value = [{"content": f"{number} {n} " * 10} for n in range(9)]
        assert both.encoded(value) == both.copied(value)
        held = [*both.conversations._newest, *both.conversations._older]
        assert sum(map(len, held)) < 50_000
    assert both.conversations._older


class Exceeded(Exception):
    pass


def test_a_timeout_while_a_value_is_encoded_reaches_the_host(recorder: Recorder) -> None:
    def chat(messages: Any) -> None: ...

    def alarm(*_: Any) -> None:
        raise Exceeded

    traced = recorder.wrap(chat)
    messages = [{"content": f"{n} " * 300} for n in range(256)]  # several frames: our ``write`` runs
    before = signal.signal(signal.SIGALRM, alarm)
    arrived = fired = 0
    gc.disable()  # whatever is raised in a callback of the collector is lost
    try:
        for attempt in range(200):
            fired += 1
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00002 + 0.000005 * (attempt % 50))
                traced(messages)
                time.sleep(1)
            except Exceeded:
                arrived += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    assert arrived == fired
    opened = {record.span for record in recorder.records(Open)}
    left = opened - {record.span for record in recorder.records(Close)}
    assert len(left) <= (0 if sys.version_info >= (3, 11) else fired // 20), "see BETWEEN of test_origin.py"


def test_a_list_that_another_thread_changes_is_recorded_or_declined(recorder: Recorder) -> None:
    def chat(messages: Any) -> None: ...

    traced, done = recorder.wrap(chat), threading.Event()
    shared: dict[str, Any] = {"messages": history(100)}

    def change() -> None:
        number = 0
        while not done.is_set():
            number += 1
            shared[str(number)] = "x" * 50_000
            shared.pop(str(number - 3), None)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(60):
            traced([shared] * 9)
            traced(shared)
    finally:
        done.set()
        thread.join()
    assert len(recorder.records(Open)) == 120
