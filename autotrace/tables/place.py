"""Where tables are copied to: ``PROJECT/RUN/`` in a local folder or an object store, as the run goes on.

A file there is whole, or it is not there: by ``rename`` after ``fsync``, or by an upload, which object stores show
only when it is whole. Files are copied first, then ``commits.jsonl``, so a reader of its lines there sees whole
commits. What a killed process copied and no line names is written again, or taken away."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from autotrace.run import files
from autotrace.tables.commits import FILE, FOLDER, asked_again, snapshot

DEFAULT = "parquet"
"""In the run directory."""
_LIBRARIES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs",
    "hdfs": "fsspec", "memory": "fsspec",
}  # fmt: skip
"""Scheme of a URL -> the module that fsspec needs for it."""


def is_url(root: str) -> bool:
    """Not a path of this machine."""
    return "://" in root and not root.startswith("file://")


def local(root: str) -> Path:
    """The path that ``root`` is."""
    return Path(os.path.abspath(os.path.expanduser(root.removeprefix("file://"))))


def check(root: str, find: Callable[[str], Any]) -> None:
    """Whether ``root`` could be written to, without a connection. ``find(module)``: None where it is not installed.
    Raises ``ValueError`` with one sentence."""
    if not is_url(root):
        path = local(root)
        if path.exists() and not path.is_dir():
            raise ValueError(f"{root} is a file; name a folder or a URL such as s3://bucket/folder")
        return
    scheme = root.partition("://")[0]
    if scheme not in _LIBRARIES:
        raise ValueError(f"{root}: unknown scheme {scheme}://; choose from {', '.join(_LIBRARIES)}")
    if not root.partition("://")[2].strip("/"):
        raise ValueError(f"{root}: a bucket is missing; write {scheme}://BUCKET/FOLDER")
    library = _LIBRARIES[scheme]
    if find(library) is None:
        raise ValueError(f"{root} needs {library}, which is not installed: pip install {library}")


def root_of(given: str) -> str:
    """``given`` as an absolute path or URL."""
    return given.rstrip("/") if is_url(given) else str(local(given))


def segment(name: str | None, empty: str) -> str:
    """``name`` as the name of a folder that every reader and file system takes."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name or "").strip(".-")[:100] or empty


PART = ".part"
ABANDONED = 600.0
"""Seconds after which nobody writes to a part any more."""


class PlaceError(Exception):
    """One sentence for the user."""

    def __init__(self, message: str, refused: bool = False) -> None:
        """``refused``: until a person acts; else it may pass by itself."""
        super().__init__(message)
        self.refused = refused


class Place(Protocol):
    """Paths are relative to the root, with ``/``. Raises ``PlaceError``."""

    root: str

    def read(self, path: str) -> bytes | None:
        """A small file; None if it is missing."""

    def put(self, path: str, source: Path) -> None:
        """Copy the file ``source`` there, over what is there."""

    def remove(self, path: str) -> None:
        """Take a file away, if it is there."""

    def names(self, folder: str) -> list[str]:
        """What ``folder`` holds; nothing where it does not exist."""


class LocalPlace:
    """A folder of this machine."""

    def __init__(self, root: str) -> None:
        self.root = root

    def _at(self, path: str) -> Path:
        """A link below the root, which a person named, is followed by nobody."""
        at = Path(self.root)
        for part in path.split("/"):
            at = at / part
            if part == ".." or at.is_symlink():
                raise PlaceError(f"{at} is a link, which is not followed; name the folder behind it", refused=True)
        return at

    def read(self, path: str) -> bytes | None:
        """See ``Place``."""
        with _errors(self.root), contextlib.suppress(FileNotFoundError):
            return self._at(path).read_bytes()
        return None

    def put(self, path: str, source: Path) -> None:
        """See ``Place``. The part is in the same folder: a rename does not leave a file system."""
        final = self._at(path)
        part = final.with_name(f".{final.name}{PART}")
        try:
            files.folder(final.parent)
            with source.open("rb") as whole, os.fdopen(files.overwrite(part), "wb") as copy:
                shutil.copyfileobj(whole, copy, 1 << 20)
                copy.flush()
                os.fsync(copy.fileno())
            os.replace(part, final)
            sync(final.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            if error.filename == str(source):
                raise
            raise failed(self.root, error) from error

    def remove(self, path: str) -> None:
        """See ``Place``."""
        with _errors(self.root):
            self._at(path).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """See ``Place``. Parts that a killed process left are removed."""
        with _errors(self.root), contextlib.suppress(FileNotFoundError):
            with os.scandir(self._at(folder)) as entries:
                found = list(entries)
            for entry in found:
                if entry.name.endswith(PART) and time.time() - entry.stat().st_mtime > ABANDONED:
                    os.unlink(entry.path)
            return [entry.name for entry in found if not entry.name.endswith(PART)]
        return []


class RemotePlace:
    """An object store, through fsspec. Options and credentials come from the environment or the user's own files."""

    def __init__(self, root: str) -> None:
        self.root = root

    @cached_property
    def opened(self) -> tuple[Any, str]:
        """The file system, and what is the root in it."""
        import fsspec

        filesystem, base = fsspec.core.url_to_fs(self.root, use_listings_cache=False, skip_instance_cache=True)
        return filesystem, base

    def _at(self, path: str) -> tuple[Any, str]:
        """The file system, and ``path`` in it."""
        filesystem, base = self.opened
        return filesystem, f"{base}/{path}".rstrip("/")

    def read(self, path: str) -> bytes | None:
        """See ``Place``."""
        with _errors(self.root), contextlib.suppress(FileNotFoundError):
            filesystem, at = self._at(path)
            return bytes(filesystem.cat_file(at))
        return None

    def put(self, path: str, source: Path) -> None:
        """See ``Place``."""
        os.stat(source)  # what is missing here is not the object store's fault
        with _errors(self.root):
            filesystem, at = self._at(path)
            filesystem.put_file(str(source), at)

    def remove(self, path: str) -> None:
        """See ``Place``."""
        with _errors(self.root), contextlib.suppress(FileNotFoundError):
            filesystem, at = self._at(path)
            filesystem.rm_file(at)

    def names(self, folder: str) -> list[str]:
        """See ``Place``."""
        with _errors(self.root), contextlib.suppress(FileNotFoundError):
            filesystem, at = self._at(folder)
            return [name.rstrip("/").rpartition("/")[2] for name in filesystem.ls(at, detail=False)]
        return []


def place(root: str) -> Place:
    """The place that ``root`` names."""
    return RemotePlace(root) if is_url(root) else LocalPlace(root)


@contextlib.contextmanager
def _errors(root: str) -> Iterator[None]:
    """Raises ``PlaceError`` for everything that is raised within."""
    try:
        yield
    except PlaceError:
        raise
    except Exception as error:
        raise failed(root, error) from error


def failed(root: str, error: BaseException, doing: str = "write to") -> PlaceError:
    """What went wrong, in one sentence."""
    kind = type(error).__name__
    words = str(getattr(error, "strerror", None) or error or kind).partition("\n")[0]
    words = _OF_ARROW.sub("", words)[:300].rstrip(".")
    remedy = _REMEDIES.get(kind) if is_url(root) else None
    if remedy is not None:
        return PlaceError(f"cannot {doing} {root}: {words}; {remedy}", refused=True)
    if isinstance(error, PermissionError):
        return PlaceError(f"cannot {doing} {root}: {words}; make it writable or name another folder", refused=True)
    return PlaceError(f"cannot {doing} {root}: {words}")


def sync(path: Path) -> None:
    """What was written to the file, or of names into the folder, is on the disk. Raises ``OSError``."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_OF_ARROW = re.compile(r".*Detail: \[errno \d+\] ")
"""What pyarrow says before the system's own words."""
_CREDENTIALS = "set the credentials of the object store (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
_REMEDIES = {
    "NoCredentialsError": _CREDENTIALS,
    "PartialCredentialsError": _CREDENTIALS,
    "PermissionError": _CREDENTIALS,
    "FileNotFoundError": "create the bucket first",
    "NoSuchBucket": "create the bucket first",
    "ImportError": "install what its scheme needs",
}
"""Exception -> what a person must do; all others may pass by themselves."""


class Copy:
    """Copies the tables of ``run_folder`` to ``folder`` of a place."""

    def __init__(self, run_folder: Path, at: Place, folder: str) -> None:
        self._tables = run_folder / FOLDER
        self._place = at
        self._folder = f"{folder}/{FOLDER}"
        self._there: set[str] | None = None
        """Files that are there and that count."""

    def update(self) -> int:
        """Copy what was committed since; bytes. Raises ``PlaceError``, or ``OSError`` where the tables cannot be read;
        then it may be tried again."""
        try:
            return asked_again(self._update)
        except BaseException:
            self._there = None
            raise

    def _update(self) -> int:
        text = (self._tables / FILE).read_bytes()
        found, copied = snapshot(text), 0
        counts = {path for by_path in found.files.values() for path in by_path}
        if self._there is None:
            self._there = self._cleaned(counts)
        for path in sorted(counts - self._there):
            self._place.put(f"{self._folder}/{path}", self._tables / path)
            self._there.add(path)
            copied += (self._tables / path).stat().st_size
        lines = self._tables / f".{FILE}.copy"
        files.replace(lines, text[: found.size])
        self._place.put(f"{self._folder}/{FILE}", lines)
        for path in self._there - counts:
            self._place.remove(f"{self._folder}/{path}")
        self._there &= counts
        return copied

    def _cleaned(self, counts: set[str]) -> set[str]:
        """The files there that its own lines and these name; others that it has are taken away."""
        known = snapshot(self._place.read(f"{self._folder}/{FILE}") or b"")
        named = {path for by_path in known.files.values() for path in by_path}
        for table in {path.partition("/")[0] for path in counts | named}:
            for name in self._place.names(f"{self._folder}/{table}"):
                if f"{table}/{name}" not in named:
                    self._place.remove(f"{self._folder}/{table}/{name}")
        return named
