"""Other projects have a module ``autotrace``. Installed over this one, each command says so in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import some
from tests.places import ROOT, Place, installation, place  # noqa: F401 - fixtures

COMMANDS = (["autotrace", "doctor"], ["autotrace", "ls"], ["autotrace-run", "python", "-c", "print('ran')"])


def install(folder: Path, name: str, text: str) -> None:
    """Put another package with the module ``text`` into ``folder``, over a copy of this one."""
    (folder / "autotrace").mkdir(parents=True)
    for path in (ROOT / "autotrace").iterdir():
        if path.name not in ("__init__.py", "__pycache__"):
            (folder / "autotrace" / path.name).symlink_to(path)
    (folder / "docs").symlink_to(ROOT / "docs")  # a source tree carries its pages beside the package
    (folder / "autotrace" / "__init__.py").write_text(text)
    about = folder / f"{name.replace('-', '_')}-0.1.4.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.4\n")
    (about / "RECORD").write_text("autotrace/__init__.py,,\n")


OTHERS = (("autotrace-py", '__version__ = "0.1.4"\n'), ("autotrace", ""))


@pytest.mark.parametrize("name, text", some(OTHERS, OTHERS[0]))
def test_every_command_explains_it(name: str, text: str, place: Place) -> None:  # noqa: F811
    install(place.cwd / "packages", name, text)
    for words in COMMANDS:
        done = place.run([str(place.bin / words[0]), *words[1:]], {"PYTHONPATH": str(place.cwd / "packages")})
        assert done.returncode and not done.stdout, done
        (said,) = done.stderr.splitlines()
        assert said.startswith("autotrace: ") and f"is not that of autotrace-rl: {name} 0.1.4 replaced it" in said


def test_doctor_names_a_package_that_this_one_replaced(place: Place) -> None:  # noqa: F811
    install(place.cwd / "packages", "autotrace-py", (ROOT / "autotrace" / "__init__.py").read_text())
    done = place.run([str(place.bin / "autotrace"), "doctor"], {"PYTHONPATH": str(place.cwd / "packages")})
    assert done.returncode == 1 and "pip uninstall autotrace-py" in done.stdout, done
