"""What was found of what was planted: code, trajectory, turn and token."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotrace.insight.diagnose import Diagnosis
from autotrace.insight.examine import examine
from autotrace.insight.settings import TrainerSettings
from autotrace.insight.step_records import Hit, Record, Step
from autotrace.ship.readers import of_run
from autotrace.tables import steps as findings
from autotrace.tables.reader import Reader
from tests.findings import named
from tests.findings.corpus import corpus
from tests.findings.names import begins
from tests.findings.scenarios import Scenario

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 3000
"""Seconds after which a process is taken for hung."""


@dataclass
class Verdict:
    """Of one scenario."""

    mode: str
    scenario: Scenario
    planted: int
    found: int
    """Of the planted rollouts: named with the right code."""
    placed: int
    """Of those, with the right turn and token."""
    false: dict[str, int] = field(default_factory=dict)
    """Codes that nobody planted, and the right one at rollouts without the fault -> how many."""
    problem: str = ""

    @property
    def is_found(self) -> bool:
        """The fault is among the findings."""
        return self.found > 0

    @property
    def is_good(self) -> bool:
        """Found where it is, and nothing else."""
        right = not self.scenario.code or (self.found >= 0.95 * self.planted and self.placed == self.found > 0)
        return right and not self.false and not self.problem


def play(mode: str, folder: Path, names: Sequence[str] = ()) -> Path:
    """Play the corpus of a mode under ``autotrace-run``; the run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments, environ = command(mode, folder, names)
    with (folder / "log").open("wb") as log:
        done = subprocess.run(
            arguments, env=environ, cwd=folder, timeout=LIMIT, stdout=log, stderr=subprocess.STDOUT, check=False
        )
    assert done.returncode == 0, (folder / "log").read_text(errors="replace")[-3000:]
    (run,) = (folder / "runs").glob("*/run.json")
    return run.parent


def command(mode: str, folder: Path, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """What plays the corpus, and its environment."""
    launch = [sys.executable, "-m", "autotrace.launch.main", "--run-dir", str(folder / "runs"), "--backend", "jsonl"]
    program = [sys.executable, str(HERE / "program.py"), mode, str(folder / "planted.json"), *names]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    return [*launch, "--drain-timeout", str(LIMIT), *program], {**environ, "PYTHONPATH": str(ROOT)}


def judge(mode: str, folder: Path) -> list[Verdict]:
    """The verdicts on what was played into ``folder``."""
    (path,) = (folder / "runs").glob("*/run.json")
    by_name = {scenario.name: scenario for scenario in corpus(mode)}
    with contextlib.closing(of_run(path.parent)) as reader:
        steps = {step.number: step for step in findings.steps(reader)}
        ends = TrainerSettings.of(reader.run.binds()).end_tokens
        verdicts = []
        for played in json.loads((folder / "planted.json").read_text()):
            diagnosis = Diagnosis()
            hits: list[Hit] = []
            scenario = by_name[played["name"]]
            settings = settings_of(scenario, ends)
            names: dict[str, str] = {}
            for number in range(played["step"], played["step"] + played["steps"]):
                records = steps[number].records if number in steps else []
                names |= _examined(reader, played, records, settings)
                whole = steps.get(number) or Step(number, [], settings)
                hits += diagnosis.add(Step(number, records, settings, metrics=whole.metrics, computed=whole.computed))
            verdict = _verdict(mode, scenario, played, hits, names)
            if scenario.says:
                own = [steps[n] for n in range(played["step"], played["step"] + played["steps"]) if n in steps]
                at = (None, played["step"] + scenario.since)
                words = [one for one in named.said(own) if re.search(scenario.says, one.words)]
                verdict.planted, verdict.found = 1, int(bool(words))
                verdict.placed = int(any(one.step in at for one in words))
            verdicts.append(verdict)
    return verdicts


def settings_of(scenario: Scenario, ends: frozenset[int]) -> TrainerSettings:
    """Each scenario has a configuration of its own, which no real run has."""
    config: dict[str, Any] = {"prompt_length": 2048, "response_length": 1024, "rollout_n": scenario.n,
                              "adv_estimator": "grpo", "trainer_mode": "sync", "temperature": 1.0}  # fmt: skip
    for override in scenario.overrides:
        path, _, value = override.partition("=")
        if "val_kwargs" not in path:
            config[path.rpartition(".")[2]] = value == "True" if value in ("True", "False") else value
    return TrainerSettings.of([("config", config), ("tokenizer", {"end_tokens": sorted(ends)})])


def _examined(
    reader: Reader, played: dict[str, Any], records: list[Record], settings: TrainerSettings
) -> dict[str, str]:
    """Trace id -> the name that the engine knows it by; the records are examined as in a run with ``settings``."""
    names: dict[str, list[str]] = {}
    for name, rollout in played["rollouts"].items():
        names.setdefault(rollout["begins"], []).append(name)
    known = {}
    for record, one in reader.each(records, texts=False):
        assert one is not None
        record.profile = examine(one, settings)
        calls = one.llm_spans
        key = begins(calls[0].prompt_ids or [], calls[0].response_ids or []) if calls else ""
        these = names.get(key) or [""]
        known[record.trace_id] = these.pop() if len(these) > 1 else these[0]
    return known


def _verdict(mode: str, scenario: Scenario, played: Any, hits: Iterable[Hit], names: dict[str, str]) -> Verdict:
    rollouts = played["rollouts"]
    planted = {request for request, rollout in rollouts.items() if rollout["planted"]}
    verdict = Verdict(mode, scenario, len(planted), 0, 0, problem="" if scenario.breaks else played["problem"])
    seen = set()
    for hit in hits:
        request = names.get(hit.record.trace_id, "")
        if hit.code == scenario.code and (request in planted or scenario.code in OF_OTHERS):
            if request not in seen:
                seen.add(request)
                verdict.found += 1
                verdict.placed += _right_place(scenario, hit, rollouts.get(request, {}))
        elif hit.code not in scenario.also | WAITED:
            verdict.false[hit.code] = verdict.false.get(hit.code, 0) + 1
    if scenario.code in OF_OTHERS | SOME and verdict.found:
        verdict.planted = min(verdict.planted, verdict.found)
    return verdict


OF_OTHERS = frozenset({"AT-GROUP-INCOMPLETE", "AT-ADVANTAGE-NAN"})
WAITED = frozenset({"AT-STRAGGLER", "AT-TOOL-SLOW", "AT-STEP-IDLE"})
"""A busy machine has them."""
"""Found at the siblings of the rollouts that were planted, too."""
SOME = frozenset({
    "AT-NO-SIGNAL", "AT-CACHE-LOST", "AT-WEIGHTS-STUCK", "AT-METRICS-PADDED", "AT-CLIP-RATIO", "AT-GROUP-OF-ONE",
    "AT-STEP-IDLE",
})  # fmt: skip
"""Found at some of the rollouts that were planted."""


def _right_place(scenario: Scenario, hit: Hit, rollout: dict[str, Any]) -> bool:
    if scenario.turn is not None and hit.turn != scenario.turn:
        return False
    if scenario.token == "fork":
        return hit.token == rollout["fork"]
    if scenario.token == "end":
        return hit.token == rollout["lengths"][scenario.turn - 1 if scenario.turn else -1]
    return True


def table(verdicts: Sequence[Verdict]) -> str:
    """As ``make findings`` prints it."""
    lines = [f"{'':4} {'scenario':42} {'code':24} {'planted':>7} {'found':>6} {'placed':>6}  false"]
    for verdict in verdicts:
        false = ", ".join(f"{code} {count}" for code, count in verdict.false.items())
        mark = "    " if verdict.is_good else "  ! "
        scenario = verdict.scenario
        lines.append(
            f"{mark} {verdict.mode + ' ' + scenario.name:42} {scenario.code or '(clean)':24} {verdict.planted:7}"
            f" {verdict.found:6} {verdict.placed:6}  {false} {verdict.problem[:90]}".rstrip()
        )
    planted = [verdict for verdict in verdicts if verdict.scenario.code]
    clean = [verdict for verdict in verdicts if not verdict.scenario.code]
    right = sum(verdict.found >= 0.95 * verdict.planted and verdict.placed == verdict.found > 0 for verdict in planted)
    false_runs = sum(bool(verdict.false) for verdict in clean)
    lines.append(
        f"{len(planted)} faults planted, {sum(verdict.is_found for verdict in planted)} found, {right} in the right"
        f" places; {len(clean)} clean ones, {false_runs} with a false finding"
    )
    return "\n".join(lines)


def main() -> int:
    """``make findings``: play both modes, print the table; 1 if less than 95 % is found, or something false."""
    import tempfile

    from tests.findings import hangs  # which imports this module

    modes, names = ("v0", "v1"), sys.argv[1:]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made, contextlib.ExitStack() as playing:
        verdicts: list[Verdict] = []
        agents = playing.enter_context(ThreadPoolExecutor(1)).submit(_agents, Path(made, "agents"), names)
        hanging = None if names else playing.enter_context(hangs.played(Path(made, "hangs")))
        for mode in modes:
            play(mode, Path(made, mode), names)
            if Path(made, mode, "planted.json").exists():  # of the named scenarios this mode has one
                verdicts += judge(mode, Path(made, mode))
        if hanging is not None:
            verdicts += hangs.judge(*hanging)
        reported = agents.result()
    print(table(verdicts), named.table(reported), sep="\n\n")
    planted = [verdict for verdict in verdicts if verdict.scenario.code]
    good = sum(verdict.is_good for verdict in planted) + sum(one.is_named for one in reported)
    false = any(verdict.false for verdict in verdicts if not verdict.scenario.code) or any(
        one.false for one in reported
    )
    return int(false or good < 0.95 * (len(planted) + len(reported)))


def _agents(folder: Path, names: Sequence[str]) -> list[Any]:
    """The faults of agents of people's own, at the same time as veRL's loops."""
    if names and not named.FAULTS.keys() & set(names):
        return []
    named.play(folder, names)
    return named.judge(folder)


if __name__ == "__main__":
    sys.exit(main())
