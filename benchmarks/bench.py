"""One run of the benchmarks: subjects started on demand, each in its own process, and rounds shuffled among them."""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.before import HISTORY
from benchmarks.budgets import AT_REFERENCE, REFERENCE_NS
from benchmarks.measures import speed
from benchmarks.subjects import NEED_WEAVE

ROOT = Path(__file__).resolve().parent.parent
ROUND_NS = 8_000_000
"""Time one round of one subject should take: long against the clock's resolution, short against the machine's moods."""
CPUS: Sequence[int] = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else ()
"""The CPUs that this process may use. One of two may be half as fast as the other for a while."""


def pin(process: subprocess.Popen[str], cpu: int) -> None:
    """Have ``process``, which has just been started, run on one of ``CPUS`` (counted round). It can be compared with
    others there."""
    if CPUS:
        os.sched_setaffinity(process.pid, {CPUS[cpu % len(CPUS)]})


class Missing(Exception):
    """A subject cannot be measured here; says why."""


class Lane:
    """A subject's process."""

    def __init__(self, name: str, folder: Path, environ: dict[str, str], log: Path, cpu: int | None) -> None:
        self.name = name
        self.folder = folder
        folder.mkdir(parents=True)
        self._log = log
        with open(log, "wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker", name, str(folder)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
                cwd=ROOT, env=os.environ | environ | {"PYTHONPATH": str(ROOT)},
                start_new_session=True,  # no terminal: a peer that asks for a password would stop us all
            )  # fmt: skip
        if cpu is not None:
            pin(self.process, cpu)
        self._answer()

    def ask(self, measure: str, **options: Any) -> dict[str, Any]:
        """Have something measured. Raises ``Missing`` when the process died of it."""
        assert self.process.stdin is not None
        try:
            print(json.dumps({"measure": measure, **options}), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            raise Missing(self._why()) from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Missing(self._why())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _why(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f"{self.name}: {lines[-1] if lines else 'it ended'}"[:200]

    def close(self) -> None:
        """End the process and forget its files."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Bench:
    """What scenarios use: ``rounds`` for things that are repeated, ``once`` for things that are not."""

    def __init__(self, short: bool, seed: int = 1, against: str = HISTORY) -> None:
        self.short = short
        self.against = against
        """What stands beside this checkout where it can do the same (``delivery``); as ``before.named`` gives it."""
        self.missing: dict[str, str] = {}
        """Subject -> why it could not be measured."""
        self.speeds: list[float] = []
        """Nanoseconds of a ``ContextVar.set`` and ``reset`` during the run: the machine's speed."""
        self._folder = Path(tempfile.mkdtemp(prefix="autotrace-bench-"))
        self._lanes: dict[str, Lane] = {}
        self._weave: subprocess.Popen[str] | None = None
        self._weave_url = ""
        self._random = random.Random(seed)
        self._number = 0
        self._cpu = 0
        """Of the processes kept."""

    def fresh(self, name: str, cpu: int | None = None, **environ: str) -> Lane:
        """A new process for the subject ``name``, pinned to ``cpu`` if one is given. Raises ``Missing``."""
        self._number += 1
        if name in NEED_WEAVE:
            environ |= self.weave_environment()
        folder = self._folder / f"{self._number}"
        try:
            return Lane(name, folder, environ, self._folder / f"{self._number}.log", cpu)
        except Missing as missing:
            self.missing[name] = str(missing)
            raise

    def lane(self, name: str) -> Lane | None:
        """The process of subject ``name``; None if it cannot be measured here."""
        if name not in self._lanes and name not in self.missing:
            try:
                self._lanes[name] = self.fresh(name, self._cpu)
            except Missing:
                return None
        return self._lanes.get(name)

    def rounds(
        self, names: Iterable[str], number: int, measure: str, most: int = 2_000, **options: Any
    ) -> dict[str, dict[str, float]]:
        """Medians over ``number`` rounds, in each of which every subject is measured once, in another order; and the
        same brought to the speed of the budgets, each round by what the machine did just before.

        ``options`` without ``calls``: it is chosen so that a round takes about ``ROUND_NS``, and ``most`` of them.
        """
        lanes = [lane for lane in map(self.lane, names) if lane is not None]
        calls: dict[str, int] = {}
        for lane in list(lanes):
            try:
                lane.ask(measure, calls=1, **options)
                first = lane.ask(measure, calls=2, **options)
            except Missing as missing:
                self.missing[lane.name] = str(missing)
                lanes.remove(lane)
                continue
            calls[lane.name] = max(1, min(most, int(ROUND_NS / max(first["ns"], 1.0))))
        found: dict[str, list[dict[str, float]]] = {lane.name: [] for lane in lanes}
        spent = {lane.name: 0.0 for lane in lanes}
        for turn in range(number):
            self._random.shuffle(lanes)
            for lane in lanes:
                if turn >= 3 and spent[lane.name] > 1.0:
                    continue  # a slow peer is known well enough
                began = time.monotonic()
                speed_ns = lane.ask("speed")["ns"]
                self.speeds.append(speed_ns)
                sample = lane.ask(measure, calls=calls[lane.name], **options)
                scale = REFERENCE_NS / speed_ns
                found[lane.name].append(sample | {key + AT_REFERENCE: value * scale for key, value in sample.items()})
                spent[lane.name] += time.monotonic() - began
        return {
            name: {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}
            for name, samples in found.items()
            if samples
        }

    def once(self, name: str, measure: str, **options: Any) -> dict[str, Any] | None:
        """One measurement in a process of its own; None if it cannot be made here."""
        try:
            lane = self.fresh(name)
            try:
                return lane.ask(measure, **options)
            finally:
                lane.close()
        except Missing as missing:
            self.missing[name] = str(missing)
            return None

    def timed(self, commands: dict[str, Callable[[], float]], number: int) -> dict[str, float]:
        """Medians of what the functions return, called in shuffled rounds."""
        names = list(commands)
        found: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(number):
            self._random.shuffle(names)
            for name in names:
                self.speeds.append(speed()["ns"])
                found[name].append(commands[name]())
        return {name: statistics.median(values) for name, values in found.items()}

    def release(self) -> None:
        """End the processes kept so far."""
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()
        self._cpu += 1

    def close(self) -> None:
        """End everything that was started."""
        self.release()
        if self._weave is not None:
            self._weave.terminate()
            self._weave.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def weave_environment(self) -> dict[str, str]:
        """Variables that point W&B's client, or our sink, to the server of this run."""
        address = self._sink()
        return {"WF_TRACE_SERVER_URL": address, "WANDB_BASE_URL": address, "WANDB_API_KEY": "x" * 40}

    def _sink(self) -> str:
        if self._weave is None:
            self._weave = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.weave_sink"], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
            assert self._weave.stdout is not None
            self._weave_url = self._weave.stdout.readline().strip()
        return self._weave_url
