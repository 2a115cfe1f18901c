"""Runs a program bare or traced, and looks at what that left: on stdout, in the run folder, at the backend."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from autotrace.spool.reader import SegmentReader, segments
from autotrace.spool.records import Close, Counters, Open
from tests.folders import contents, modes

from .programs import MARK

ROOT = Path(__file__).parents[2]
TIMEOUT = 480
SPEC = "tests/hostile/spec.yaml"


@dataclass
class Observed:
    """One run of a program."""

    code: int
    report: dict[str, Any]
    stderr: str
    run_dir: Path
    folders: list[Path] = field(default_factory=list)
    """The run folders in ``run_dir``."""

    @property
    def complaint(self) -> str:
        """The last line on stderr that is not ours: what the program failed with."""
        lines = [line for line in self.stderr.splitlines() if line.strip() and not line.startswith("autotrace: ")]
        return lines[-1] if lines else ""

    @cached_property
    def spool(self) -> tuple[int, int, dict[str, int]]:
        """Spans opened, spans closed, and what was dropped, by reason."""
        opened = closed = 0
        last: dict[str, dict[str, int]] = {}
        for folder in self.folders:
            for file in segments(folder):
                reader = SegmentReader(folder, file.name)
                while records := reader.read():
                    for located in records:
                        opened += isinstance(located.record, Open)
                        closed += isinstance(located.record, Close)
                        if isinstance(located.record, Counters):
                            last[file.process] = located.record.drops
        drops: Counter[str] = Counter()
        for counted in last.values():
            drops.update(counted)
        return opened, closed, dict(drops)

    @cached_property
    def trajectories(self) -> list[dict[str, Any]]:
        """As delivered to the JSON lines backend."""
        files = [folder / "trajectories.jsonl" for folder in self.folders]
        return [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]

    @property
    def spans(self) -> int:
        """Spans delivered."""
        return sum(len(trajectory["spans"]) for trajectory in self.trajectories)

    def on_disk(self, secrets: Mapping[str, str]) -> list[str]:
        """Names of the ``secrets`` that stand in some file of the run directory, or were printed to stderr."""
        texts = [*contents(self.run_dir).values(), self.stderr.encode()]
        return [name for name, secret in secrets.items() if any(secret.encode() in text for text in texts)]

    def readable_by_others(self) -> list[str]:
        """Files and folders below the run directory that anybody but the owner may use, with their modes."""
        found = modes(self.run_dir)
        return [f"{path.relative_to(self.run_dir)} {mode:o}" for path, mode in found.items() if mode & 0o077]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without anything of autotrace's or a backend's, and ``extra``. Segments stay: they are read."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW", "OTEL"))}
    own = {"MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONHASHSEED": "0", "AUTOTRACE_KEEP_SPOOL": "1"}
    return {**clean, **own, **(extra or {})}


def command(program: str, variant: str) -> list[str]:
    """What runs the program."""
    code = f"from tests.hostile.programs import {program}; {program}.main({variant!r})"
    return [sys.executable, "-c", code]


def bare(program: str, variant: str, run_dir: Path) -> Observed:
    """The program alone."""
    return _run(command(program, variant), run_dir, environment())


def traced(
    program: str,
    variant: str,
    run_dir: Path,
    *,
    options: Sequence[str] = ("--backend", "jsonl"),
    variables: Mapping[str, str] | None = None,
) -> Observed:
    """The same with the prefix."""
    launcher = [sys.executable, "-m", "autotrace.launch.main", "--spec", SPEC, "--run-dir", str(run_dir)]
    launcher += ["--drain-timeout", str(TIMEOUT - 60), *options]
    return _run([*launcher, "--", *command(program, variant)], run_dir, environment(variables))


def by_environment(program: str, variant: str, run_dir: Path, variables: Mapping[str, str]) -> Observed:
    """The same without the prefix, by ``variables`` alone."""
    return _run(command(program, variant), run_dir, environment(variables))


def has_mlflow() -> bool:
    """The interpreter can write into MLflow's store."""
    return importlib.util.find_spec("mlflow") is not None


def _run(words: Sequence[str], run_dir: Path, variables: Mapping[str, str]) -> Observed:
    try:
        done = subprocess.run(
            words, cwd=ROOT, env=dict(variables), capture_output=True, text=True, timeout=TIMEOUT, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Observed(-1, {}, f"did not end within {TIMEOUT} s", run_dir)
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    report = json.loads(lines[-1].removeprefix(MARK)) if lines else {}
    folders = sorted(path.parent for path in run_dir.glob("*/run.json"))
    return Observed(done.returncode, report, done.stderr, run_dir, folders)
