"""Files of a local folder or an object store: there whole, or not there.

A file is written into a *part* on this machine first. ``commit`` then puts all parts of a delivery into their places:
by ``rename`` after ``fsync``, or by an upload, which object stores show only when it is whole. If one fails, what came
before it is taken away again.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from autotrace.run import files
from autotrace.sinks.parquet.location import SUFFIX, is_url
from autotrace.sinks.protocol import Refused, SinkError, Unavailable

PART, PARTS = ".part", "autotrace-parquet-"
ABANDONED = 600.0
"""Seconds after which nobody writes to a part any more."""


class Store(Protocol):
    """Paths are relative to the root, with ``/``. Raises ``SinkError``."""

    root: str

    def sizes(self, folder: str) -> dict[str, int]:
        """Path -> bytes of the Parquet files in ``folder``, and in the folders below."""

    def names(self) -> list[str]:
        """What the root holds; nothing where it does not exist."""

    def filesystem(self) -> tuple[Any, str]:
        """What ``pyarrow.dataset`` reads with, and the root as it takes it."""

    def read(self, path: str) -> bytes | None:
        """A small file; None: there is none."""

    def open(self, path: str) -> IO[bytes]:
        """A file, to read."""

    def part(self, path: str) -> Path:
        """A new local file of this user's alone, that ``commit`` may put at ``path``."""

    def commit(self, parts: Mapping[str, Path], replaced: Sequence[str] = ()) -> None:
        """Put each part at its path, then remove ``replaced``."""

    def discard(self, parts: Mapping[str, Path]) -> None:
        """Forget parts. Never raises."""

    def sweep(self, folder: str) -> None:
        """Remove parts in ``folder`` that a killed process left. Never raises."""

    def close(self) -> None:
        """Leave nothing behind. Never raises."""


class LocalStore:
    """A folder of this machine."""

    def __init__(self, root: str) -> None:
        self.root = root

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``Store``."""
        found: dict[str, int] = {}
        top = Path(self.root, folder)
        if any(
            path.is_symlink()
            for path in (top, *top.parents)
            if path.is_relative_to(self.root) and path != Path(self.root)
        ):
            return found  # only the root, which a person named, may be one
        for path in top.rglob(f"*{SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                if files.is_ours(info := path.lstat()):
                    found[path.relative_to(self.root).as_posix()] = info.st_size
        return found

    def names(self) -> list[str]:
        """See ``Store``."""
        try:
            return os.listdir(self.root)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._failed(error) from error

    def filesystem(self) -> tuple[Any, str]:
        """See ``Store``."""
        return None, self.root

    def read(self, path: str) -> bytes | None:
        """See ``Store``."""
        try:
            return files.read(self.root, *path.split("/"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(error) from error

    def open(self, path: str) -> IO[bytes]:
        """See ``Store``."""
        return os.fdopen(files.reading(self.root, *path.split("/")), "rb")

    def part(self, path: str) -> Path:
        """See ``Store``. Beside its place: a rename does not leave a file system."""
        final = Path(self.root, path)
        try:
            files.folder(final.parent)
            part = final.with_name(f".{final.name}.{uuid.uuid4().hex[:8]}{PART}")
            os.close(files.new(part))
        except OSError as error:
            raise self._failed(error) from error
        return part

    def commit(self, parts: Mapping[str, Path], replaced: Sequence[str] = ()) -> None:
        """See ``Store``."""
        placed: list[Path] = []
        try:
            for part in parts.values():
                _sync(part)
            for path, part in parts.items():
                os.replace(part, final := Path(self.root, path))
                placed.append(final)
            for folder in {final.parent for final in placed}:
                _sync(folder)
        except OSError as error:
            for final in placed:
                with contextlib.suppress(OSError):
                    final.unlink()
            raise self._failed(error) from error
        try:
            for path in replaced:
                Path(self.root, path).unlink(missing_ok=True)
        except OSError as error:  # both are there: whoever reads them next sees which is newer
            raise self._failed(error) from error

    def discard(self, parts: Mapping[str, Path]) -> None:
        """See ``Store``."""
        _remove(parts)

    def sweep(self, folder: str) -> None:
        """See ``Store``."""
        _sweep(Path(self.root, folder).rglob(f".*{PART}"))

    def close(self) -> None:
        """See ``Store``."""

    def _failed(self, error: OSError) -> SinkError:
        return failed(self.root, error)


class RemoteStore:
    """An object store, through fsspec. Options and credentials come from the environment or the user's own files.

    Parts are in a folder of this store's own in ``local``, by default the system's temporary folder. It goes with the
    store, or with the process."""

    def __init__(self, root: str, local: str | Path | None = None) -> None:
        self.root = root
        self._local = local
        self._parts: Path | None = None
        self._remove: Callable[[], object] | None = None
        self._filesystem: Any = None
        self._base = ""

    @property
    def _fs(self) -> Any:
        if self._filesystem is None:
            import fsspec

            try:
                self._filesystem, self._base = fsspec.core.url_to_fs(
                    self.root, use_listings_cache=False, skip_instance_cache=True
                )
            except Exception as error:
                raise failed(self.root, error) from error
        return self._filesystem

    def _path(self, path: str) -> str:
        return f"{self._base}/{path}"

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``Store``."""
        try:
            found = self._fs.find(self._path(folder), detail=True)
        except FileNotFoundError:
            return {}
        except Exception as error:
            raise failed(self.root, error) from error
        skip = len(self._base) + 1
        return {path[skip:]: int(info["size"] or 0) for path, info in found.items() if path.endswith(SUFFIX)}

    def names(self) -> list[str]:
        """See ``Store``."""
        try:
            return [name.rstrip("/").rpartition("/")[2] for name in self._fs.ls(self._base, detail=False)]
        except FileNotFoundError:
            return []
        except Exception as error:
            raise failed(self.root, error) from error

    def filesystem(self) -> tuple[Any, str]:
        """See ``Store``."""
        return self._fs, self._base

    def read(self, path: str) -> bytes | None:
        """See ``Store``."""
        try:
            return bytes(self._fs.cat_file(self._path(path)))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise failed(self.root, error) from error

    def open(self, path: str) -> IO[bytes]:
        """See ``Store``."""
        file: IO[bytes] = self._fs.open(self._path(path), "rb")
        return file

    def part(self, path: str) -> Path:
        """See ``Store``."""
        if self._parts is None:
            self._parts = Path(files.temporary_folder(PARTS, self._local))
            self._remove = weakref.finalize(self, shutil.rmtree, self._parts, True)
        part = self._parts / f"{uuid.uuid4().hex}{PART}"
        os.close(files.new(part))
        return part

    def commit(self, parts: Mapping[str, Path], replaced: Sequence[str] = ()) -> None:
        """See ``Store``."""
        placed: list[str] = []
        try:
            for path, part in parts.items():
                placed.append(path)
                self._fs.put_file(str(part), self._path(path))
        except Exception as error:
            for path in placed:
                with contextlib.suppress(Exception):
                    self._fs.rm_file(self._path(path))
            raise failed(self.root, error) from error
        finally:
            self.discard(parts)
        for path in replaced:
            try:
                self._fs.rm_file(self._path(path))
            except FileNotFoundError:
                continue
            except Exception as error:
                raise failed(self.root, error) from error

    def discard(self, parts: Mapping[str, Path]) -> None:
        """See ``Store``."""
        _remove(parts)

    def sweep(self, folder: str) -> None:
        """See ``Store``. What is not whole is not in the object store."""
        if self._local is not None:
            _sweep(Path(self._local).glob(f"{PARTS}*/*{PART}"))

    def close(self) -> None:
        """See ``Store``."""
        if self._remove is not None:
            self._remove()
        self._parts = None


def store(root: str, local: str | Path | None = None) -> Store:
    """The store that ``root`` names; ``local`` as in ``RemoteStore``."""
    return RemoteStore(root, local) if is_url(root) else LocalStore(root)


def failed(root: str, error: BaseException) -> SinkError:
    """What went wrong, as the shipper takes it: one sentence."""
    kind = type(error).__name__
    words = str(getattr(error, "strerror", None) or error or kind).partition("\n")[0]
    words = _OF_ARROW.sub("", words)[:300].rstrip(".")
    remedy = _REMEDIES.get(kind) if is_url(root) else None
    if remedy is not None:
        return Refused(f"cannot write to {root}: {words}; {remedy}")
    if isinstance(error, PermissionError):
        return Refused(f"cannot write to {root}: {words}; make it writable or name another folder (AUTOTRACE_PARQUET)")
    return Unavailable(f"cannot write to {root}: {words}")


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


def _sweep(parts: Iterable[Path]) -> None:
    for part in parts:
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > ABANDONED:
                part.unlink()


def _remove(parts: Mapping[str, Path]) -> None:
    for part in parts.values():
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
