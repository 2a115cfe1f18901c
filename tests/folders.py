"""What is in a folder while something in it may go: the journal of a state whose shipper is just ending."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path


def contents(folder: Path) -> dict[Path, bytes]:
    """The files below ``folder`` and what is in them."""
    found: dict[Path, bytes] = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                found[path] = path.read_bytes()
    return found


def modes(folder: Path) -> dict[Path, int]:
    """Files and folders below ``folder``, and who may use them; links are left out."""
    found: dict[Path, int] = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if not stat.S_ISLNK(status.st_mode):
                found[path] = stat.S_IMODE(status.st_mode)
    return found
