"""A list for a library is one file: it is compiled, shipped and checked against the library's releases."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.packs import releases
from tests.waiting import DEADLINE

ROOT = Path(__file__).parents[2]
LIST = """# Foo 1.0
#
# releases of foo: 1.0
# too old of foo: 0.1
- target: foo.agents.Agent.run
  versions: "foo>=1"
"""


def wheel(folder: Path, version: str, source: str) -> None:
    """A wheel of ``foo`` with one module."""
    with zipfile.ZipFile(folder / f"foo-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("foo/__init__.py", "")
        archive.writestr("foo/agents.py", source)
        archive.writestr(f"foo-{version}.dist-info/METADATA", f"Name: foo\nVersion: {version}\n\n")


def test_one_file_is_enough(tmp_path: Path) -> None:
    for name in ("autotrace", "patch_specs", "tests/packs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "patch_specs" / "foo.yaml").write_text(LIST)
    wheel(tmp_path, "1.0", "class Agent:\n    def run(self): ...\n")
    wheel(tmp_path, "0.1", "")

    def check() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "tests/packs/releases.py", "--cache", str(tmp_path), "foo"]
        environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=DEADLINE, check=False
        )

    done = check()
    assert done.stdout.split("\n")[:2] == [
        "ok    foo 0.1                  1 skipped",
        "ok    foo 1.0                  1 resolves",
    ], done.stderr
    assert done.returncode == 0

    wheel(tmp_path, "1.0", "class Agent:\n    def walk(self): ...\n")
    done = check()
    assert done.returncode == 1 and "patch_specs/foo.yaml:5 missing: foo.agents.Agent.run" in done.stdout


def test_every_list_names_its_releases() -> None:
    libraries = {*releases.RELEASES, *(releases.MODULE.get(name, name) for name in releases.RELEASES)}
    for path in releases.LISTS.glob("*.yaml"):
        assert path.stem in libraries, f"{path.name} has no line `# releases of {path.stem}: ...`"
