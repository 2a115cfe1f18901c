"""What rldoctor, rlprobe and autotrace say about the same faults: ``make peers`` plays the drops of
``tests/findings/field`` as runs of 40 steps, each with the fault from step 30 on. The two others get the scalars of a
run, each in its own form. They also play rldoctor's own scenarios, and compare each run with the clean run.
``tools/peers.json`` keeps the answers, from which ``make pages`` makes the tables in ``docs/findings.md``."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from autotrace.insight.contrast import compare
from autotrace.insight.diagnose import Diagnosis
from autotrace.insight.rollouts import Rollouts
from autotrace.insight.settings import TrainerSettings
from autotrace.insight.step_records import Step
from autotrace.insight.why import Why, headline, unexplained

KEPT = Path(__file__).with_suffix(".json")
PACKAGES = ("rldoctor==0.2.0", "rlprobe==0.1.0")
STEPS, CHANGED, LONGEST = 40, 30, 150
PEERS = """
import json, sys
import rl_doctor
from rl_doctor.simulate import SCENARIOS, simulate
from rlprobe.doctor import diff
from rlprobe.doctor.engine import diagnose_view
from rlprobe.doctor.runview import RunView
from rlprobe.schemas import RunManifest, StepRecord

NAMES = {"reward": "reward_mean", "reward_std": "reward_std", "frac_reward_zero_std": "zero_variance_group_frac",
         "group_reward_std": "group_reward_std_mean", "completions/mean_length": "completion_len_mean",
         "completions/max_length": "completion_len_max", "completions/clipped_ratio": "truncation_rate"}
faults, views = {}, {}
for name, rows in json.load(sys.stdin).items():
    doctor = rl_doctor.diagnose(rl_doctor.run_from_records(rows, name="the run")).headline
    steps = [StepRecord(step=row["step"], **{NAMES[key]: row[key] for key in row if key in NAMES}) for row in rows]
    manifest = RunManifest(run_id="run", created_at="2026-01-01T00:00:00Z", algorithm="grpo")
    views[name] = RunView(manifest, steps)
    probe = [f"{one.signature_id}: {one.explanation}" for one in diagnose_view(views[name])]
    faults[name] = [doctor, probe[0] if probe else "no findings"]
RunView.load = staticmethod(lambda view: view)
diffs = {}
for name, view in views.items():
    first = diff.diff_runs(views["(clean)"], view).first_divergence
    diffs[name] = "the runs track each other" if first is None else f"{first.metric} at step {first.divergence_step}"
scenarios = {}
for name in SCENARIOS:
    rows, config = simulate(name)
    run = rl_doctor.run_from_records(rows, config=config, name="the run")
    scenarios[name] = [rl_doctor.diagnose(run).headline, rows]
print(json.dumps([faults, diffs, scenarios]))
"""
"""Runs where both packages are installed: the scalars of runs -> the headline of each package."""


def scalars(steps: Sequence[Step]) -> list[dict[str, float]]:
    """The scalars that a trainer logs of a run, under TRL's names."""
    rows = []
    for step in steps:
        rewards = [record.score or 0.0 for record in step.training]
        lengths = [sum(turn.response or 0 for turn in record.profile.turns) for record in step.training]
        cut = [any(turn.finish == "length" for turn in record.profile.turns) for record in step.training]
        spreads = [statistics.pstdev(group.rewards) for group in step.groups]
        rows.append({
            "step": step.number or 0, "reward": statistics.mean(rewards), "reward_std": statistics.pstdev(rewards),
            "frac_reward_zero_std": statistics.mean(spread == 0 for spread in spreads),
            "group_reward_std": statistics.mean(spreads), "completions/mean_length": statistics.mean(lengths),
            "completions/max_length": max(lengths), "completions/clipped_ratio": statistics.mean(cut),
        })  # fmt: skip
    return rows


def ours(steps: Sequence[Step]) -> str:
    """The first line of ``autotrace why``, with the first cause."""
    why = Why(4096)
    for step in steps:
        why.add(step)
    for answer in why.answers():
        if answer.step is not None:
            cause = headline(answer.causes[0], answer.other) if answer.causes else unexplained(answer)
            return f"{answer.title}: {cause}"
    return "no change of the mean reward"


def ours_of_scalars(rows: Sequence[dict[str, float]]) -> str:
    """The findings of a run that nobody traced."""
    diagnosis = Diagnosis()
    for row in rows:
        metrics = {name: float(value) for name, value in row.items() if isinstance(value, (int, float))}
        diagnosis.add(Step(int(metrics.pop("step")), [], TrainerSettings(), metrics=metrics))
    return (
        "; ".join(f"{one.code} {one.title}, since step {one.since_step}" for one in diagnosis.findings())
        or "no problems found"
    )


def ours_of_two(steps: Sequence[Step], clean: Sequence[Step]) -> str:
    """The first cause that ``autotrace diff`` names for a run against the clean run."""
    table = Rollouts()
    rows, before = ([row for step in side for row in table.rows_of(step, step.training, 4096, name)]
                    for side, name in ((steps, "run"), (clean, "clean")))  # fmt: skip
    answer = compare(rows, before, table.traits, other="in the clean run")
    return headline(answer.causes[0], answer.other) if answer.causes else unexplained(answer)


def asked() -> dict[str, dict[str, list[str]]]:
    """Table -> row -> the answers of each tool."""
    from tests.findings.field import DROPS, UNEXPLAINED, Change, played  # the pages need the kept answers alone

    changes = [Change("(clean)", lambda play: None, ""), *DROPS, *UNEXPLAINED]
    runs = {change.name: played(change, steps=STEPS, changed=CHANGED) for change in changes}
    words = ["-m", "uv", "run", "--quiet", "--no-project", "--isolated"]
    words += [word for package in PACKAGES for word in ("--with", package)]
    done = subprocess.run(
        [sys.executable, *words, "python", "-c", PEERS], capture_output=True, text=True, check=True,
        input=json.dumps({name: scalars(steps) for name, steps in runs.items()}),
    )  # fmt: skip
    faults, diffs, scenarios = json.loads(done.stdout)
    return {
        "fault": {name: [*faults[name], ours(steps)] for name, steps in runs.items()},
        "scenario": {name: [said, ours_of_scalars(rows)] for name, (said, rows) in scenarios.items()},
        "run": {name: [diffs[name], ours_of_two(steps, runs["(clean)"])] for name, steps in runs.items()},
    }


HEADS = {
    "fault": [*PACKAGES, "`autotrace why`"],
    "scenario": [PACKAGES[0], "`autotrace diagnose`, of the same scalars"],
    "run": [f"`rlprobe diff` ({PACKAGES[1]})", "`autotrace diff`"],
}
"""Table -> the tools, a column each."""


def table(name: str) -> str:
    """The kept answers in Markdown."""
    rows = [[name, *HEADS[name]], ["---"] * (1 + len(HEADS[name]))]
    rows += [[row, *map(_cell, said)] for row, said in json.loads(KEPT.read_text(encoding="utf-8"))[name].items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(words: str) -> str:
    line = " ".join(words.split())
    line = line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
    return "`{}`".format(line.replace("|", "\\|").replace("`", "'"))


if __name__ == "__main__":
    KEPT.write_text(json.dumps(asked(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
