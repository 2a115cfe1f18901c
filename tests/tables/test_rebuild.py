"""The tables lose nothing: a trajectory that is assembled, written and rebuilt is equal to what was assembled."""

from __future__ import annotations

import dataclasses
import math
import struct
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from autotrace.config.plan import Settings
from autotrace.redact.redactor import Redactor
from autotrace.ship.assembly.conversation import ConversationDecoder
from autotrace.ship.readers import of_run
from autotrace.spool.token_facts import MASK, NUMBERS, SUMMARY, pack_summary
from autotrace.tables.rebuild import rebuilt
from autotrace.trajectory.model import Span, Trajectory
from tests.cases import examples
from tests.run_folder import recorded
from tests.ship.assembly.test_conversation import SECRET, Decode, assembled, filled, ids
from tests.ship.assembly.test_conversation import recorded as calls_recorded
from tests.ship.spools import Process, attributes, new_run
from tests.sinks.rollouts import group
from tests.tables import reading

BYTES = st.binary(max_size=6)
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
"""What a host program's values may be, as msgpack carries them."""
TOKENS = st.lists(st.integers(0, 255), max_size=12)


def fields(trajectory: Trajectory) -> dict[str, Any]:
    """Everything that is known of it; numbers that are not finite as their bytes."""
    made = {field.name: getattr(trajectory, field.name) for field in dataclasses.fields(trajectory)}
    made["spans"] = [
        {field.name: plain(getattr(span, field.name)) for field in dataclasses.fields(Span)}
        for span in trajectory.spans
    ]
    return made


def plain(value: Any) -> Any:
    """NaN is not equal to itself."""
    if isinstance(value, list) and any(isinstance(item, float) for item in value):
        return repr(value)
    return value


def check(*trajectories: Trajectory) -> None:
    """They come out of the tables as they went in."""
    made = rebuilt(reading.in_rows(trajectories))
    assert len(made) == len(trajectories)
    for before, after in zip(trajectories, made, strict=True):
        for name, value in fields(before).items():
            assert fields(after)[name] == value, name
    in_lists = {name: table.to_pylist() for name, table in reading.tables(trajectories).items()}
    assert [fields(one) for one in rebuilt(in_lists)] == [fields(one) for one in made], "without pyarrow"
    again = rebuilt(reading.in_rows(made))
    assert [fields(one) for one in again] == [fields(one) for one in made]


def test_what_sinks_are_tested_with() -> None:
    made = group(rewards=(1.0, None, 0.5))
    for one in made:
        one.attributes = {**one.attributes, "sample_index": "17"}
    check(*made)


def test_a_recorded_run_with_and_without_texts(tmp_path: Path) -> None:
    reader = of_run(recorded(tmp_path))
    loaded = [reader.load(row.trace_id, texts=texts) for row in reader.select(roots=True) for texts in (True, False)]
    check(*loaded)
    reader.close()


def folders() -> Iterator[Path]:
    """Run folders of earlier releases, and of every kind of death."""
    for found in sorted(Path(__file__).parents[1].rglob("run.json")):
        if any(found.parent.glob("spool/*.seg")):
            yield found.parent


@pytest.mark.parametrize("folder", [*folders()], ids=lambda folder: folder.name)
def test_run_folders_of_earlier_releases(folder: Path) -> None:
    reader = of_run(folder)
    rows = reader.select(roots=True)
    assert rows
    check(*(reader.load(row.trace_id) for row in rows))
    reader.close()


def fork(shared: list[int]) -> list[tuple[list[int], list[int]]]:
    """Turns that go on from the same answer, one that begins anew, one that keeps a part of the history."""
    first = ids("Question? ")
    return [
        (first, ids("Answer. ")), (first + ids("Answer. "), ids("B.")), (first + ids("Answer. ") + shared, ids("C.")),
        (first[:4] + shared, ids("D.")), (ids("Anew"), []), (first, ids("E")),
    ]  # fmt: skip


@pytest.mark.parametrize("shared", [[], ids("So? "), [200, 201], ids(f"key {SECRET} is")], ids=range(4))
def test_prompts_that_go_on_from_wherever(shared: list[int]) -> None:
    check(filled(fork(shared)))
    bare = assembled(calls_recorded(fork(shared)))
    check(bare)
    check(filled([(ids("Alone"), [])]))
    check(filled([(ids("ab"), ids("cd")), (ids("abcd") + shared, ids("ef")), (ids("abcd") + shared + ids("ef"), [])]))


def test_a_thousand_turns() -> None:
    calls, before = [], ids("Begin. ")
    for number in range(1_000):
        calls.append((before, ids(f"{number} ")))
        before = before + ids(f"{number} go on. ")
    made = filled(calls)
    (after,) = rebuilt(reading.in_rows([made]))
    first, last = made.llm_spans[-1], after.llm_spans[-1]
    assert (last.prompt_ids, last.prompt_text) == (first.prompt_ids, first.prompt_text)


def test_a_secret_that_two_turns_spell_together() -> None:
    half = len(SECRET) // 2
    first, second = ids(SECRET[:half]), ids(SECRET[half:])
    made = filled([(ids("key "), first), (ids("key ") + first + second, ids("thanks"))])
    assert SECRET not in str(made)
    check(made)


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)  # what it makes is small: to shrink it takes minutes
@given(st.data())
def test_anything_that_a_host_may_record(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    run = new_run(tmp_path_factory.mktemp("rebuild"))
    process, other = Process(run), Process(run, "node-2-bb")
    traces = [bytes([number]) * 16 for number in range(3)]
    made = [data.draw(tree(process, other, trace)) for trace in traces]
    process.token_facts(columns(data.draw(st.integers(0, 9))), {"uid": "u0", "session_id": "0"})
    for trace in traces:
        process.fact(data.draw(st.text(max_size=5)), data.draw(ODD), trace)
        process.fact("reward", data.draw(ODD), trace)
    process.exit()
    other.die()
    reader = of_run(run)
    loaded = [reader.load(row.trace_id) for row in reader.select(roots=True)]
    assert len(loaded) == len(made)
    check(*loaded)
    for one in loaded:
        ConversationDecoder(one, Decode(), Redactor(Settings(max_string=1 << 40))).fill()
    check(*loaded)
    reader.close()


def columns(count: int) -> dict[str, bytes]:
    """What a trainer computed for so many tokens, not finite values among them."""
    if not count:
        return {SUMMARY: pack_summary([math.nan] * len(NUMBERS))}
    values = [-0.5] * (count - 1) + [math.nan]
    packed = {name: struct.pack(f"<{count}e", *values) for name in ("old_log_probs", "entropy")}
    return {SUMMARY: pack_summary([1.0] * len(NUMBERS)), MASK: bytes([1] * count), **packed}


@st.composite
def tree(draw: Callable[..., Any], process: Process, other: Process, trace: bytes) -> int:
    """A trajectory, or a trace that is none, of up to eight calls in two processes; how many."""
    roles = st.sampled_from(["agent", "llm", "engine", "tool", "reward", "parser", "span", "trainer"])
    root_role = draw(st.sampled_from(["trajectory", "trajectory", "agent", "trainer", "engine", "llm"]))
    values = st.dictionaries(st.sampled_from("abcde"), ODD, max_size=3)
    root = process.open(trace, root_role, attributes=attributes(uid=f"u{trace[0]}", **draw(values)))
    spans, text = [root], [*b"Hello"]
    for _ in range(draw(st.integers(0, 7))):
        role, writer = draw(roles), draw(st.sampled_from([process, process, other]))
        parent = draw(st.sampled_from(spans))
        asked = role in ("llm", "engine", "agent") and draw(st.booleans())
        if asked:
            text = text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text
            text = text + draw(TOKENS)
        prompt = {"prompt": list(text)} if asked and text else {}
        span = writer.open(trace, role, parent, **prompt, inputs=draw(values), attributes=draw(values))
        spans.append(span)
        ending = draw(st.sampled_from(["OK", "OK", "ERROR", "open"]))
        if ending == "open":
            continue
        answer = draw(TOKENS) if prompt else None
        more: dict[str, Any] = {"output": draw(ODD), "attributes": draw(values)}
        if answer:
            text = text + answer
            more["logprobs"] = array("f", draw(st.lists(st.floats(width=32), min_size=1, max_size=4))).tobytes()
        if draw(st.booleans()):
            more["mask"] = bytes(draw(st.lists(st.integers(0, 1), max_size=5)))
        if ending == "ERROR":
            more["error"] = tuple(draw(st.text(max_size=5)) for _ in range(3))
        if draw(st.booleans()):
            more |= {"items": draw(st.integers(0, 9)), "first_item_at": draw(st.integers(0, 99))}
        writer.close(trace, span, answer, ending, **more)
    if draw(st.booleans()):
        process.close(trace, root, output=draw(ODD))
    return len(spans)
