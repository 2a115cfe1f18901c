"""What a call leaves behind: open and close, nesting, statuses, facts, sampling."""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import contextlib
import gc
import os
import sys
import time
import weakref
from collections.abc import Mapping
from email.message import Message
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import greenlet
import pydantic
import pytest
import typer

from autotrace.record import calls, context, faults, sampling
from autotrace.record.context import OpenCall
from autotrace.record.follower import Follower
from autotrace.run.losses import losses
from autotrace.spool.records import Close, Define, Fact, Open

from .conftest import Recorder


def test_a_span_is_written_when_it_opens_and_when_it_closes(recorder: Recorder) -> None:
    seen: list[int] = []

    def search(query: str, limit: int = 3) -> dict[str, Any]:
        seen.append(len(recorder.records(Close)))
        assert [record.inputs for record in recorder.records(Open)] == [{"query": "cats", "limit": 2}]
        return {"hits": [1, 2]}

    assert recorder.wrap(search)("cats", limit=2) == {"hits": [1, 2]}
    (close,) = recorder.records(Close)
    assert seen == [0] and close.status == "OK" and close.output == {"hits": [1, 2]}
    assert close.at >= recorder.records(Open)[0].at


def test_what_is_captured_stands_in_the_order_of_the_list(recorder: Recorder) -> None:
    def run(sampling_params: dict[str, Any], *, limit: int = 3, **row: Any) -> None: ...

    recorder.wrap(run, include=("raw_prompt", "limit", "sampling_params", "gone"))(
        {"top_p": 1}, raw_prompt="2+2?", limit=2
    )
    (call,) = recorder.records(Open)
    assert [*call.inputs.items()] == [("raw_prompt", "2+2?"), ("limit", 2), ("sampling_params", {"top_p": 1})]


async def test_children_of_concurrent_trajectories_do_not_mix(recorder: Recorder) -> None:
    async def tool(number: int) -> int:
        await asyncio.sleep(0.001 * (number % 3))
        return number

    traced = recorder.wrap(tool, role="tool", key="tool")

    async def rollout(number: int) -> list[int]:
        return [await traced(number), *await asyncio.gather(traced(number), traced(number))]

    root = recorder.wrap(rollout, role="trajectory", key="rollout", attributes={"step": ("number",)})
    await asyncio.gather(*(root(number) for number in range(64)))
    opens = recorder.records(Open)
    roots = {record.trace: record for record in opens if record.parent == 0}
    assert len(roots) == 64 and len(opens) == 64 * 4
    for record in opens:
        if record.parent:
            assert record.parent == roots[record.trace].span
            assert record.inputs["number"] == roots[record.trace].attributes["step"]


def test_what_a_full_stack_leaves_no_room_to_copy_is_told_and_no_failure(recorder: Recorder) -> None:
    def descend(value: Any) -> None:
        again(value)

    again = recorder.wrap(descend)
    with pytest.raises(RecursionError):
        again([SimpleNamespace(nested=[[[[SimpleNamespace()]]]])])
    assert {"drop:stack": faults.counts.get("drop:stack", 0)} == faults.counts and faults.counts["drop:stack"] > 0
    assert losses({"drop:stack": 1}) == ["1 call without arguments or results: the program's stack was full"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("bad"), "ERROR"),
        (TimeoutError(), "TIMEOUT"),
        (asyncio.TimeoutError(), "TIMEOUT"),
        (asyncio.CancelledError(), "CANCELLED"),
        (concurrent.futures.CancelledError(), "CANCELLED"),
        (greenlet.GreenletExit(), "CANCELLED"),
        (KeyboardInterrupt(), "INTERRUPTED"),
        (SystemExit(3), "ERROR"),
        (SystemExit("no"), "ERROR"),
        (typer.Exit(2), "ERROR"),
    ],
)
async def test_each_way_to_end_has_its_status(recorder: Recorder, error: BaseException, status: str) -> None:
    async def fails() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await recorder.wrap(fails)()
    assert caught.value is error
    (close,) = recorder.records(Close)
    assert close.status == status and close.error[0].endswith(type(error).__name__)
    assert "test_calls.py" in close.error[2]


async def test_a_timeout_from_outside_cancels_the_inner_span(recorder: Recorder) -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    traced = recorder.wrap(hangs, key="inner")

    async def bounded() -> None:
        await asyncio.wait_for(traced(), 0.01)

    with pytest.raises(asyncio.TimeoutError):
        await recorder.wrap(bounded, key="outer")()
    assert [record.status for record in recorder.records(Close)] == ["CANCELLED", "TIMEOUT"]


def test_super_is_recorded_once_and_recursion_every_time(recorder: Recorder) -> None:
    class Base:
        def run(self, depth: int) -> int:
            return depth

    class Mine(Base):
        def run(self, depth: int) -> int:
            return super().run(depth) if depth == 0 else self.run(depth - 1)

    Base.run = recorder.wrap(Base.run, key="run", subclasses=True)  # type: ignore[method-assign]
    Mine.run = recorder.wrap(Mine.run, key="run", subclasses=True)  # type: ignore[method-assign]
    Mine().run(2)
    assert [recorder.names()[record.target].split(".")[-2] for record in recorder.records(Open)] == ["Mine"] * 3


def test_facts_and_late_attributes_are_read_when_the_call_ends(recorder: Recorder) -> None:
    def score(outputs: list[Any]) -> SimpleNamespace:
        outputs[-1].reward = 0.5
        return SimpleNamespace(version=7)

    traced = recorder.wrap(
        score,
        role="reward",
        attributes={"weight_version": ("result.version",), "missing": ("result.nothing.at.all",)},
        facts={"reward": ("outputs.-1.reward",)},
    )
    traced([SimpleNamespace(reward=None)])
    (fact,) = recorder.records(Fact)
    (close,) = recorder.records(Close)
    assert (fact.name, fact.value, fact.trace) == ("reward", 0.5, close.trace)
    assert close.attributes == {"weight_version": 7}


def test_an_unsampled_trajectory_records_nothing_below_it(recorder: Recorder) -> None:
    calls.decide = sampling.decision({"rate": 0.5, "seed": 1})

    def tool() -> None: ...

    traced = recorder.wrap(tool, key="tool")

    def rollout(uid: str) -> None:
        traced()

    root = recorder.wrap(rollout, role="trajectory", key="rollout", attributes={"uid": ("uid",)})
    for number in range(200):
        for _ in range(2):  # both rollouts of a group are decided alike
            root(f"uid-{number}")
    opens = recorder.records(Open)
    roots = [record.attributes["uid"] for record in opens if record.parent == 0]
    assert len(opens) == 2 * len(roots) and 60 < len(set(roots)) < 140
    assert all(roots.count(uid) == 2 for uid in roots)
    assert context.current.get() is None


def test_arguments_do_not_outlive_their_call(recorder: Recorder) -> None:
    class Big: ...

    def takes(big: Any) -> None: ...

    traced = recorder.wrap(takes, attributes={"kind": ("big.kind",)}, facts={"seen": ("big.seen",)})
    big = Big()
    alive = weakref.ref(big)
    gc.disable()
    try:
        traced(big)
        del big
        assert alive() is None
    finally:
        gc.enable()


def test_a_carrier_makes_a_span_of_another_process_the_parent(recorder: Recorder) -> None:
    def call() -> bytes | None:
        return context.current_carrier()

    carrier = recorder.wrap(call, key="client")()

    def serve() -> None: ...

    with context.attach(carrier):
        recorder.wrap(serve, key="server")()
    client, server = recorder.records(Open)
    assert (server.trace, server.parent) == (client.trace, client.span)
    with context.attach(b"nonsense"):
        assert context.current.get() is None


def test_a_forked_child_writes_its_own_segment_and_leaves_its_parents_spans_open(recorder: Recorder) -> None:
    from autotrace.patch import engine

    def inside() -> None: ...

    traced = recorder.wrap(inside, key="inside")

    def outer() -> int:
        child = os.fork()
        if child == 0:
            engine._after_fork_in_child()
            traced()
            return 0
        os.waitpid(child, 0)
        return child

    child = recorder.wrap(outer, key="outer")()
    if child == 0:
        from autotrace.record import flusher

        flusher.shutdown()
        os._exit(0)
    opens = recorder.records(Open)
    defined = [record.name.rsplit(".")[-1] for record in recorder.records(Define)]
    assert sorted(defined) == ["inside", "outer"] and len(opens) == 2
    assert len(recorder.records(Close)) == 2
    assert len({record.span for record in opens}) == 2
    assert len(list((recorder.folder / "spool").glob("*.seg"))) == 2


def test_failures_of_ours_are_counted_and_switch_the_target_off(recorder: Recorder, monkeypatch: Any) -> None:
    def works(value: int) -> int:
        return value + 1

    traced = recorder.wrap(works)
    probe = calls.probes[works.__qualname__]
    given_up: list[str] = []
    probe.on_fault = lambda probe: given_up.append(probe.key)
    monkeypatch.setattr("autotrace.record.ids.next_span_id", lambda: 1 / 0)
    assert [traced(number) for number in range(20)] == list(range(1, 21))
    assert probe.is_off and given_up == [probe.key]
    assert faults.counts[f"fault:begin:{probe.key}"] == 10


def test_a_call_that_autotrace_could_not_begin_is_no_failure_of_the_host(recorder: Recorder, monkeypatch: Any) -> None:
    def works(name: str) -> str:
        return name

    def broken(*_: Any) -> None:
        raise ValueError("ours")

    monkeypatch.setattr("autotrace.record.trajectory_ids.name", broken)
    assert recorder.wrap(works, role="trajectory", id=("name",))("a") == "a"
    (closed,) = recorder.records(Close)
    assert closed.status == "INTERRUPTED" and closed.error[0].endswith("NotRecorded")
    assert faults.counts[f"fault:begin:{works.__qualname__}"] == 1


@pytest.mark.parametrize(
    ("include", "inputs", "output"),
    [
        (("a.text", "b.text"), {"a.text": "x", "b.text": "y"}, None),
        (("a.text", "result.text"), {"a.text": "x"}, "z"),
        (("result.text", "result.other.text"), None, {"result.text": "z", "result.other.text": "w"}),
        (("result", "result.text"), None, {"text": "z", "other": {"text": "w"}}),
        (("b.text", "a.size"), {"text": "y", "size": 1}, None),
    ],
)
def test_captured_parts_with_one_last_word_are_named_by_their_paths(
    recorder: Recorder, include: tuple[str, ...], inputs: Any, output: Any
) -> None:
    def join(a: Any, b: Any) -> Any:
        return {"text": "z", "other": {"text": "w"}}

    recorder.wrap(join, include=include)({"text": "x", "size": 1}, {"text": "y"})
    (opened,), (closed,) = recorder.records(Open), recorder.records(Close)
    assert (opened.inputs or None) == inputs and closed.output == output


def test_no_way_to_the_prompts_tokens_is_captured(recorder: Recorder) -> None:
    def generate(prompt_ids: Any = None, input_ids: Any = None) -> str:
        return "a"

    recorder.wrap(generate, role="llm", tokens={"prompt": ("prompt_ids", "input_ids")})(input_ids=[1, 2])
    (opened,) = recorder.records(Open)
    assert "input_ids" not in (opened.inputs or {})


def test_a_closed_generator_is_cancelled_and_a_final_item_is_success(recorder: Recorder) -> None:
    def stream() -> Any:
        for number in range(10):
            yield {"number": number, "finish_reason": "stop" if number == 2 else None}

    plain = recorder.wrap(stream, key="plain")()
    next(plain)
    plain.close()
    finished = recorder.wrap(stream, key="final", final=("item.finish_reason",))()
    for _ in range(3):
        next(finished)
    (first, second) = recorder.records(Close)
    assert (first.status, second.status, second.items) == ("CANCELLED", "OK", 3)
    with contextlib.suppress(StopIteration):
        finished.close()
    assert len(recorder.records(Close)) == 2


def test_numbers_and_texts_that_no_encoder_takes_do_not_lose_the_call(recorder: Recorder) -> None:
    def echo(value: Any) -> Any:
        return value

    traced = recorder.wrap(echo)
    for value in (2**64, -(2**63) - 1, [1 << 5_000], {"half": "\ud83d"}, {10**30: 1}):
        assert traced(value) == value
    outputs = [record.output for record in recorder.records(Close)]
    assert outputs == [
        str(2**64), str(-(2**63) - 1), [{"…": "int of 5001 bits"}], {"half": "?"}, {str(10**30): 1},
    ]  # fmt: skip
    assert not [reason for reason in faults.counts if reason.startswith("fault:")]


def test_failures_that_are_not_in_a_row_switch_nothing_off(recorder: Recorder, monkeypatch: Any) -> None:
    def works(value: int) -> int:
        return value

    traced = recorder.wrap(works)
    for _ in range(30):
        with monkeypatch.context() as broken:
            broken.setattr("autotrace.record.ids.next_span_id", lambda: 1 / 0)
            traced(1)
        traced(2)
    assert not calls.probes[works.__qualname__].is_off
    assert faults.counts[f"fault:begin:{works.__qualname__}"] == 30 and len(recorder.records(Open)) == 30


class Lazy:
    """A proxy whose ``__class__`` is code of the user's, as that of a lazily loaded object."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("not loaded")


class Unreadable(list[int]):
    """A list that raises when it is read."""

    def __getitem__(self, place: Any) -> Any:
        raise RuntimeError("closed")


def test_user_code_in_a_value_costs_no_span(recorder: Recorder) -> None:
    def echo(value: Any, other: Any = None) -> Any:
        return value

    traced = recorder.wrap(echo)
    for _ in range(20):
        lazy = Lazy()
        assert traced(lazy, other=3) is lazy
    opens = recorder.records(Open)
    assert len(opens) == 20 and not calls.probes[echo.__qualname__].is_off
    assert opens[0].inputs == {"value": {"…": f"{__name__}.Lazy"}, "other": 3}
    assert not [reason for reason in faults.counts if reason.startswith("fault:")]


def test_a_list_whose_methods_raise_is_read_without_them(recorder: Recorder) -> None:
    traced = recorder.wrap(lambda value: value)
    traced(Unreadable([1]))
    assert list(recorder.records(Open)[0].inputs.values()) == [[1]]
    assert recorder.records(Close)[0].output == [1] and not faults.counts


async def test_a_copy_that_fails_costs_the_copy_and_no_time(recorder: Recorder, monkeypatch: Any) -> None:
    def fails(*_: Any) -> None:
        raise TypeError("no copy")

    monkeypatch.setattr("autotrace.record.snapshot._Copier.object", fails)

    async def echo(value: Any) -> Any:
        await asyncio.sleep(0.01)
        return value

    traced = recorder.wrap(echo, attributes={"kept": ("value",)})
    for _ in range(20):
        await traced(Unreadable([1]))
    opens, closes = recorder.records(Open), recorder.records(Close)
    assert len(opens) == len(closes) == 20 and not calls.probes[echo.__qualname__].is_off
    assert opens[0].inputs == closes[0].output == opens[0].attributes["kept"] == {"…": "could not be copied"}
    assert closes[0].status == "OK" and closes[0].at - opens[0].at > 5_000_000
    assert faults.counts[f"fault:copy:{echo.__qualname__}"] == 60


def test_a_result_that_cannot_be_looked_at_does_not_end_at_once(recorder: Recorder, monkeypatch: Any) -> None:
    def waits() -> int:
        time.sleep(0.01)
        return 1

    traced = recorder.wrap(waits, attributes={"late": ("result",)})
    monkeypatch.setattr("autotrace.record.capture.CapturedValues.read", lambda *_: 1 / 0)
    traced()
    (opened,), (closed,) = recorder.records(Open), recorder.records(Close)
    assert closed.at - opened.at > 5_000_000 and faults.counts[f"fault:end:{waits.__qualname__}"] == 1


class Speaks(Exception):
    """Asked for its text, it would take its time."""

    asked = 0

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code

    def __str__(self) -> str:
        Speaks.asked += 1
        return "asked"

    __repr__ = __str__


def test_an_error_is_not_asked_what_it_says(recorder: Recorder) -> None:
    def fails() -> None:
        raise Speaks(7)

    with pytest.raises(Speaks):
        recorder.wrap(fails)()
    (closed,) = recorder.records(Close)
    assert closed.error[1] == "{'code': 7}" and Speaks.asked == 0


def test_an_error_of_pydantics_keeps_what_it_found(recorder: Recorder) -> None:
    class Value:
        asked = 0

        def __repr__(self) -> str:
            Value.asked += 1
            return "value"

    model = pydantic.create_model("Tool", number=(int, ...))
    with pytest.raises(pydantic.ValidationError):
        recorder.wrap(lambda: model(number=Value()), key="made")()
    (closed,) = recorder.records(Close)
    assert "validation errors for Tool" in closed.error[1] and "number: " in closed.error[1] and Value.asked == 0


def test_an_exception_group_says_what_is_in_it(recorder: Recorder) -> None:
    class Group(Exception):
        """As the package ``exceptiongroup`` has one, for Python 3.10."""

        def __init__(self, message: str, exceptions: list[Exception]) -> None:
            self._message, self._exceptions = message, tuple(exceptions)

        def __str__(self) -> str:
            raise AssertionError("the host's code")

    class Refused(Exception):
        """An error of the host's."""

    def fail(kind: Any, members: list[Exception]) -> None:
        raise kind("several", members)

    deep: Any = ValueError("deep")
    hostile: Any = ValueError("hostile")
    traced = recorder.wrap(fail)
    kinds = [Group, *([vars(builtins)["ExceptionGroup"]] if sys.version_info >= (3, 11) else [])]
    for kind in kinds:
        for _ in range(1_000):
            deep = kind("deeper", [deep])
        for _ in range(8):
            hostile = kind("wide", [hostile] * 16)
        inner = kind("inner", [KeyError("k"), Refused(1, "two")])
        for members in ([inner, ValueError("x")], [ValueError(str(n)) for n in range(20)], [deep], [hostile]):
            with pytest.raises(kind):
                traced(kind, members)
    messages = [close.error[1] for close in recorder.records(Close)]
    assert len(messages) == 4 * len(kinds)
    for number in range(0, len(messages), 4):
        short, long, nested, wide = messages[number : number + 4]
        name = "Group" if number == 0 else "ExceptionGroup"
        title = f"{__name__}.test_an_exception_group_says_what_is_in_it.<locals>."
        said = short.replace(title, "").splitlines()
        assert [line.replace(f"{__name__}.", "") for line in said] == [
            "several (2 sub-exceptions)",
            f"  {name}: inner (2 sub-exceptions)",
            "    KeyError: k",
            "    Refused: 1, two",
            "  ValueError: x",
        ]
        assert long.splitlines()[-2:] == ["  ValueError: 15", "  4 more"]
        assert len(nested.splitlines()) == 8 and len(wide.splitlines()) == 64


def test_an_error_without_arguments_keeps_what_it_stores(recorder: Recorder) -> None:
    errors = [
        HTTPError("http://x", 404, "Not Found", Message(), None),
        ValueError("bad"),
        RuntimeError(),
        TimeoutError(),
    ]

    def fails(number: int) -> None:
        raise errors[number]

    traced = recorder.wrap(fails)
    for number, error in enumerate(errors):
        with pytest.raises(type(error)):
            traced(number)
    assert [record.error[1] for record in recorder.records(Close)] == ["HTTP Error 404: Not Found", "bad", "", ""]


class FailsToOpen(Follower):
    """A follower that would keep the call open, if it knew of it."""

    def opened(self, call: OpenCall, arguments: Mapping[str, Any]) -> None:
        raise KeyError("not what it was in the last release")

    def holds(self, call: OpenCall, result: Any) -> bool:
        return True


def test_a_call_whose_follower_fails_ends_as_any_other(recorder: Recorder) -> None:
    traced = recorder.wrap(lambda x: x, key="followed")
    calls.probes["followed"].follower = FailsToOpen()
    assert traced(1) == 1
    assert [close.status for close in recorder.records(Close)] == ["OK"]
    assert len(recorder.records(Open)) == 1
    assert faults.counts.pop("fault:follow:followed") == 1


def test_a_tool_that_nothing_names_is_called_as_its_object_is(recorder: Recorder) -> None:
    looked: list[str] = []

    class Tool:
        def __init__(self, name: str | None = None) -> None:
            if name is not None:
                self.name = name

    class Named(Tool):
        name = "of the class"

    class Computed(Tool):
        @property
        def name(self) -> str:  # type: ignore[override]
            looked.append("name")
            return "computed"

    def run(self: Any) -> None: ...

    for target in ({"role": "tool"}, {"role": "span"}, {"role": "tool", "attributes": {"tool_name": ("self.kind",)}}):
        traced = recorder.wrap(run, key=str(target), **target)
        for tool in (Tool("search"), Named(), Tool(), Computed()):
            traced(tool)
    attributes = [record.attributes for record in recorder.records(Open)]
    assert attributes == [{"object_name": "search"}, {"object_name": "of the class"}, *[None] * 10]
    assert looked == []


def test_a_result_that_says_that_it_failed_is_an_error(recorder: Recorder) -> None:
    def call_tool(failed: bool) -> Any:
        return {"content": [{"type": "text", "text": "no such file"}, {"type": "image"}], "is_error": failed}

    traced = recorder.wrap(call_tool, role="tool", attributes={"is_error": ("result.is_error",)})
    assert traced(False)["content"] == traced(True)["content"]
    fine, failed = recorder.records(Close)
    assert (fine.status, fine.error, fine.attributes) == ("OK", None, {"is_error": False})
    assert (failed.status, failed.error[0], failed.error[1]) == ("ERROR", "ToolError", "no such file")
    assert failed.output["is_error"] is True, "and is recorded"


def test_a_rollout_that_says_that_it_failed_has_the_error_of_a_call_below_it(recorder: Recorder) -> None:
    def solve() -> Any:
        return {"reason": "error"}

    recorder.wrap(solve, role="trajectory", attributes={"is_error": ("equal(result.reason, 'error')",)})()
    (failed,) = recorder.records(Close)
    assert (failed.status, failed.error) == ("ERROR", None)


def test_a_rollout_that_calls_another_one_of_the_same_object_is_one_trajectory(recorder: Recorder) -> None:
    class Agent:
        def train(self) -> float:
            return 1.0

        def validate(self, other: Any = None) -> float:
            return float((other or self).train())

    for name in ("train", "validate"):
        traced = recorder.wrap(getattr(Agent, name), key=f"agents.{name}", role="trajectory", subclasses=True)
        setattr(Agent, name, traced)
    assert Agent().validate() == 1.0 and len(recorder.records(Open)) == 1
    assert Agent().validate(Agent()) == 1.0 and len(recorder.records(Open)) == 3, "another object's is its own"
