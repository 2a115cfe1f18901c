"""Backends by name: built-in ones and others' by the same entry points, listed without importing any."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from autotrace.config import installation
from autotrace.run.info import RunInfo
from autotrace.sinks import registry
from autotrace.sinks.backend import Destination

ROOT = Path(__file__).resolve().parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text()  # Python 3.10 has no tomllib


def section(name: str) -> dict[str, str]:
    """The lines of a section of the project file, without quotes."""
    lines = PROJECT.split(f"[{name}]\n")[1].split("\n\n")[0].replace('"', "").splitlines()
    return dict(line.split(" = ") for line in lines if " = " in line)


BUILT_IN = tuple(section(f'project.entry-points."{registry.GROUP}"'))


@pytest.fixture(autouse=True)
def _listed_anew() -> Iterator[None]:
    def forget() -> None:
        registry._installed.cache_clear()
        registry._warn_of_others.cache_clear()

    forget()
    yield
    forget()


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, entry: str, code: str, module: str = "their_store") -> None:
    """An installed package whose entry point is ``entry`` and whose module holds ``code``."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(code)
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[autotrace.sinks]\n{entry}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, module, raising=False)
    registry._installed.cache_clear()


THEIRS = """
from autotrace.sinks.backend import Backend

class Store(Backend):
    name, summary, requires, install = "store", "a store of theirs", ({library!r},), "pip install their-client"
    def make(self, info, run_folder, memory):
        return ("sink", run_folder)

BACKEND = Store()
"""


def test_the_built_in_ones_stand_in_the_project_file_too() -> None:
    declared = section(f'project.entry-points."{registry.GROUP}"')
    assert declared == {name: entry.value for name, entry in registry._built_in().items()}
    assert list(declared) == sorted(declared) and {"jsonl", registry.DEFAULT} <= set(declared)


def test_what_a_backend_needs_is_an_extra_of_the_project() -> None:
    extras = section("project.optional-dependencies")
    assert {name for name in BUILT_IN if registry.get(name).requires} <= set(extras)
    assert set(registry.distributions()) >= {"mlflow", "weave"}


def test_every_built_in_descriptor_keeps_its_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)  # without one, a run for Weave is refused when it starts
    info = RunInfo("r", "2026-01-01T00:00:00Z", ["python"], "host", 1, list(BUILT_IN))
    for name in BUILT_IN:
        backend = registry.usable(name)
        assert backend.name == name and backend.summary and not backend.summary.endswith(".")
        assert not backend.requires or installation.requirements(name), "an extra of the same name installs them"
        backend.check(Destination())
        backend.prepare(Destination())
        sink = registry.make(name, info, tmp_path, {})
        assert (sink.name, sink.sent) == (name, 0)
        sink.close()
    assert list(tmp_path.iterdir()) == [], "making a sink or preparing without a destination writes nothing"


def test_listing_imports_no_backend_and_a_descriptor_no_library() -> None:
    code = (
        "import sys; from autotrace.sinks import registry; names = registry.names()\n"
        "print(sorted(name for name in sys.modules if name.startswith('autotrace.sinks.') and name.count('.') > 2))\n"
        "for name in names: registry.get(name)\n"
        "print([name for name in ('mlflow', 'httpx', 'requests', 'opentelemetry') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n[]\n"


def test_a_source_tree_without_metadata_has_the_built_in_ones(tmp_path: Path) -> None:
    (tmp_path / "autotrace").symlink_to(ROOT / "autotrace")
    wanted = [path for path in sys.path if path.endswith("site-packages")]
    code = (
        "import sys, importlib.metadata as metadata\n"
        f"sys.path[:0] = {[str(tmp_path)]!r}\n"
        "metadata.distributions = lambda **_: ()\n"
        "from autotrace.sinks import registry\n"
        "print(registry._installed(), *registry.names(), registry.get('jsonl').name)\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(wanted)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.split() == ["{}", *BUILT_IN, "jsonl"]


def test_a_backend_of_another_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path / "theirs", monkeypatch, "store = their_store:BACKEND", THEIRS.format(library="json"))
    assert registry.names() == (*BUILT_IN, "store")
    assert "their_store" not in sys.modules
    info = RunInfo("r", "2026-01-01T00:00:00Z", ["python"], "host", 1, ["store"])
    assert registry.make("store", info, tmp_path, {}) == ("sink", tmp_path)
    assert "store (a store of theirs)" in registry.help_text()


def test_an_unknown_backend_is_told_what_there_is() -> None:
    sentence = f"there is no backend 'mlfow'; choose from {', '.join(BUILT_IN)}"
    with pytest.raises(registry.BackendError, match=sentence):
        registry.get("mlfow")


def test_a_missing_library_is_told_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path / "theirs", monkeypatch, "store = their_store:BACKEND", THEIRS.format(library="no_such.client"))
    with pytest.raises(registry.BackendError, match=r"the backend store needs no_such.client, .*: pip install their-"):
        registry.usable("store")


@pytest.mark.parametrize(
    ("entry", "code", "sentence"),
    [
        (
            "store = their_store:BACKEND",
            "raise RuntimeError('no licence')",
            "cannot be loaded: RuntimeError: no licence",
        ),
        ("store = their_store:ABSENT", "", "cannot be loaded: AttributeError"),
        ("store = their_store:BACKEND", "BACKEND = object()", "does not name an autotrace.sinks.backend.Backend"),
        ("shop = their_store:BACKEND", THEIRS.format(library="json"), "whose name is 'shop'"),
    ],
)
def test_a_package_that_breaks_its_promise_is_named_and_stops_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, code: str, sentence: str
) -> None:
    package(tmp_path / "theirs", monkeypatch, entry, code)
    name = entry.split()[0]
    with pytest.raises(registry.BackendError) as caught:
        registry.usable(name)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)
    assert registry.usable("jsonl").name == "jsonl"
    assert name in registry.help_text()
    assert registry.linked_by("mlflow", [name, "gone", "mlflow"]) == ["mlflow"]


def test_a_built_in_one_wins_over_anothers_of_its_name_and_the_other_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    package(tmp_path / "one", monkeypatch, "mlflow = their_store:BACKEND", THEIRS.format(library="json"))
    for _ in range(2):
        assert type(registry.usable("mlflow")).__module__ == "autotrace.sinks.mlflow.backend"
    assert registry.names() == BUILT_IN
    assert capfd.readouterr().err == (
        "autotrace: warning: their-store has a backend 'mlflow', too; autotrace's own is used\n"
    )


def test_two_packages_with_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path / "one", monkeypatch, "store = their_store:BACKEND", THEIRS.format(library="json"))
    package(tmp_path / "two", monkeypatch, "store = a_store:BACKEND", THEIRS.format(library="json"), "a_store")
    with pytest.raises(registry.BackendError) as caught:
        registry.get("store")
    assert str(caught.value) == (
        "several packages have a backend 'store': a-store (a_store:BACKEND), their-store (their_store:BACKEND); "
        "uninstall all of them but one"
    )
    assert registry.names() == (*BUILT_IN, "store")


def test_what_an_older_autotrace_left_in_its_metadata_is_no_other_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    package(tmp_path / "old", monkeypatch, "mlflow = autotrace.mlflow:BACKEND", "", "autotrace_rl")
    assert registry.usable("mlflow").name == "mlflow"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("raise RuntimeError('no\tlicence')", "which cannot be imported: RuntimeError: no\tlicence"),
        ("import no_such_module_of_theirs", "which is not installed"),
        ("raise ImportError('libfoo.so')", "which cannot be imported: ImportError: libfoo.so"),
    ],
)
def test_a_library_below_a_package_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, sentence: str
) -> None:
    package(tmp_path / "theirs", monkeypatch, "store = their_store:BACKEND", THEIRS.format(library="their_lib.client"))
    (tmp_path / "theirs" / "their_lib").mkdir()
    (tmp_path / "theirs" / "their_lib" / "__init__.py").write_text(code)
    with pytest.raises(registry.BackendError) as caught:
        registry.usable("store")
    assert str(caught.value).startswith("the backend store needs their_lib.client") and sentence in str(caught.value)


def test_a_library_that_something_put_among_the_modules_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path / "theirs", monkeypatch, "store = their_store:BACKEND", THEIRS.format(library="their_stub"))
    monkeypatch.setitem(sys.modules, "their_stub", ModuleType("their_stub"))
    assert registry.usable("store").name == "store"
