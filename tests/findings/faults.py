"""Record the public set of faults anew, into ``examples/faults``: ``python -m tests.findings.faults``.

A fault is a scenario of the corpus, recorded in veRL's own agent loop, and its clean twin is the same scenario in which
no rollout has the fault. A folder has the tables of one run. A run that ``diagnose`` does not find as its name says
stops the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from autotrace.insight.diagnose import Diagnosis
from autotrace.ship.readers import of_run
from autotrace.tables.steps import steps
from tests.findings.judge import WAITED
from tests.findings.scenarios import Scenario

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLACE = ROOT / "examples" / "faults"
NAMES = (
    "answers stripped all", "thinking dropped all", "mask over tools all", "no end token all", "one reward",
    "groups with failing tools", "reward NaN faint", "another's ground truth some", "cut at the context all",
    "empty later answer some", "temperature changed all", "tool raises all", "broken JSON all",
    "half of the replicas are old", "a reward turned over some", "rows left out some",
)  # fmt: skip
"""Scenarios of the corpus; each folder has the name of the scenario's finding."""
SHARE, GROUPS = 0.5, 6


def played() -> Iterator[tuple[str, int, Scenario]]:
    """Folder, step and scenario of each run: a fault and its twin have the same step, in two processes."""
    from tests.findings.corpus import corpus

    by_name = {scenario.name: scenario for scenario in corpus("v0")}
    for step, name in enumerate(NAMES, 1):
        fault = by_name[name]
        if fault.code != "AT-REWARD-CONSTANT":  # which needs many groups, all of them alike
            share = min(fault.share, SHARE) if fault.share > 0.1 else 0.2
            fault = replace(fault, share=share, groups=min(fault.groups, GROUPS))
        folder = fault.code.removeprefix("AT-").lower()
        yield f"{folder}/fault", step, fault
        yield f"{folder}/clean", step, replace(fault, code="", misjudged="")


async def play(which: str) -> None:
    """Play the faults, or the twins, in one process, a step each."""
    from tests.findings import program

    with tempfile.TemporaryDirectory() as made:
        tokenizer, model = program.model_of(Path(made), "")
        for name, step, scenario in played():
            if name.endswith(which):
                done = await program.play(scenario, "v0", step, tokenizer, model, None)
                assert not done["problem"], done["problem"]


def found(folder: Path) -> set[str]:
    """The codes of the findings of a run, without those of a busy machine."""
    diagnosis = Diagnosis()
    with contextlib.closing(of_run(folder)) as reader:
        for each in steps(reader):
            diagnosis.add(each)
    return {finding.code for finding in diagnosis.findings()} - WAITED


def main() -> None:
    """Record, and write a folder of tables for each run."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    given = importlib.util.spec_from_file_location("make", ROOT / "examples" / "recorded_run" / "make.py")
    assert given is not None and given.loader is not None
    given.loader.exec_module(make := importlib.util.module_from_spec(given))
    with tempfile.TemporaryDirectory() as made:
        running = []
        for which in ("fault", "clean"):
            launch = [
                sys.executable,
                "-m",
                "autotrace.launch.main",
                "--run-dir",
                f"{made}/{which}",
                "--backend",
                "jsonl",
            ]
            words = [*launch, "--logprobs", "1", "--token-facts", "all", "--", sys.executable, __file__, "play", which]
            running.append(subprocess.Popen(words, env={**environ, "PYTHONPATH": str(ROOT)}, cwd=made))
        assert [process.wait() for process in running] == [0, 0]
        shutil.rmtree(PLACE, ignore_errors=True)
        names = {made: "/home/you", str(ROOT): "/home/you/project"}
        for name, step, scenario in played():
            (run,) = (path.parent for path in Path(made, name.rpartition("/")[2]).glob("*/run.json"))
            make.tables(run, PLACE / name, names, step)
            codes = found(PLACE / name)
            assert codes <= {scenario.code, *scenario.also} if scenario.code else not codes, (name, codes)
            assert not scenario.code or scenario.code in codes, (name, codes)
    print(f"{PLACE}: {sum(path.stat().st_size for path in PLACE.rglob('*') if path.is_file()):,} bytes")


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        logging.disable(logging.CRITICAL)
        asyncio.run(play(sys.argv[2]))
    else:
        main()
