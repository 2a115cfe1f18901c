"""Where tables are copied to: ``PROJECT/RUN/`` below a root, as in a folder of run folders."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "AUTOTRACE_PARQUET"
"""Folder or URL (``s3://bucket/folder``) of the Parquet files; default: ``parquet`` in the run directory."""
FOLDER = "parquet"
_LIBRARIES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs",
    "hdfs": "pyarrow", "memory": "fsspec",
}  # fmt: skip
"""Scheme of a URL -> the module that fsspec needs for it."""


def is_url(root: str) -> bool:
    """Not a path of this machine."""
    return "://" in root and not root.startswith("file://")


def local(root: str) -> Path:
    """The path that ``root`` is."""
    return Path(os.path.abspath(os.path.expanduser(root.removeprefix("file://"))))


def check(root: str | None, find: Callable[[str], Any]) -> None:
    """Whether ``root`` could be written to, without a connection. ``find(module)``: None where it is not installed.
    Raises ``ValueError`` with one sentence."""
    if not root:
        return
    if not is_url(root):
        path = local(root)
        if path.exists() and not path.is_dir():
            raise ValueError(f"{VARIABLE}={root}: this is a file; name a folder or a URL such as s3://bucket/folder")
        return
    scheme = root.partition("://")[0]
    if scheme not in _LIBRARIES:
        raise ValueError(f"{VARIABLE}={root}: unknown scheme {scheme}://; choose from {', '.join(_LIBRARIES)}")
    if not root.partition("://")[2].strip("/"):
        raise ValueError(f"{VARIABLE}={root}: a bucket is missing; write {scheme}://BUCKET/FOLDER")
    library = _LIBRARIES[scheme]
    if find(library) is None:
        raise ValueError(f"{VARIABLE}={root} needs {library}, which is not installed: pip install {library}")


def root_of(given: str | None, run_folder: Path) -> str:
    """The root for a run: ``given`` as an absolute path or URL, else beside the run."""
    if not given:
        return str(run_folder.absolute().parent / FOLDER)
    return given.rstrip("/") if is_url(given) else str(local(given))


def segment(name: str | None, empty: str) -> str:
    """``name`` as the name of a folder that every reader and file system takes."""
    safe = re.sub(r"[^A-Za-z0-9.-]+", "-", name or "").strip(".-")[:100]
    return safe or empty
