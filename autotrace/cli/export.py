"""``autotrace export``: a run's trajectories as files that other tools open.

``jsonl``: the lines of the backend of that name. ``verl``: the layout of veRL's ``trainer.rollout_data_dir``, one
``{step}.jsonl`` a step (validation in a folder ``validation`` beside), so that ``scripts/rollout_viewer.py`` opens it:
``input``, ``output``, ``gts``, ``score``, ``step`` and ``uid`` (V1's key ``{uid}_{rollout}_{output}``), then the parts
of the reward, and what veRL's own dump lacks: ``advantage``, ``status``, and ``request_id`` (the trace's id, for the
viewer's search box). Unlike veRL's, it has the rollouts that failed, and texts keep their special tokens.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click

from autotrace.cli import runs, terminal
from autotrace.run import files
from autotrace.ship.run_reader import Gone, RunReader
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Trajectory
from autotrace.trajectory.span_text import input_text, output_text

NOT_DUMPED = ("score", "input", "output", "gts", "step", "uid")


@click.command(short_help="Write the trajectories to files: JSON lines, or veRL's rollout dump.")
@runs.run_argument
@click.option("--format", "layout", type=click.Choice(["jsonl", "verl"]), default="jsonl", show_default=True)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write to; default: export/FORMAT in the run folder.",
)
@click.option("--step", type=int, metavar="N", help="Export only this training step.")
def export(run: str | None, layout: str, out: Path | None, step: int | None) -> None:
    """Write the trajectories of a run to files. Existing files of the same name are replaced."""
    reader = RunReader.open(runs.locate(run))
    folder = out or reader.run_folder / "export" / layout
    files: dict[Path, IO[str]] = {}
    count = gone = 0
    try:
        for trajectory in _trajectories(reader, step):
            if trajectory is None:
                gone += 1
                continue
            name, lines = (_jsonl if layout == "jsonl" else _verl)(trajectory)
            path = folder / name
            if path not in files:
                files[path] = _created(path)
            files[path].write(json.dumps(lines, ensure_ascii=False) + "\n")
            count += 1
    except OSError as error:
        raise terminal.fail(f"cannot write to {folder}: {error.strerror}") from None
    finally:
        for file in files.values():
            file.close()
    if gone:
        lost = terminal.counted(gone, "trajectory", "trajectories")
        click.echo(f"{lost} left out: their segments were removed from the run folder (--spool-limit)", err=True)
    if not count:
        raise terminal.fail("this run has no trajectory to export; autotrace ls lists its traces")
    click.echo(
        f"{terminal.counted(count, 'trajectory', 'trajectories')} in {terminal.counted(len(files), 'file')} of {folder}"
    )


def _trajectories(reader: RunReader, step: int | None) -> Iterator[Trajectory | None]:
    """In veRL's order; None for one whose segments are gone."""
    rows = reader.rows(step=step, role="trajectory")
    for row in sorted(rows, key=lambda row: (row.step or 0, row.uid or "", row.rollout_n or 0, row.start_ns or 0)):
        try:
            yield reader.load(row.trace_id)
        except Gone:
            yield None


def _jsonl(trajectory: Trajectory) -> tuple[str, dict[str, Any]]:
    from autotrace.sinks.jsonl.sink import FILE, line_of

    return FILE, line_of(trajectory)


def _verl(trajectory: Trajectory) -> tuple[str, dict[str, Any]]:
    """File name and row."""
    attributes, facts = trajectory.attributes, trajectory.facts
    step = attributes.get("step")
    step = step if isinstance(step, int) and not isinstance(step, bool) else 0
    texts = [
        span for span in trajectory.spans if span.role in ("agent", "trajectory") and span.response_text is not None
    ]
    calls = trajectory.llm_spans
    if texts:
        prompt, answer = texts[0].prompt_text, texts[0].response_text
    else:
        first, last = (calls[0], calls[-1]) if calls else (trajectory.root, trajectory.root)
        prompt, answer = input_text(first, whole=True), output_text(last)
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


def _created(path: Path) -> IO[str]:
    files.folder(path.parent)
    return os.fdopen(files.overwrite(path, follow=True), "w", encoding="utf-8")
