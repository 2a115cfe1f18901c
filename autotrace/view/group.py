"""Rollouts of one prompt beside each other, and where each leaves the one that they are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from autotrace.tables.conditions import Condition
from autotrace.tables.reader import Reader
from autotrace.trajectory.divergence import UNKNOWN, Divergence, calls, calls_parted, parted
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Trajectory
from autotrace.trajectory.span_text import answer, question, shown_answer
from autotrace.view.detail import FEW_IDS, message_item

MOST = 64
"""Rollouts beside each other."""
AROUND = 200
"""Characters shown of each side where two part."""
NOT_RUN = "not run"
MAX_TEXT = 4000
"""Characters of an answer or a result; the trajectory's own page has all of it."""


def of_ids(reader: Reader, ids: Sequence[str], base: str | None) -> dict[str, Any]:
    """``beside`` for the first ``MOST`` of ``ids``, which may be beginnings of ids. Raises ``KeyError``."""
    whole = Condition("list_contains(?, trace_id)", (list(ids[:MOST]),), frozenset({"trace_id"}))
    found = {row.trace_id: one for row, one in reader.each(reader.select(whole, ("trace_id",), roots=True))}
    return beside([found.get(id) or reader.load(id) for id in ids[:MOST]], base, left_out=len(ids[MOST:]))


def beside(
    trajectories: Sequence[Trajectory], base: str | None = None, *, every: bool = False, left_out: int = 0
) -> dict[str, Any]:
    """All of them with turns and tool calls; ``forks``: id of the one they are compared with -> id -> where it leaves
    that. ``base``: this id, else the best reward; ``every``: each of them with all others."""
    rollouts = list(trajectories)[:MOST]
    chosen = next((one for one in rollouts if one.trace_id == base), None) or max(rollouts, key=_reward)
    bases = rollouts if every else [chosen]
    plain: dict[str, Any] = jsonable({
        "base": chosen.trace_id,
        "asked": question(chosen)[:MAX_TEXT],
        "left_out": len(trajectories) - len(rollouts) + left_out,
        "rollouts": [_rollout(one) for one in rollouts],
        "forks": {one.trace_id: {other.trace_id: _fork(one, other) for other in rollouts} for one in bases},
    })  # fmt: skip
    return plain


def _reward(one: Trajectory) -> float:
    reward = one.facts.get("reward")
    return float(reward) if isinstance(reward, (int, float)) else float("-inf")


def _rollout(one: Trajectory) -> dict[str, Any]:
    made, spans = calls(one), one.llm_spans
    turns: list[dict[str, Any]] = []
    for number, span in enumerate(spans, 1):
        reply = answer(span) or {"role": "assistant", "content": span.error_text or shown_answer(span, FEW_IDS) or ""}
        item = message_item(reply)
        turns.append({
            "text": item["text"][:MAX_TEXT],
            "thought": item.get("thought", "")[:MAX_TEXT],
            "tokens": span.response_tokens,
            "status": span.status,
            "calls": [
                {"name": call.name, "arguments": call.arguments[:MAX_TEXT], "text": call.result[:MAX_TEXT],
                 "status": call.status}
                for call in made
                if call.turn == number
            ],
        })  # fmt: skip
        if made and (number < len(spans) or one.root.end_ns is not None):
            turns[-1]["calls"] += _not_run(item.get("calls", []), turns[-1]["calls"])
    return {
        "trace_id": one.trace_id,
        "rollout_n": one.attributes.get("rollout_n"),
        "status": one.status,
        "reward": one.facts.get("reward"),
        "advantage": one.facts.get("advantage"),
        "tokens": sum(span.response_tokens or 0 for span in one.llm_spans),
        "duration": None if one.root.duration_ns is None else one.root.duration_ns / 1e9,
        "turns": turns,
    }


def _not_run(written: list[dict[str, str]], made: list[dict[str, str]]) -> list[dict[str, str]]:
    """What the model wrote beyond the calls that were made: the agent runs fewer at once, or does not know the tool."""
    ran = Counter(call["name"] for call in made)
    rest = []
    for call in written:
        ran[call["name"]] -= 1
        if ran[call["name"]] < 0:
            rest.append({**call, "arguments": call["arguments"][:MAX_TEXT], "text": "", "status": NOT_RUN})
    return rest[: max(0, len(written) - len(made))]


def _fork(base: Trajectory, other: Trajectory) -> dict[str, Any]:
    if base is other:
        return {"fork": None, "call_fork": None}
    where, call = parted(base, other), calls_parted(base, other)
    return {
        "fork": None if where is None else _shown(where),
        "call_fork": None if call is None else {"number": call[0], **_shown(call[1])},
    }


def _shown(where: Divergence) -> dict[str, Any]:
    """``here``: what the base has from there on."""
    return {
        "turn": where.turn, "part": where.part, "token": where.token, "known": where.part != UNKNOWN,
        "here": where.here[:AROUND], "there": where.there[:AROUND],
    }  # fmt: skip
