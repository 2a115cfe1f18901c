"""Copy tables to ``PROJECT/RUN/`` in a local folder or an object store while the run goes on.

A file at the destination is complete or missing: by ``rename`` after ``fsync``, or by an upload, which object stores
show only when complete. Files are copied first, then ``commits.jsonl``, so a reader of the copied lines sees complete
commits. Files that a killed process copied and no line names are written again or deleted.
"""

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

from autotrace.config.installation import installer
from autotrace.redact.masking import masked_uri
from autotrace.run import files
from autotrace.tables.commits import FILE, FOLDER, asked_again, snapshot
from autotrace.tables.errors import missing

DEFAULT = "parquet"
"""Default destination, in the run directory."""
_LIBRARIES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs",
    "hdfs": "fsspec", "memory": "fsspec",
}  # fmt: skip
"""Scheme of a URL -> the module that fsspec needs."""


def is_url(root: str) -> bool:
    """Return whether ``root`` is a URL, not a path of this machine."""
    return "://" in root and not root.startswith("file://")


def local(root: str) -> Path:
    """Return ``root`` as an absolute path."""
    return Path(os.path.abspath(os.path.expanduser(root.removeprefix("file://"))))


def check(root: str, find: Callable[[str], Any]) -> None:
    """Check without a connection that ``root`` could be written to. ``find(module)`` returns None if the module is not
    installed. Raises ``ValueError`` with a sentence."""
    if not is_url(root):
        path = local(root)
        if path.exists() and not path.is_dir():
            raise ValueError(f"{root} is a file; name a folder or a URL such as s3://bucket/folder")
        return
    scheme = root.partition("://")[0]
    if "@" in root.partition("://")[2].partition("/")[0]:
        raise ValueError(f"{masked_uri(root)} has credentials; leave them out and set the variables of {scheme}://")
    if scheme not in _LIBRARIES:
        raise ValueError(f"{root}: unknown scheme {scheme}://; choose from {', '.join(_LIBRARIES)}")
    if not root.partition("://")[2].strip("/"):
        raise ValueError(f"{root}: a bucket is missing; write {scheme}://BUCKET/FOLDER")
    library = _LIBRARIES[scheme]
    if find(library) is None:
        raise ValueError(f"{root} needs {library}, which is not installed: {installer()} {library}")


def root_of(given: str) -> str:
    """Return ``given`` as an absolute path or URL."""
    return given.rstrip("/") if is_url(given) else str(local(given))


def segment(name: str | None, empty: str) -> str:
    """Convert ``name`` to a folder name that every reader and file system accepts."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name or "").strip(".-")[:100] or empty


PART = ".part"
ABANDONED = 600.0
"""Seconds after which nobody writes to a part any more."""


class StorageError(Exception):
    """Report a failure in a sentence for the user."""

    def __init__(self, message: str, refused: bool = False) -> None:
        """Take ``refused``: a person must act; otherwise the failure may pass by itself."""
        super().__init__(message)
        self.refused = refused


class Storage(Protocol):
    """Describe a destination. Paths are relative to the root, with ``/``. Raises ``StorageError``."""

    root: str

    def read(self, path: str) -> bytes | None:
        """Return a small file; None if missing."""

    def put(self, path: str, source: Path) -> None:
        """Copy the file ``source`` to ``path``, replacing an existing file."""

    def remove(self, path: str) -> None:
        """Remove a file, if present."""

    def names(self, folder: str) -> list[str]:
        """Return the names in ``folder``; empty if the folder does not exist."""


class LocalStorage:
    """Store files in a folder of this machine."""

    def __init__(self, root: str) -> None:
        self.root = root

    def _at(self, path: str) -> Path:
        """Return the path below the root. A link below the root is not followed; a person may name a link as the
        root."""
        at = Path(self.root)
        for part in path.split("/"):
            at = at / part
            if part == ".." or at.is_symlink():
                raise StorageError(f"{at} is a link, which is not followed; name the folder behind it", refused=True)
        return at

    def read(self, path: str) -> bytes | None:
        """See ``Storage``."""
        with _errors(self.root), contextlib.suppress(FileNotFoundError):
            self._at(path)
            return files.read(self.root, *path.split("/"))
        return None

    def put(self, path: str, source: Path) -> None:
        """See ``Storage``. The part is in the same folder: a rename cannot cross file systems."""
        final = self._at(path)
        part = final.with_name(f".{final.name}{PART}")
        try:
            files.folder(final.parent)
            if reason := files.exposed(final.parent):
                raise StorageError(f"cannot write to {self.root}: {reason}", refused=True)
            part.unlink(missing_ok=True)  # of a killed process, or of somebody who waits for the rows
            with source.open("rb") as whole, os.fdopen(files.new(part), "wb") as copy:
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
        """See ``Storage``."""
        with _errors(self.root):
            self._at(path).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """See ``Storage``. Parts left by a killed process are removed."""
        with _errors(self.root), contextlib.suppress(FileNotFoundError):
            with os.scandir(self._at(folder)) as entries:
                found = list(entries)
            for entry in found:
                if entry.name.endswith(PART) and time.time() - entry.stat().st_mtime > ABANDONED:
                    os.unlink(entry.path)
            return [entry.name for entry in found if not entry.name.endswith(PART)]
        return []


class RemoteStorage:
    """Store files in an object store, through fsspec. Options and credentials come from the environment or the user's
    own files."""

    def __init__(self, root: str) -> None:
        self.root = root

    @cached_property
    def opened(self) -> tuple[Any, str]:
        """Return the file system and the root's path in the file system."""
        try:
            import fsspec
        except ModuleNotFoundError:
            raise missing("fsspec", "parquet") from None
        filesystem, base = fsspec.core.url_to_fs(self.root, use_listings_cache=False, skip_instance_cache=True)
        return filesystem, base

    def _at(self, path: str) -> tuple[Any, str]:
        """Return the file system and the full path of ``path``."""
        filesystem, base = self.opened
        return filesystem, f"{base}/{path}".rstrip("/")

    def read(self, path: str) -> bytes | None:
        """See ``Storage``."""
        with _errors(self.root), contextlib.suppress(FileNotFoundError):
            filesystem, at = self._at(path)
            return bytes(filesystem.cat_file(at))
        return None

    def put(self, path: str, source: Path) -> None:
        """See ``Storage``."""
        os.stat(source)  # a file that is missing here is not the object store's fault
        with _errors(self.root):
            filesystem, at = self._at(path)
            filesystem.put_file(str(source), at)

    def remove(self, path: str) -> None:
        """See ``Storage``."""
        with _errors(self.root), contextlib.suppress(FileNotFoundError):
            filesystem, at = self._at(path)
            filesystem.rm_file(at)

    def names(self, folder: str) -> list[str]:
        """See ``Storage``."""
        with _errors(self.root), contextlib.suppress(FileNotFoundError):
            filesystem, at = self._at(folder)
            return [name.rstrip("/").rpartition("/")[2] for name in filesystem.ls(at, detail=False)]
        return []


def place(root: str) -> Storage:
    """Return the place that ``root`` names."""
    return RemoteStorage(root) if is_url(root) else LocalStorage(root)


@contextlib.contextmanager
def _errors(root: str) -> Iterator[None]:
    """Raise ``StorageError`` for every error within the block."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        raise failed(root, error) from error


def failed(root: str, error: BaseException, doing: str = "write to") -> StorageError:
    """Describe a failure in a sentence."""
    kind = type(error).__name__
    words = str(getattr(error, "strerror", None) or error or kind).partition("\n")[0]
    words = _OF_ARROW.sub("", words)[:300].rstrip(".")
    remedy = _REMEDIES.get(kind) if is_url(root) else None
    if remedy is not None:
        return StorageError(f"cannot {doing} {root}: {words}; {remedy}", refused=True)
    if isinstance(error, PermissionError):
        return StorageError(f"cannot {doing} {root}: {words}; make it writable or name another folder", refused=True)
    return StorageError(f"cannot {doing} {root}: {words}")


def sync(path: Path) -> None:
    """Flush a file's contents, or the names in a folder, to the disk. Raises ``OSError``."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_OF_ARROW = re.compile(r".*Detail: \[errno \d+\] ")
"""Text that pyarrow puts before the system's own message."""
_CREDENTIALS = "set the credentials of the object store (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
_REMEDIES = {
    "NoCredentialsError": _CREDENTIALS,
    "PartialCredentialsError": _CREDENTIALS,
    "PermissionError": _CREDENTIALS,
    "FileNotFoundError": "create the bucket first",
    "NoSuchBucket": "create the bucket first",
    "ImportError": "install what its scheme needs",
}
"""Exception -> the action that a person must take; all other failures may pass by themselves."""


class Copy:
    """Copy the tables of ``run_folder`` to ``folder`` of a place."""

    def __init__(self, run_folder: Path, at: Storage, folder: str) -> None:
        self._tables = run_folder / FOLDER
        self._place = at
        self._folder = f"{folder}/{FOLDER}"
        self._there: set[str] | None = None
        """Remote files that exist and count."""

    def update(self) -> int:
        """Copy new commits; return the number of bytes. Raises ``StorageError``, or ``OSError`` where the tables cannot
        be read; the caller may then try again."""
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
        """Return the remote files that the remote or the local ``commits.jsonl`` names; delete all other remote
        files."""
        known = snapshot(self._place.read(f"{self._folder}/{FILE}") or b"")
        named = {path for by_path in known.files.values() for path in by_path}
        for table in {path.partition("/")[0] for path in counts | named}:
            for name in self._place.names(f"{self._folder}/{table}"):
                if f"{table}/{name}" not in named:
                    self._place.remove(f"{self._folder}/{table}/{name}")
        return named
