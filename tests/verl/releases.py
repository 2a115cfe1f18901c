"""Unpacked releases of veRL beside the installed one, and programs run with each under ``autotrace-run``.

``VERL_RELEASES`` names their folder (``0.7.1/verl/...``); ``make verl-releases`` makes it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from programs import HERE, LIMIT, ROOT

FOLDERS = sorted(folder.parent for folder in Path(os.environ.get("VERL_RELEASES", "/nowhere")).glob("*/verl"))
"""``.../0.7.1``; the name is the release."""


@dataclass
class Ran:
    """What a run left: its trajectories, and what happened to each target."""

    trajectories: list[dict[str, Any]]
    status: dict[str, Any]

    def target(self, name: str) -> dict[str, Any]:
        """What happened to the target one of whose names is ``name``."""
        return next(target for target in self.status["targets"] if target["key"] == name)


def environment(release: Path | None) -> dict[str, str]:
    """The variables of a process that shall find ``release``, or what is installed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    path = [ROOT, HERE, ROOT / "examples" / "verl_loop", *([release] if release else [])]
    return {**environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "RAY_USAGE_STATS_ENABLED": "0"}


def run(folder: Path, release: Path | None, program: str, *arguments: str, spec: str = "") -> Ran:
    """``program`` (a file beside this one) under the launcher; it has to succeed without a failure of ours."""
    (folder / "spec.yaml").write_text(spec)
    launch = [sys.executable, "-m", "autotrace.launch.main", "--run-dir", str(folder / "runs")]
    options = ["--backend", "jsonl", "--drain-timeout", "120", "--spec", str(folder / "spec.yaml")]
    done = subprocess.run(
        [*launch, *options, sys.executable, str(HERE / program), *arguments],
        env=environment(release), cwd=folder, timeout=LIMIT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (run_folder,) = [path.parent for path in (folder / "runs").glob("*/status.json")]
    status = json.loads((run_folder / "status.json").read_text())
    assert not [reason for reason in status["drops"] if reason.startswith("fault:")], status["drops"]
    lines = (run_folder / "trajectories.jsonl").read_text().splitlines()
    return Ran([json.loads(line) for line in lines], status)
