"""The Ray case against the oldest and newest releases that veRL runs on: ``python -m tests.conformance.ray_versions``.

Each release gets a small environment of its own below ``RAY_ENVS`` (default ``.ray``), made on first use.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .processes import ROOT
from .ray_case import check

RELEASES = ("2.44.0", "2.49.0", "2.60.0")


def environment(release: str, folder: Path) -> str:
    """The interpreter of an environment with that release of Ray."""
    python = folder / f"ray-{release}" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "uv", "venv", "-q", str(python.parents[1])], check=True)
        install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", str(python)]
        subprocess.run([*install, f"ray=={release}", "--editable", str(ROOT)], check=True)
    return str(python)


def main() -> int:
    folder = Path(os.environ.get("RAY_ENVS", ".ray")).resolve()
    failed = 0
    for release in sys.argv[1:] or RELEASES:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                print(release, check(Path(scratch), environment(release, folder)), flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{release} FAILED: {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
