"""A small environment with autotrace installed, made by hand in 50 ms, and ways to run commands in it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import site
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result

from autotrace.cli.main import main as autotrace
from autotrace.config import stderr
from autotrace.launch import main as launcher
from autotrace.launch.command import Command
from autotrace.run import layout, shipper_process
from autotrace.ship.shipper import ship
from tests.waiting import DEADLINE

ROOT = Path(__file__).resolve().parents[1]
SHOW = "import os, sys; print(os.getpid(), 'autotrace.bootstrap.activate' in sys.modules, sys.argv[1:])"
"""Host code: its pid, whether the agent is loaded, its arguments."""


@dataclass
class Place:
    """An environment and a folder to work in."""

    bin: Path
    cwd: Path

    @property
    def python(self) -> str:
        return str(self.bin / "python")

    @property
    def launcher(self) -> str:
        return str(self.bin / "autotrace-run")

    def environ(self, **more: str) -> dict[str, str]:
        """The test's environment without anything of autotrace's, with the place's commands first."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "PYTHON"))}
        return {**kept, "PATH": f"{self.bin}{os.pathsep}{kept['PATH']}", "MLFLOW_TRACKING_URI": "", **more}

    def command(
        self, argv: Sequence[str], options: Sequence[str] = (), backend: Sequence[str] = ("--backend", "jsonl")
    ) -> list[str]:
        return [self.launcher, *backend, *options, "--", *argv]

    def run(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run ``argv`` as it is."""
        return subprocess.run(
            list(argv),
            cwd=self.cwd,
            env=self.environ(**(env or {})),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
            stdin=subprocess.DEVNULL,
            **more,
        )

    def launch(
        self, argv: Sequence[str], options: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``argv`` under ``autotrace-run``, which waits for delivery: the shipper has the lowest priority."""
        return self.run(self.command(argv, options), {"AUTOTRACE_DRAIN_TIMEOUT": "300", **(env or {})})

    def refusal(
        self,
        argv: Sequence[str],
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        backend: Sequence[str] = ("--backend", "jsonl"),
    ) -> tuple[int, str]:
        """Exit code and stderr of a launcher that starts nothing, in this process: a start of Python takes longer than
        the launcher needs to refuse a command."""

        def started(*_: Any) -> NoReturn:
            raise AssertionError("the command was started")

        with self._launcher_here(self.environ(**(env or {}))) as (patch, said):
            patch.setattr(launcher, "_become", started)
            patch.setattr("autotrace.launch.supervise.supervise", started)
            with pytest.raises(SystemExit) as ended:
                launcher.main(self.command(argv, options, backend)[1:])
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.getvalue()

    def record(
        self,
        argv: Sequence[str],
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        is_delivered: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``argv`` as ``launch`` does, with the launcher and the delivery in this process, for half of the CPU.

        For tests of what is recorded: the command is not the launcher's process, and waits for no delivery."""

        class Begun(Exception):
            pass

        def execute(command: Command, environ: Mapping[str, str]) -> NoReturn:
            raise Begun(command.path, list(command.argv), dict(environ))

        with self._launcher_here(self.environ(**(env or {}))) as (patch, said):
            patch.setattr(Command, "execute", execute)
            patch.setattr(shipper_process, "start", lambda *_: None)
            with pytest.raises(Begun) as begun:
                launcher.main(self.command(argv, options)[1:])
        path, words, environ = begun.value.args
        with subprocess.Popen(
            words, executable=path, cwd=self.cwd, env=environ, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            out, err = process.communicate(timeout=DEADLINE)
        if is_delivered:
            run = Path(environ["AUTOTRACE_RUN_FOLDER"])
            info = json.loads((run / layout.RUN_JSON).read_text())
            (run / layout.RUN_JSON).write_text(json.dumps({**info, "main_pid": process.pid}))
            assert ship(run, once=True).state == "done"
        return subprocess.CompletedProcess(words, process.returncode, out, said.getvalue() + err)

    def cli(self, *words: str | Path, **env: str) -> Result:
        """What ``autotrace WORDS`` says here, in this process."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.cwd)
            for name in [name for name in os.environ if name.startswith("AUTOTRACE")]:
                patch.delenv(name)
            for name, value in env.items():
                patch.setenv(name, value)
            return CliRunner().invoke(autotrace, [*map(str, words)], catch_exceptions=False)

    @contextlib.contextmanager
    def _launcher_here(self, environ: Mapping[str, str]) -> Iterator[tuple[pytest.MonkeyPatch, io.StringIO]]:
        """The launcher can be called in this process as if it were in one of its own with ``environ``."""
        said, interrupt = io.StringIO(), signal.getsignal(signal.SIGINT)
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
            patch.chdir(self.cwd)
            patch.setattr(stderr, "put", lambda data: said.write(data.decode()))
            patch.setattr(sys, "executable", self.python)
            patch.setattr(sys, "prefix", str(self.bin.parent))
            for name in set(os.environ) - set(environ):
                patch.delenv(name)
            for name, value in environ.items():
                patch.setenv(name, value)
            try:
                yield patch, said
            finally:
                signal.signal(signal.SIGINT, interrupt)

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def runs(self) -> list[Path]:
        return sorted(path.parent for path in self.cwd.glob("autotrace-runs/*/run.json"))

    def info(self) -> dict[str, Any]:
        """``run.json`` of the only run."""
        (run,) = self.runs()
        found: dict[str, Any] = json.loads((run / "run.json").read_text())
        return found


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a virtual environment that finds what the test finds, and this checkout of autotrace."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    found = [*site.getsitepackages(), *(entry for entry in sys.path if entry.endswith("site-packages"))]
    (packages / "_found.pth").write_text("\n".join([str(ROOT), *dict.fromkeys(found)]) + "\n")
    for name in ("autotrace.pth", "autotrace.start"):
        (packages / name).write_text((ROOT / name).read_text())
    scripts = {"autotrace-run": "autotrace.launch.main", "autotrace": "autotrace.cli.main"}
    for script, module in scripts.items():
        path = folder / "bin" / script
        path.write_text(f"#!{folder}/bin/python\nimport sys\nfrom {module} import main\nsys.exit(main())\n")
        path.chmod(0o755)
    return folder / "bin"


@pytest.fixture
def place(installation: Path, tmp_path: Path) -> Place:
    """A folder of the test's own in the environment."""
    return Place(installation, tmp_path)
