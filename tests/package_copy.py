"""A copy of the package that a test changes, as a newcomer changes the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import DEADLINE

ROOT = Path(__file__).resolve().parents[1]
_IGNORED = shutil.ignore_patterns("__pycache__", "recorded_run", "screenshots")


@dataclass
class Copy:
    """The package, its pages and its tools in ``folder``."""

    folder: Path

    def make(self) -> Copy:
        """Everything as it is in the checkout: also takes out again what was added."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("autotrace", "docs", "patch_specs", "tools"):
            shutil.copytree(ROOT / name, self.folder / name, ignore=_IGNORED)
        for name in ("README.md", "pyproject.toml"):
            shutil.copy(ROOT / name, self.folder)
        (self.folder / "examples").symlink_to(ROOT / "examples")  # README shows a finding of the recorded run
        return self

    def insert(self, path: str, before: str, text: str) -> None:
        """Put ``text`` in front of what stands once in a file."""
        source = (self.folder / path).read_text()
        assert source.count(before) == 1, (path, before)
        self.write(path, source.replace(before, text + before))

    def write(self, path: str, text: str) -> None:
        """A file of the copy."""
        (self.folder / path).parent.mkdir(exist_ok=True)
        (self.folder / path).write_text(text)

    def read(self, path: str) -> str:
        """A file of the copy."""
        return (self.folder / path).read_text()

    @property
    def environ(self) -> Mapping[str, str]:
        """Of a process that imports the copy."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
        return {**kept, "PYTHONPATH": str(self.folder), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}

    def python(self, *words: object, code: int = 0) -> str:
        """What Python with the copy prints; it has to end with ``code``."""
        done = subprocess.run(
            [sys.executable, *map(str, words)], env=self.environ, cwd=self.folder, capture_output=True, text=True,
            timeout=DEADLINE,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def autotrace(self, *words: object, code: int = 0) -> str:
        """What a command prints."""
        return self.python("-m", "autotrace", *words, code=code)

    def rows(self, *words: object) -> list[dict[str, Any]]:
        """The lines of JSON that a command prints."""
        return [json.loads(line) for line in self.autotrace(*words, "--json").splitlines()]

    def ship(self, run: Path) -> None:
        """Deliver what is there."""
        program = "import sys; from pathlib import Path; from autotrace.ship.shipper import ship"
        assert self.python("-c", f"{program}; print(ship(Path(sys.argv[1]), once=True).state)", run) == "done\n"
