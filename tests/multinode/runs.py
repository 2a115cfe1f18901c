"""A run of ``program/driver.py`` on the cluster, and what came of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from autotrace.run import layout
from tests.multinode.cluster import PROGRAM, Cluster, Node, until


class Run:
    """``autotrace-run ... driver.py SCENARIO`` on node 1. ``ready``/``go`` are the stops in the middle."""

    def __init__(self, cluster: Cluster, scenario: str, *words: str, backend: str = "jsonl", **environ: str) -> None:
        self.cluster = cluster
        self._before = set(cluster.node1.runs.iterdir())
        launcher = [sys.executable, "-m", "autotrace.launch.main", "--backend", backend, "--drain-timeout", "90"]
        options = ["--keep-spool", "1", "--run-dir", str(cluster.runs), "--spec", str(PROGRAM / "agents.yaml")]
        driver = [sys.executable, str(PROGRAM / "driver.py"), cluster.address, scenario, *words]
        self.process = cluster.node1.popen(
            [*launcher, *options, *driver], {**cluster.environ, **environ},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.stderr = ""
        self.stdout: list[str] = []
        self._reader = threading.Thread(target=self._read_stderr)
        self._reader.start()

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr += line

    def ready(self) -> None:
        """Wait until the driver asks for it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.stdout.append(line.rstrip("\n"))
            if line == "ready\n":
                return
        self._reader.join()
        raise AssertionError(self.stderr)

    def go(self) -> None:
        """Let the driver go on."""
        assert self.process.stdin is not None
        print("go", file=self.process.stdin, flush=True)

    def end(self) -> None:
        """Wait for the driver, which must have got all its answers."""
        assert self.process.stdout is not None
        self.stdout += self.process.stdout.read().split("\n")
        code = self.process.wait(timeout=300)
        self._reader.join()
        assert code == 0 and "all answers right" in self.stdout, "\n".join([*self.stdout, self.stderr])

    @property
    def folder(self) -> Path:
        """The run's folder on node 1, as seen from here."""
        (found,) = (path for path in set(self.cluster.node1.runs.iterdir()) - self._before if path.is_dir())
        return found

    def folder_on(self, node: Node) -> Path:
        """The run's folder on a node, as seen from here."""
        return node.runs / self.folder.name

    def trajectories(self) -> list[Trajectory]:
        """What stands in ``trajectories.jsonl``."""
        lines = (self.folder / "trajectories.jsonl").read_text().splitlines()
        return [Trajectory(json.loads(line)) for line in lines]

    def status(self) -> dict[str, Any]:
        """``status.json``."""
        found: dict[str, Any] = json.loads((self.folder / layout.STATUS_JSON).read_text())
        return found

    def ship(self) -> str:
        """``autotrace ship`` on node 1, to the end."""
        words = [sys.executable, "-m", "autotrace.cli.main", "ship", str(self.cluster.runs / self.folder.name)]
        done = self.cluster.node1.run(words, self.cluster.environ)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


class Trajectory:
    """A line of ``trajectories.jsonl``."""

    def __init__(self, line: dict[str, Any]) -> None:
        self.id, self.status, self.notes = line["trace_id"], line["status"], line["notes"]
        sample = line["attributes"].get("sample_index")
        self.name = (None if sample is None else int(sample), line["attributes"].get("rollout_n"))
        self.spans = line["spans"]
        self._by_id = {span["span_id"]: span for span in self.spans}

    def edges(self) -> Counter[tuple[str, str]]:
        """(caller, called) of all calls."""
        return Counter((self.above(span)["name"], span["name"]) for span in self.spans[1:])

    def above(self, span: dict[str, Any]) -> dict[str, Any]:
        """The caller's span."""
        found: dict[str, Any] = self._by_id[span["parent_id"]]
        return found

    def named(self, name: str) -> list[dict[str, Any]]:
        """The calls of that name."""
        return [span for span in self.spans if span["name"] == name]


ROLLOUT = {
    ("Agent.rollout", "Agent.think"): 2,
    ("Agent.think", "Engine.generate"): 2,
    ("Agent.rollout", "Search.look_up"): 1,
}
"""Who calls whom in one rollout, wherever each of them runs."""


def whole(run: Run, samples: range) -> None:
    """Every rollout of these samples is there once, complete, each call below its caller."""
    found = run.trajectories()
    assert Counter(each.name for each in found) == {(sample, n): 1 for sample in samples for n in range(4)}
    assert len({each.id for each in found}) == len(found)
    for each in found:
        assert each.status == "OK" and not each.notes, (each.status, each.notes)
        assert each.edges() == ROLLOUT


def killed(node: Node, words: str) -> None:
    """``kill -9`` of the one process whose command line ends with a program of ours, and not of its guard."""

    def only() -> int:  # each process that begins to record tries to start a relay; all but one end at once
        found = [pid for pid in node.processes(f"-m {words} ") if "guard" not in line_of(pid)]
        return found[0] if len(found) == 1 else 0

    pid = until(only, f"there is not one {words}")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{pid}/exe"), "it lives")


def line_of(pid: int) -> str:
    """Command line of a process, "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
