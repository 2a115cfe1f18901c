"""Write ``dpo``, the best and the worst rollout of each group for preference training: ``prompt``, ``chosen``,
``rejected``.

Rows of ``train.jsonl``, or of the named file, are TRL's conversational preference format: the messages before the
model's first message, and the following messages of either rollout, with tool calls and results; ``tools`` are JSON
schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from autotrace.export.conversation import Conversation, conversation
from autotrace.export.format import Row, Written, write_rows
from autotrace.export.sft import FILE, identity
from autotrace.tables.rollout import Rollout
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Trajectory

Answered = tuple[dict[str, Any], Conversation]
"""Identity of a rollout, and its conversation."""


def write(trajectories: Iterable[Trajectory], out: str) -> Written:
    """See ``format.Write``."""
    written = Written()
    return write_rows(_pairs(trajectories, written), out, written, one_file=True)


def _pairs(trajectories: Iterable[Trajectory], written: Written) -> Iterator[Row]:
    """Yield a row for each group that has a better and a worse rollout of the same prompt."""
    for _, rollouts in groupby(trajectories, lambda one: (one.run_id, Rollout(one).group_id)):
        group = []
        for one in rollouts:
            who, said = identity(one), conversation(one)
            why = "they have no reward" if who["reward"] is None else said if isinstance(said, str) else None
            if why is None and isinstance(said, Conversation):
                group.append((who, said))
            elif why is not None:
                written.left_out[why] += 1
        if not group:
            continue
        best, worst = (choose(group, key=lambda one: one[0]["reward"]) for choose in (max, min))
        row = _row(best, worst)
        if isinstance(row, str):
            written.left_out[row] += len(group)
            continue
        if len(group) > 2:
            written.left_out["they are neither the best nor the worst of their group"] += len(group) - 2
        written.trajectories += 2
        yield FILE, row


def _row(best: Answered, worst: Answered) -> Any:
    """Return the pair as a row, or the reason why no row is possible."""
    (better, chosen), (worse, rejected) = best, worst
    if better["reward"] <= worse["reward"]:
        return "all rollouts of their group have the same reward, or there is only one"
    prompt, answer = _parted(chosen)
    if (prompt, chosen.tools) != (_parted(rejected)[0], rejected.tools):
        return "the best and the worst of their group have different prompts"
    return jsonable({
        "prompt": prompt, "chosen": answer, "rejected": _parted(rejected)[1], "tools": chosen.tools or [],
        "step": better["step"], "sample_index": better["sample_index"],
        **{f"{name}_{side}": who[name] for side, who in (("chosen", better), ("rejected", worse))
           for name in ("trace_id", "reward", "label")},
    })  # fmt: skip


def _parted(said: Conversation) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split the messages before the model's first message from the rest."""
    first = next(number for number, message in enumerate(said.messages) if message["role"] == "assistant")
    return said.messages[:first], said.messages[first:]
