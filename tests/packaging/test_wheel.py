"""The wheel and the editable install: what is inside, and that both work in an empty environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from autotrace.spec.compiler import COMPILED
from hatch_build import index_page
from tests.cases import some
from tests.waiting import DEADLINE, until

ROOT = Path(__file__).resolve().parents[2]
SHOW = "import sys; print('autotrace.bootstrap.activate' in sys.modules)"


def uv(*words: str | Path) -> None:
    """Run uv; ``pip``'s own places of wheels and its index settings are in the environment."""
    subprocess.run([sys.executable, "-m", "uv", "--quiet", *map(str, words)], check=True, timeout=DEADLINE, cwd=ROOT)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder, ROOT)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module", params=some(["wheel", "editable"], "wheel"))
def environment(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``bin`` of an environment that holds autotrace and its core dependencies, nothing else."""
    folder = tmp_path_factory.mktemp(request.param)
    python = folder / "bin" / "python"
    uv("venv", "--python", sys.executable, "--allow-existing", folder)
    what = [wheel] if request.param == "wheel" else ["--editable", ROOT]
    uv("pip", "install", "--python", python, *what)
    return folder / "bin"


@pytest.fixture(scope="module")
def source(environment: Path, wheel: Path) -> Path:
    """What ``environment`` was installed from: hints of what to install name that, and no name that an index has."""
    return wheel if "wheel" in environment.parent.name else ROOT


def installer(environment: Path, path: str) -> str:
    """Words that install into ``environment``, which has no pip."""
    return f"uv pip install --python {environment / 'python'}" if shutil.which("uv", path=path) else "pip install"


def test_the_wheel_holds_activation_files_and_lists(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())

    assert {"autotrace.pth", "autotrace.start", "autotrace/py.typed", "autotrace/SKILL.md"} <= names
    assert wheel.name.startswith("autotrace_rl-")
    shipped = {f"autotrace/patch_specs/{path.name}" for path in ROOT.glob("patch_specs/*.yaml")}
    assert shipped and {*shipped, f"autotrace/patch_specs/{COMPILED}"} <= names
    modules = {str(path.relative_to(ROOT)) for path in ROOT.glob("autotrace/**/*.py")}
    assert modules <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_backends_are_found_by_entry_points(environment: Path) -> None:
    code = (
        "from importlib.metadata import entry_points; from autotrace.sinks import registry\n"
        "print(*registry.names()); print(*sorted(entry.name for entry in entry_points(group=registry.GROUP)))"
    )
    done = subprocess.run([environment / "python", "-I", "-c", code], capture_output=True, text=True, check=True)
    built_in = sorted(path.parent.name for path in ROOT.glob("autotrace/sinks/*/backend.py"))
    assert built_in and done.stdout.splitlines() == [" ".join(built_in)] * 2


def test_the_lists_are_compiled_before_they_are_installed(environment: Path) -> None:
    code = (
        "import sys; from autotrace.spec.compiler import compile_plan\n"
        "print(len(compile_plan().targets) > 200, 'yaml' in sys.modules)"
    )
    done = subprocess.run([environment / "python", "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_an_index_would_take_the_wheel_and_has_no_dead_link(wheel: Path) -> None:
    """The project has no public address yet, which pyroma asks for twice."""
    uv("run", "--no-project", "--isolated", "--with", "twine", "twine", "check", "--strict", wheel)
    needed = [word for name in ("pyroma", "hatchling", "msgspec", "pyyaml") for word in ("--with", name)]
    pyroma = ["pyroma", "--directory", "--min", "10", "--skip-tests", "AuthorEmail,Url", ROOT]
    uv("run", "--no-project", "--isolated", *needed, *pyroma)

    held = zipfile.ZipFile(wheel)
    (metadata,) = (held.read(name).decode() for name in held.namelist() if name.endswith("/METADATA"))
    assert "\n# autotrace\n" in metadata and "](" not in metadata
    readme = "![tokens](docs/a.png) [view](docs/view.md), [here](#install), [their](https://example.org/x.md)"
    source = "https://example.org/own"
    assert index_page(readme, source) == (
        f"![tokens]({source}/raw/HEAD/docs/a.png) [view]({source}/blob/HEAD/docs/view.md), "
        "[here](#install), [their](https://example.org/x.md)"
    )


def test_nothing_else_lands_in_site_packages(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"autotrace", "autotrace.pth", "autotrace.start"}


def test_a_run_is_its_tables_in_an_empty_environment(environment: Path, source: Path, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def step(x):\n    return x + 1\n")
    (tmp_path / "main.py").write_text(f"import work\n{SHOW}\nprint(work.step(1))\n")
    (tmp_path / "mine.yaml").write_text("- target: work.step\n  role: trajectory\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "PYTHON", "MLFLOW"))}
    variables = {**kept, "PATH": f"{environment}{os.pathsep}{kept['PATH']}"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=DEADLINE, check=False
        )

    assert "so a run is its folder" in run("autotrace", "doctor").stdout
    launched = run("autotrace-run", "--spec", "mine.yaml", "--", "python", "main.py")
    assert (launched.returncode, launched.stdout) == (0, "True\n2\n"), launched.stderr
    said = launched.stderr.splitlines()[-1]
    assert said.startswith("autotrace: saved 1 trajectory to autotrace-runs/")
    words, shown = installer(environment, variables["PATH"]), said.partition("trajectory to ")[2].partition(";")[0]
    assert said.endswith(
        f"; to have them in MLflow: {words} '{source}[mlflow]' && autotrace ship {shown} --backend mlflow"
    )
    (folder,) = (tmp_path / "autotrace-runs").iterdir()
    assert shown == f"autotrace-runs/{folder.name}"
    assert list((folder / "tables").rglob("*.parquet"))
    until(lambda: not list((folder / "spool").iterdir()))  # when the shipper has ended

    listed = run("autotrace", "ls", "--json")
    assert listed.returncode == 0, listed.stderr
    assert len(listed.stdout.splitlines()) == 1
    assert run("autotrace", "sql", "--json", "SELECT count(*) AS n FROM spans").stdout == '{"n": 1}\n'
    assert "backends      none: a run is its folder" in run("autotrace", "status").stdout
    shipped = run("autotrace", "ship", str(folder))
    assert (shipped.returncode, shipped.stdout.partition(" in ")[0]) == (0, "1 trajectory is"), shipped.stderr
    later = run("autotrace", "ship", str(folder), "--backend", "jsonl")
    assert "jsonl: 1 delivered, 0 left" in later.stdout, later.stderr
    assert len((folder / "trajectories.jsonl").read_text().splitlines()) == 1

    option = run("autotrace-run", "--tracking-uri", "sqlite:///here.db", "--", "python", "main.py")
    variables["MLFLOW_TRACKING_URI"] = "http://mlflow:5000"
    variable = run("autotrace-run", "--", "python", "main.py")
    for refused, by in ((option, "option --tracking-uri"), (variable, "environment MLFLOW_TRACKING_URI")):
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr == (
            f"autotrace: {by} names an MLflow store: the backend mlflow needs mlflow, which is not installed beside "
            f"autotrace: {words} '{source}[mlflow]', or choose --backend jsonl\n"
        )
    assert run("autotrace-run", "--backend", "jsonl", "--", "python", "main.py").stdout == "True\n2\n"


def test_the_wheel_holds_the_page(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    page = {str(path.relative_to(ROOT)) for path in ROOT.glob("autotrace/view/static/**/*") if path.is_file()}
    assert {"autotrace/view/static/index.html", "autotrace/view/static/vendor/uPlot.LICENSE"} <= page <= names


def test_the_pages_are_there_without_the_repository(environment: Path, tmp_path: Path) -> None:
    def page(*words: str) -> subprocess.CompletedProcess[str]:
        done = [environment / "autotrace", "help", *words]
        return subprocess.run(done, cwd=tmp_path, capture_output=True, text=True, check=False)

    listed = page().stdout
    assert all(f"  {path.stem} " in listed for path in ROOT.glob("docs/*.md") if path.stem != "index")
    for topic in ("clusters", "data", "AT-RETOKENIZED"):
        (path,) = ROOT.glob(f"docs/**/{topic}.md")
        assert page(topic).stdout == path.read_text()
    wrong = page("cluster")
    assert (wrong.returncode, wrong.stderr) == (2, "autotrace: there is no page 'cluster'; did you mean clusters?\n")


def test_commands_without_the_libraries_of_extras(environment: Path, source: Path, tmp_path: Path) -> None:
    """What a command lacks is one sentence with what installs it, and the others do without."""
    (tmp_path / "work.py").write_text("def step(x):\n    return x + 1\n\nstep(1)\n")
    (tmp_path / "mine.yaml").write_text("- target: work.step\n  role: trajectory\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "PYTHON"))}
    variables = {**kept, "PATH": f"{environment}{os.pathsep}{kept['PATH']}"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=DEADLINE, check=False
        )

    words = installer(environment, variables["PATH"])
    assert run("python", "-c", "import starlette").returncode != 0
    assert (
        "saved 1 trajectory to jsonl"
        in run("autotrace-run", "--backend", "jsonl", "--spec", "mine.yaml", "python", "work.py").stderr
    )
    for command in ("ls", "status", "diagnose", "steps", "export", "runs"):
        done = run("autotrace", command)
        assert done.returncode == 0 and not done.stderr, done.stderr
    for command_words in (("export", "--format", "parquet"), ("sql", "SELECT count(*) FROM trajectories")):
        assert run("autotrace", *command_words).returncode == 0, command_words
    done = run("autotrace", "view", "--no-browser")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert f"{words} '{source}[view]'" in done.stderr
    done = run("autotrace", "mcp")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert f"{words} '{source}[mcp]'" in done.stderr


def test_the_demo_needs_nothing_else(environment: Path, tmp_path: Path) -> None:
    """The recorded run is in the wheel, and is read without veRL and MLflow."""
    words = [environment / "autotrace", "demo", "--run-dir", tmp_path / "runs"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert all(code in done.stdout for code in ("AT-RETOKENIZED", "AT-TOOL-RAISES", "AT-MISMATCH", "AT-STRAGGLER"))
    assert "\nNext:\n    autotrace steps " in done.stdout and "autotrace view" not in done.stdout
    for package in ("verl", "mlflow"):
        assert subprocess.run([environment / "python", "-c", f"import {package}"], capture_output=True).returncode != 0


def test_the_page_needs_its_extra_alone(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    uv("venv", "--python", sys.executable, folder)
    uv("pip", "install", "--python", folder / "bin" / "python", f"{wheel}[view]")
    command = folder / "bin" / "autotrace"
    subprocess.run([command, "demo", "--run-dir", tmp_path / "runs"], check=True, capture_output=True, timeout=DEADLINE)
    (run,) = (tmp_path / "runs").iterdir()
    done = subprocess.run(
        [command, "view", run, "--export", tmp_path / "page.html"],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and (tmp_path / "page.html").stat().st_size > 1_000_000, done.stderr
