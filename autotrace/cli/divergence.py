"""Where trajectories of one prompt part: the first token that differs, the first tool call that differs.

Pure functions over ``Trajectory``; ``autotrace compare`` prints what they find.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotrace.ship.plain import plain
from autotrace.ship.trajectory import Span, Trajectory


@dataclass(frozen=True)
class Call:
    """One tool call: what the agent asked for and what it was told."""

    turn: int
    """Number of the LLM turn it followed, from 1."""
    name: str
    arguments: str
    result: str
    status: str = "OK"

    def __str__(self) -> str:
        return f"{self.name}({self.arguments})"


@dataclass(frozen=True)
class Divergence:
    """Where two trajectories part. ``here`` and ``there`` are what each has from that place on."""

    turn: int
    """LLM turn, from 1."""
    part: str
    """``prompt``, ``answer`` or ``end`` (one makes no such turn); of calls ``tool``, ``arguments``, ``result``, too."""
    token: int | None
    """Index within the part; None when ids are not known."""
    here: str
    there: str


def parted(one: Trajectory, other: Trajectory) -> Divergence | None:
    """The first token at which ``other`` leaves ``one``; None when they agree to the end."""
    mine, yours = one.llm_spans, other.llm_spans
    for turn, (a, b) in enumerate(zip(mine, yours, strict=False), 1):
        for part, ids, texts in (
            ("prompt", (a.prompt_ids, b.prompt_ids), (a.prompt_text, b.prompt_text)),
            ("answer", (a.response_ids, b.response_ids), (a.response_text, b.response_text)),
        ):
            known = ids[0] is not None and ids[1] is not None
            if (ids[0] == ids[1]) if known else (texts[0] == texts[1]):
                continue
            shared = _shared(ids[0] or (), ids[1] or ())
            letters = _shared(texts[0] or "", texts[1] or "")
            return Divergence(
                turn, part, shared if known else None, (texts[0] or "")[letters:], (texts[1] or "")[letters:]
            )
    if len(mine) == len(yours):
        return None
    turn = min(len(mine), len(yours))
    nexts = [(spans[turn].response_text or "") if len(spans) > turn else "" for spans in (mine, yours)]
    return Divergence(turn + 1, "end", None, *nexts)


def _shared(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items both begin with."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def calls_parted(one: Trajectory, other: Trajectory) -> tuple[int, Divergence] | None:
    """Number (from 1) of the first tool call that differs, and how; None when all agree."""
    mine, yours = calls(one), calls(other)
    for number, (a, b) in enumerate(zip(mine, yours, strict=False), 1):
        for part, here, there in (
            ("tool", a.name, b.name),
            ("arguments", a.arguments, b.arguments),
            ("result", a.result, b.result),
        ):
            if here != there:
                shown = (here, there) if part == "result" else (str(a), str(b))
                return number, Divergence(a.turn, part, None, *shown)
    if len(mine) == len(yours):
        return None
    number = min(len(mine), len(yours))
    longer = (mine if len(mine) > number else yours)[number]
    here, there = (str(longer), "") if len(mine) > number else ("", str(longer))
    return number + 1, Divergence(longer.turn, "end", None, here, there)


def calls(trajectory: Trajectory) -> list[Call]:
    """The tool calls of a trajectory in order; a tool's own method below the agent's call of it is the same call."""
    tools = {span.span_id for span in trajectory.spans if span.role == "tool"}
    turn, found = 0, []
    for span in sorted(trajectory.spans, key=lambda span: span.start_ns):
        if span.role == "llm":
            turn += 1
        elif span.span_id in tools and span.parent_id not in tools:
            found.append(Call(turn, _name(span), _arguments(span), _result(span), span.status))
    return found


def _name(span: Span) -> str:
    called = span.inputs.get("tool_call")
    asked = called.get("name") if isinstance(called, dict) else None
    return str(span.attributes.get("tool_name") or asked or span.name)


def _arguments(span: Span) -> str:
    called = span.inputs.get("tool_call")
    given: Any = called.get("arguments") if isinstance(called, dict) else span.inputs.get("parameters", span.inputs)
    if isinstance(given, str):
        try:  # the same arguments in another order are the same call
            given = json.loads(given)
        except ValueError:
            return str(given)
    if not isinstance(given, dict):
        return _word(given)
    return ", ".join(f"{name}={_word(value)}" for name, value in sorted(given.items(), key=lambda pair: str(pair[0])))


def _result(span: Span) -> str:
    if span.error is not None:
        return f"{span.error[0]}: {span.error[1]}"
    output: Any = span.output
    if isinstance(output, (list, tuple)) and output:
        output = output[0]
    if isinstance(output, dict) and isinstance(output.get("text"), str):
        output = output["text"]
    if isinstance(output, str):
        return output
    return "" if output is None else _word(output)


def _word(value: Any) -> str:
    text: str = json.dumps(plain(value), ensure_ascii=False, sort_keys=True)
    return text


def group(trajectories: Sequence[Trajectory]) -> list[tuple[Divergence | None, tuple[int, Divergence] | None]]:
    """Of each trajectory after the first: where it leaves the first, in tokens and in tool calls."""
    first = trajectories[0]
    return [(parted(first, other), calls_parted(first, other)) for other in trajectories[1:]]
