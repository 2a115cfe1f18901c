"""Whether ``diagnose`` or ``why`` names a fault of ``acts``: in words that lead to the fix, at its step, with rollouts
that have the fault. Of a twin nothing may be said."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotrace.insight.diagnose import Diagnosis
from autotrace.insight.finding import Explanation, Finding
from autotrace.insight.step_records import Step
from autotrace.insight.why import Why, headline
from autotrace.ship.readers import of_run
from autotrace.tables import steps as findings
from tests.findings.acts import CHAT, STEPS, Fault
from tests.findings.token_agent import ROWS, TOKENS

FAULTS = {fault.name: fault for fault in [*CHAT, *TOKENS, *ROWS]}
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 900
WAITED = ("AT-STRAGGLER", "AT-TOOL-SLOW", "AT-STEP-IDLE")
"""Findings that a busy machine has."""


@dataclass
class Said:
    """Words of a finding or a cause, with its step and place."""

    words: str
    step: int | None
    turns: frozenset[int | None]
    traces: Sequence[str]
    is_change: bool = False
    """The words are about a change of the mean reward, or about a finding."""


@dataclass
class Named:
    """What was said of a fault, and of its twin."""

    fault: Fault
    said: list[Said] = field(default_factory=list)
    by: Said | None = None
    """The words that name it."""
    problem: str = ""
    false: list[str] = field(default_factory=list)
    """Of the twin."""

    @property
    def is_named(self) -> bool:
        """With step and place."""
        return self.by is not None and not self.problem

    @property
    def is_good(self) -> bool:
        """The fault is named, and nothing is said of the twin."""
        return self.is_named and not self.false


def play(folder: Path, names: Sequence[str] = ()) -> Path:
    """Play the faults under ``autotrace-run``; the run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    launch = [sys.executable, "-m", "autotrace.launch.main", "--run-dir", str(folder / "runs"), "--backend", "jsonl"]
    program = [sys.executable, str(HERE / "agents.py"), str(folder / "planted.json"), *names]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    with (folder / "log").open("wb") as log:
        done = subprocess.run(
            [*launch, "--spec", str(HERE / "agents.yaml"), "--drain-timeout", str(LIMIT), *program],
            env={**environ, "PYTHONPATH": str(ROOT)}, cwd=folder, timeout=LIMIT, stdout=log, stderr=log, check=False,
        )  # fmt: skip
    assert done.returncode == 0, (folder / "log").read_text(errors="replace")[-3000:]
    (run,) = (folder / "runs").glob("*/run.json")
    return run.parent


def judge(folder: Path) -> list[Named]:
    """The verdicts on what was played into ``folder``."""
    (run,) = (folder / "runs").glob("*/run.json")
    made: dict[str, Named] = {}
    with contextlib.closing(of_run(run.parent)) as reader:
        steps = {step.number: step for step in findings.steps(reader)}
    for played in json.loads((folder / "planted.json").read_text()):
        verdict = made.setdefault(played["name"], Named(FAULTS[played["name"]]))
        own = [steps[number] for number in range(played["step"], played["step"] + STEPS) if number in steps]
        if played["clean"]:
            verdict.false = [one.words for one in said(own) if not one.words.startswith(WAITED)]
        else:
            verdict.said = list(said(own))
            _name(verdict, played, own)
    return list(made.values())


def said(steps: Sequence[Step]) -> Iterator[Said]:
    """All that ``diagnose`` and ``why`` say of a run, in words."""
    diagnosis, why = Diagnosis(), Why(4096)
    for step in steps:
        diagnosis.add(step)
        why.add(step)
    for finding in diagnosis.findings():
        yield Said(
            _words(finding), finding.since_step, frozenset(place.turn for place in finding.places),
            [place.trace_id for place in finding.places], finding.answer is not None and bool(finding.answer.step),
        )  # fmt: skip
    for answer in why.answers():
        for cause in answer.causes:
            words = f"{answer.title}: {headline(cause, answer.other)}; {'; '.join([*cause.also, *cause.follows])}"
            traces = cause.with_it if cause.share >= cause.share_before else cause.without_it
            yield Said(words, answer.step, frozenset(), traces, answer.step is not None)


def _words(finding: Finding) -> str:
    kinds = "; ".join([*finding.notes, *(place.note for place in finding.places[:1])])
    return f"{finding.code} {finding.title}: {kinds}{_causes(finding.answer)}"


def _causes(answer: Explanation | None) -> str:
    return "" if answer is None else " | ".join(["", *(headline(cause, answer.other) for cause in answer.causes)])


def _name(verdict: Named, played: dict[str, Any], steps: Sequence[Step]) -> None:
    """Look for the fault among what was said."""
    fault = verdict.fault
    planted = {tuple(one) for one in played["planted"]}
    having = {
        record.trace_id for step in steps for record in step.records
        if (record.step, int(re.split(r"\D", str(record.uid))[-1]), record.rollout_n) in planted
    }  # fmt: skip
    for one in verdict.said:
        if re.search(fault.clue, one.words):
            verdict.by, verdict.problem = one, ""
            since = min(step for step, *_ in planted)
            if one.step not in (since, None) and not re.search(f"(since step|in steps) {since}\\b", one.words):
                verdict.problem = f"at step {one.step}, planted at {since}"
            elif fault.turn is not None and not one.is_change and fault.turn not in one.turns:
                verdict.problem = f"in turn {sorted(map(str, one.turns))}, planted in {fault.turn}"
            elif not having.intersection(one.traces):
                verdict.problem = "none of the rollouts that are shown has it"
            else:
                return


def table(verdicts: Sequence[Named]) -> str:
    """As ``make findings`` prints it."""
    lines = []
    for one in verdicts:
        mark = "    " if one.is_good else "  ! "
        lines.append(
            f"{mark} {one.fault.name:25} {_line(one.by.words) if one.by else 'NOT NAMED'}  {one.problem}".rstrip()
        )
        lines += [f"       instead: {_line(each.words)}  (step {each.step})" for each in one.said if one.by is None]
        lines += [f"       the twin: {_line(words)}" for words in one.false]
    named = sum(one.is_named for one in verdicts)
    false = sum(bool(one.false) for one in verdicts)
    lines.append(f"{len(verdicts)} faults that people reported, {named} named in words, with step and place;"
                 f" {len(verdicts)} twins, {false} with a finding")  # fmt: skip
    return "\n".join(lines)


def _line(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= 200 else line[:199] + "…"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as made_in:
        play(Path(made_in), sys.argv[1:])
        print(table(judge(Path(made_in))))
