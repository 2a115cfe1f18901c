"""The code before, taken out of this repository's own history, so that both columns of a table come from one run."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import tempfile
from collections.abc import Iterator, MutableMapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DELIVERY, CALLS, ONE_FORM = "delivery", "calls", "one form"
COMMITS = {
    DELIVERY: "8d4fcdb1eba1bfc0412fbdd499a25c687eb61788",  # before delivery was made faster
    CALLS: "898dc72bbe11147043c055f787895e0ac84d411d",  # no call is to cost more than there
    ONE_FORM: "211d7652fe0dfeed396c1364dce80f5f6ddf8cef",  # the last one whose readers assembled segments
}
"""Table -> the commit that stands beside this one in it."""
HISTORY, NONE = "history", "none"
HELP = f"what *before* is: another checkout, {HISTORY} (the default: the commits of {Path(__file__).name}) or {NONE}"


def named(value: str) -> str:
    """The argument of ``--against``: ``history``, ``none``, or a folder that holds ``autotrace``."""
    if value in (HISTORY, NONE):
        return value
    if not Path(value, "autotrace").is_dir():
        raise argparse.ArgumentTypeError(
            f"{value} is no checkout of autotrace; make one with: git worktree add PATH COMMIT"
        )
    return str(Path(value).resolve())


@contextlib.contextmanager
def checkout(
    against: str, missing: MutableMapping[str, str], table: str = DELIVERY, repository: Path = ROOT
) -> Iterator[Path | None]:
    """The folder whose ``autotrace`` is measured as *before*, there until the end of the block; ``against`` as
    ``named`` gives it. None where there is none: without a history (a shallow clone, files without a repository)
    ``missing`` says why."""
    if against != HISTORY:
        yield None if against == NONE else Path(against)
        return
    with tempfile.TemporaryDirectory(prefix="autotrace-before-") as name:
        folder = Path(name).resolve()
        try:
            _unpack(repository, folder, COMMITS[table])
        except (OSError, subprocess.CalledProcessError) as error:
            missing[f"{table}, before"] = f"commit {COMMITS[table][:7]} cannot be unpacked: {_why(error)}"
            yield None
            return
        yield folder


def _unpack(repository: Path, folder: Path, commit: str) -> None:
    """Leaves nothing in the repository, which a worktree would."""
    archive = folder / "before.tar"
    for command in (
        ["git", "-C", str(repository), "archive", f"--output={archive}", commit, "autotrace"],
        ["tar", "-x", "-f", str(archive), "-C", str(folder)],
    ):
        subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    archive.unlink()


def _why(error: OSError | subprocess.CalledProcessError) -> str:
    if not isinstance(error, subprocess.CalledProcessError):
        return str(error)
    said = (error.stderr.strip().splitlines() or [str(error)])[-1]
    return f"{said}; in a shallow clone: git fetch --unshallow" if "archive" in error.cmd else said
