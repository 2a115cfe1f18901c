"""What rldoctor, rlprobe and autotrace say about the same faults: ``make peers`` plays the drops of
``tests/findings/field`` as runs of 40 steps, each with the fault from step 30 on. The two others get the scalars of a
run, each in its own form. ``tools/peers.json`` keeps the answers, from which ``make pages`` makes the table in
``docs/findings.md``."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from autotrace.insight.step_records import Step
from autotrace.insight.why import Why, headline, unexplained

KEPT = Path(__file__).with_suffix(".json")
PACKAGES = ("rldoctor==0.2.0", "rlprobe==0.1.0")
STEPS, CHANGED, LONGEST = 40, 30, 150
PEERS = """
import json, sys
import rl_doctor
from rlprobe.doctor.engine import diagnose_view
from rlprobe.doctor.runview import RunView
from rlprobe.schemas import RunManifest, StepRecord

NAMES = {"reward": "reward_mean", "reward_std": "reward_std", "frac_reward_zero_std": "zero_variance_group_frac",
         "group_reward_std": "group_reward_std_mean", "completions/mean_length": "completion_len_mean",
         "completions/max_length": "completion_len_max", "completions/clipped_ratio": "truncation_rate"}
answers = {}
for name, rows in json.load(sys.stdin).items():
    doctor = rl_doctor.diagnose(rl_doctor.run_from_records(rows, name="the run")).headline
    steps = [StepRecord(step=row["step"], **{NAMES[key]: row[key] for key in row if key in NAMES}) for row in rows]
    manifest = RunManifest(run_id="run", created_at="2026-01-01T00:00:00Z", algorithm="grpo")
    probe = [f"{one.signature_id}: {one.explanation}" for one in diagnose_view(RunView(manifest, steps))]
    answers[name] = [doctor, probe[0] if probe else "no findings"]
print(json.dumps(answers))
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


def asked() -> dict[str, list[str]]:
    """Fault -> the headlines of rldoctor, rlprobe and autotrace."""
    from tests.findings.field import DROPS, UNEXPLAINED, Change, played  # the pages need the kept answers alone

    changes = [Change("(clean)", lambda play: None, ""), *DROPS, *UNEXPLAINED]
    runs = {change.name: played(change, steps=STEPS, changed=CHANGED) for change in changes}
    words = ["-m", "uv", "run", "--quiet", "--no-project", "--isolated"]
    words += [word for package in PACKAGES for word in ("--with", package)]
    done = subprocess.run(
        [sys.executable, *words, "python", "-c", PEERS], capture_output=True, text=True, check=True,
        input=json.dumps({name: scalars(steps) for name, steps in runs.items()}),
    )  # fmt: skip
    answers: dict[str, list[str]] = json.loads(done.stdout)
    return {name: [*answers[name], ours(steps)] for name, steps in runs.items()}


def table() -> str:
    """The kept answers in Markdown."""
    rows = [["fault", *PACKAGES, "`autotrace why`"], ["---"] * 4]
    rows += [[name, *map(_cell, said)] for name, said in json.loads(KEPT.read_text(encoding="utf-8")).items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(words: str) -> str:
    line = " ".join(words.split())
    line = line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
    return "`{}`".format(line.replace("|", "\\|").replace("`", "'"))


if __name__ == "__main__":
    KEPT.write_text(json.dumps(asked(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
