"""Write ``verl``, veRL's layout for ``trainer.rollout_data_dir``, which ``scripts/rollout_viewer.py`` of veRL opens.

One ``{step}.jsonl`` a step (validation in the folder ``validation``): ``input``, ``output``, ``gts``, ``score``,
``step`` and ``uid`` (V1's key ``{uid}_{rollout}_{output}``), then the parts of the reward, and fields that veRL's own
dump lacks: ``advantage``, ``status``, and ``request_id`` (the trace's id, for the viewer's search box). Unlike veRL's
dump, the files contain failed rollouts, and texts keep their special tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autotrace.export.format import Row, Written, write_lines
from autotrace.trajectory.jsonable import integer, jsonable
from autotrace.trajectory.model import Trajectory
from autotrace.trajectory.span_text import asked_words, input_text, output_text

NOT_DUMPED = ("score", "input", "output", "gts", "step", "uid")


def write(trajectories: Iterable[Trajectory], out: str) -> Written:
    """See ``format.Write``."""
    return write_lines(trajectories, out, row_of, one_file=False)


def row_of(trajectory: Trajectory) -> Row:
    """Return the file name and the row."""
    attributes, facts = trajectory.attributes, trajectory.facts
    step = integer(attributes.get("step")) or 0
    texts = [
        span for span in trajectory.spans if span.role in ("agent", "trajectory") and span.response_text is not None
    ]
    calls = trajectory.llm_spans
    if texts:
        prompt, answer = texts[0].prompt_text, texts[0].response_text
    else:
        first, last = (calls[0], calls[-1]) if calls else (trajectory.root, trajectory.root)
        prompt, answer = asked_words(first, whole=True) or input_text(first), output_text(last)
    model = trajectory.root.inputs.get("reward_model")
    row: dict[str, Any] = {
        "input": prompt or "",
        "output": answer or "",
        "gts": model.get("ground_truth") if isinstance(model, dict) else None,
        "score": facts.get("reward"),
        "step": step,
        "uid": "_".join(
            str(word) for word in (attributes.get("uid"), attributes.get("rollout_n"), 0) if word is not None
        ),
        "request_id": trajectory.trace_id,
        "advantage": facts.get("advantage"),
        "status": trajectory.status,
        "num_turns": facts.get("num_turns", trajectory.turns),
    }
    extra = facts.get("reward_extra_info")
    if isinstance(extra, dict):
        row.update({str(name): value for name, value in extra.items() if name not in NOT_DUMPED})
    name = f"{max(step, 0)}.jsonl"
    return (f"validation/{name}" if attributes.get("validate") is True else name), jsonable(row)
