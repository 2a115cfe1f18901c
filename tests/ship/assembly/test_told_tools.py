"""Calls of tools that the messages of a conversation tell."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.ship.assembly.message_parts import with_told_tools
from autotrace.spool.records import CONVERSATION
from autotrace.trajectory.model import Span
from tests.ship.assembly.test_conversation import assembled, recorded

Message = dict[str, Any]
PICTURE = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa"}}]


def asks(id: str, arguments: Any) -> Message:
    return {"role": "assistant", "tool_calls": [{"id": id, "function": {"name": "add", "arguments": arguments}}]}


def told(*turns: list[Message]) -> list[tuple[str, dict[str, Any], Any, int, int]]:
    root = Span("0" * 16, None, "conversation", "trajectory", CONVERSATION, 0, 1000, "OK")
    spans = [root]
    for number, messages in enumerate(turns, 1):
        at = 100 * number
        spans.append(Span(f"{number:016x}", root.span_id, "create", "llm", "k", at, at + 50, "OK", messages=messages))
    made = with_told_tools(spans)
    assert len({span.span_id for span in made}) == len(made) and made[0] is root
    return [(one.name, one.inputs, one.output, one.start_ns, one.end_ns or 0) for one in made if one.role == "tool"]


def test_a_call_lasts_from_the_turn_that_asked_for_it_to_the_one_that_was_told() -> None:
    first = [{"role": "user", "content": PICTURE}, asks("1", '{"a": 2}')]
    second = [*first, {"role": "tool", "tool_call_id": "1", "content": PICTURE}, {"role": "assistant", "content": "so"}]
    assert told(first, second) == [("add", {"a": 2}, PICTURE, 150, 200)]


def test_an_answer_that_is_shortened_later_is_no_other_call() -> None:
    first = [{"role": "user", "content": "q"}, asks("1", "{}")]
    answer = {"role": "tool", "tool_call_id": "1", "content": "long " * 100}
    second = [*first, answer, asks("2", "{}")]
    third = [*first, {**answer, "content": "[elided]"}, asks("2", "{}"), {"role": "tool", "tool_call_id": "2"}]
    assert [(output, start) for _, _, output, start, _ in told(first, second, third)] == [
        ("long " * 100, 150), (None, 250),
    ]  # fmt: skip


def test_ids_that_are_given_again_and_answers_to_nothing() -> None:
    first = [{"role": "user", "content": "q"}, asks("1", "{")]
    second = [*first, {"role": "tool", "tool_call_id": "1", "content": "a"}, asks("1", None)]
    third = [*second, {"role": "tool", "tool_call_id": "1", "content": "a"}, {"role": "tool", "content": 7}]
    assert [(name, inputs, output) for name, inputs, output, _, _ in told(first, second, third)] == [
        ("add", {"arguments": "{"}, "a"), ("add", {}, "a"), ("tool", {}, 7),
    ]  # fmt: skip


def test_contents_that_cannot_be_read_cost_their_trajectory_that_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(_: object) -> None:
        raise AttributeError("a form that nobody thought of")

    monkeypatch.setattr("autotrace.ship.assembly.assembler.read_llm_calls", raising)
    one = assembled(recorded([([1, 2], [3]), ([1, 2, 3, 4], [5])]))
    assert [span.response_ids for span in one.llm_spans] == [[3], [5]]
    assert one.notes == ["its contents could not be read whole; please report it"]
