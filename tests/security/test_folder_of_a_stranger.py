"""A run folder that somebody else made: whatever stands in it, every command that reads it writes nothing, runs nothing
and follows no link."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autotrace.cli.main import main
from autotrace.run import layout
from autotrace.ship.store.state import State
from tests.cli.test_unreadable import commands
from tests.security.reading import run as read
from tests.ship.spools import Process, new_run, trajectory

AUTOTRACE = str(Path(sys.executable).with_name("autotrace"))
SHADOWED = ("transformers", "tokenizers", "autotrace", "json", "msgspec", "click", "sqlite3", "platform")
SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")


def reading(run: Path) -> list[list[str]]:
    """Every command that reads ``run`` and needs no place to write to."""
    return [
        *(words for words in commands(run) if words[0] not in ("ship", "door", "view")),
        *(["export", str(run), "--format", name, "--out", "-"] for name in ("jsonl", "sft")),
        ["view", str(run), "--export", "page.html"],
    ]


def called(every: list[list[str]], folder: Path) -> list[dict[str, Any]]:
    """What ``autotrace WORDS`` says and does, each of ``every``, with ``folder`` as the current directory."""
    answers = read(every, folder, folder / "mine")
    assert len(answers) == len(every) and not any("Traceback" in one["err"] for one in answers), answers
    return answers


def started(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """``autotrace WORDS`` in a process of its own, with ``folder`` as the current directory."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "PYTHON"))}
    done = subprocess.run(
        [AUTOTRACE, *words], cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with token ids that no shipper has read."""
    return recorded(tmp_path / "runs", {})


def recorded(runs: Path, bind: dict[str, object]) -> Path:
    """A run whose records say this of its tokenizer."""
    runs.mkdir()
    run = new_run(runs)
    process = Process(run)
    if bind:
        process.bind("tokenizer", **{"blob": None, **bind})
    for rollout in (0, 1):
        trajectory(process, step=1, rollout=rollout, uid="u", reward=0.5)
    process.exit()
    return run


def files_of(folder: Path) -> dict[str, tuple[int, str]]:
    """Of every file when it was changed, and its content."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, _content(path)) for path in sorted(folder.rglob("*"))
    }


def _content(path: Path) -> str:
    if path.is_symlink():
        return os.readlink(path)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def test_reading_writes_nothing(run: Path, elsewhere: Path) -> None:
    before = files_of(run)
    called(reading(run), elsewhere)
    assert files_of(run) == before


@pytest.mark.long
def test_no_code_that_came_with_a_tokenizer_runs(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    run = recorded(tmp_path / "runs", {"path": "theirs/model", "blob": "theirs", "trust_remote_code": True})
    copy = run / layout.BLOBS / "theirs"
    copy.mkdir(parents=True)
    (copy / "config.json").write_text('{"model_type": "theirs", "auto_map": {"AutoConfig": "code.Theirs"}}')
    (copy / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "Theirs", "auto_map": {"AutoTokenizer": ["code.Theirs", null]}}'
    )
    (copy / "code.py").write_text(f"open({str(ran)!r}, 'w').close()\nclass Theirs: pass\n")
    monkeypatch.chdir(elsewhere)
    for words in [*reading(run), ["ship", str(run), "--backend", "jsonl"]]:
        CliRunner().invoke(main, words, catch_exceptions=False)  # here: transformers is imported once
        assert not ran.exists(), words


def test_no_module_of_the_current_directory_is_imported(tmp_path: Path, elsewhere: Path) -> None:
    ran = tmp_path / "ran"
    run = recorded(tmp_path / "runs", {"path": "theirs/model", "blob": "theirs"})
    (run / layout.BLOBS / "theirs").mkdir(parents=True)
    for name in SHADOWED:
        (elsewhere / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})\n")
    reads = [words for words in reading(run) if words[0] in ("ls", "show", "sql")]
    for words in [*reads, ["ship", str(run), "--backend", "jsonl"]]:
        started(words, elsewhere)
        assert not ran.exists(), (words, ran.read_text())


def test_one_helper_starts_every_interpreter_of_ours() -> None:
    """``run.process.python``: with ``-P``."""
    package = Path(layout.__file__).parents[1]
    starts = re.compile(r'sys\.executable, (?:"-P", )?"-[mc]"')
    others = [path for path in package.rglob("*.py") if starts.search(path.read_text())]
    assert [path.name for path in others] == ["process.py"]


def test_export_writes_through_no_link_of_the_folder(tmp_path: Path, run: Path, elsewhere: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    exported = run / "export" / "jsonl"
    exported.mkdir(parents=True)
    (exported / "trajectories.jsonl").symlink_to(mine)
    (done,) = called([["export", str(run)]], elsewhere)
    assert done["code"] and "is a link" in done["err"] and "--out" in done["err"]
    assert mine.read_text() == "mine"


@pytest.mark.long
def test_nothing_of_the_readers_is_copied_into_the_folder(tmp_path: Path, elsewhere: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("config.json", "secrets.py", "tokenizer.json"):
        (project / name).write_text("{}")
    run = recorded(tmp_path / "runs", {"path": str(project)})
    for every in (reading(run), [["ship", str(run), "--backend", "jsonl"]]):
        called(every, elsewhere)
        copies = {path.name for path in run.rglob("*")} & {path.name for path in project.iterdir()}
        assert not copies, every


@pytest.mark.parametrize("database", ["state", "mlflow"])
def test_no_file_is_removed_that_a_journal_names(database: str, tmp_path: Path, run: Path, elsewhere: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    if database == "state":
        path, backend = run / layout.STATE_DB, "jsonl"
        State.of_run(run).close()
    else:
        path, backend = run.parent / layout.DEFAULT_MLFLOW_DB, "mlflow"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("CREATE TABLE theirs (it)")
    name = os.fsencode(mine)
    header = SUPER_JOURNAL + struct.pack(">5I", 0, 0, path.stat().st_size // 4096, 512, 4096)
    named = struct.pack(">I", 1 << 18 | 1) + name + struct.pack(">2I", len(name), sum(name)) + SUPER_JOURNAL
    Path(f"{path}-journal").write_bytes(header.ljust(512, b"\0") + named)
    for every in (reading(run), [["ship", str(run), "--backend", backend]]):
        called(every, elsewhere)
        assert mine.read_text() == "mine", every
