"""A node without the run's folder: where its processes write, and how they ask for a relay and a collector."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from autotrace.run import files, layout, remote_node


@pytest.fixture
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Of a run whose folder cannot be made here."""
    (tmp_path / "file").write_text("")
    return {"AUTOTRACE_RUN_FOLDER": str(tmp_path / "file" / "runs" / "run-1")}


def modes(folder: str, top: Path) -> set[int]:
    """Of ``folder`` and those above it, below ``top``."""
    path = Path(folder)
    return {each.stat().st_mode & 0o777 for each in [path, *path.parents] if top in each.parents}


def test_all_processes_of_a_node_share_one_private_folder(tmp: Path, environ: dict[str, str]) -> None:
    first = remote_node.run_folder(environ)
    assert remote_node.run_folder(environ) == first == str(tmp / f"autotrace-{os.getuid()}" / "run-1")
    assert os.path.isdir(layout.spool_of(first))
    assert modes(layout.spool_of(first), tmp) == {0o700}


def test_the_same_path_is_used_where_it_can_be_made(tmp_path: Path, tmp: Path) -> None:
    folder = str(tmp_path / "runs" / "run-1")
    assert remote_node.run_folder({"AUTOTRACE_RUN_FOLDER": folder}) == folder
    (tmp_path / "runs" / "run-1").chmod(0o777)
    assert remote_node.run_folder({"AUTOTRACE_RUN_FOLDER": folder}).startswith(str(tmp))


@pytest.mark.parametrize("level", ["autotrace-{uid}", "autotrace-{uid}/run-1", "autotrace-{uid}/run-1/spool"])
@pytest.mark.parametrize("what", ["writable by all", "link"])
def test_nothing_is_written_below_a_folder_that_another_user_may_change(
    tmp: Path, tmp_path: Path, environ: dict[str, str], level: str, what: str
) -> None:
    theirs = tmp / level.format(uid=os.getuid())
    theirs.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    if what == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        theirs.symlink_to(tmp_path / "elsewhere")
    else:
        theirs.mkdir()
        theirs.chmod(0o777)
    folder = remote_node.run_folder(environ)
    assert not folder.startswith(str(tmp / f"autotrace-{os.getuid()}") + os.sep)
    assert os.path.basename(folder) == "run-1" and os.path.isdir(layout.spool_of(folder))
    assert modes(layout.spool_of(folder), tmp) == {0o700}
    assert list(theirs.iterdir()) == []


def test_nothing_is_written_below_a_folder_of_another_user(
    tmp: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    another = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: another)
    folder = remote_node.run_folder(environ)
    assert os.path.dirname(folder) != str(tmp / f"autotrace-{os.getuid()}")
    assert os.path.isdir(layout.spool_of(folder))


def test_a_process_killed_while_it_asked_keeps_nobody_from_asking(tmp_path: Path) -> None:
    os.close(files.new(tmp_path / f"{layout.LISTEN}.part"))
    remote_node._ask_to_listen(str(tmp_path), "10.0.0.1:6379")
    assert (tmp_path / layout.LISTEN).read_text() == "10.0.0.1:6379"


def test_a_relay_that_does_not_start_in_time_is_an_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: Any, timeout: float, **__: Any) -> None:
        raise subprocess.TimeoutExpired("sh", timeout)

    monkeypatch.setenv("AUTOTRACE_COLLECTOR", "tcp://10.0.0.1:1")
    monkeypatch.setattr(subprocess, "run", late)
    with pytest.raises(OSError, match=r"cluster\.relay was not started within 10 seconds"):
        remote_node.start_relay(str(tmp_path))
