"""The code before, out of a repository's history."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import pytest

from benchmarks import before


def git(repository: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    command = ["git", "-C", str(repository), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "autotrace").mkdir()
    (tmp_path / "autotrace" / "__init__.py").write_text("old = True\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "old")
    return tmp_path


def test_it_is_there_for_the_block_and_leaves_nothing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(before.COMMITS, before.DELIVERY, git(repository, "rev-parse", "HEAD"))
    (repository / "autotrace" / "__init__.py").write_text("old = False\n")
    missing: dict[str, str] = {}
    with before.checkout(before.HISTORY, missing, repository=repository) as folder:
        assert folder is not None and (folder / "autotrace" / "__init__.py").read_text() == "old = True\n"
        assert [path.name for path in folder.iterdir()] == ["autotrace"]
    assert not folder.exists() and not missing
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_a_history_that_ends_later_is_said(repository: Path) -> None:
    missing: dict[str, str] = {}
    with before.checkout(before.HISTORY, missing, repository=repository) as folder:
        assert folder is None
    assert (
        before.COMMITS[before.DELIVERY][:7] in missing["delivery, before"]
        and "git fetch --unshallow" in missing["delivery, before"]
    )


def test_files_without_a_repository_are_said(tmp_path: Path) -> None:
    missing: dict[str, str] = {}
    with before.checkout(before.HISTORY, missing, repository=tmp_path) as folder:
        assert folder is None
    assert before.COMMITS[before.DELIVERY][:7] in missing["delivery, before"]


def test_a_checkout_or_none(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    missing: dict[str, str] = {}
    with before.checkout(before.named(str(repository)), missing) as folder:
        assert folder == repository
    with before.checkout(before.named("none"), missing) as folder:
        assert folder is None
    assert not missing
    with pytest.raises(argparse.ArgumentTypeError, match="no checkout of autotrace"):
        before.named(str(tmp_path_factory.mktemp("empty")))
