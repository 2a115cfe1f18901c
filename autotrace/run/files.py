"""Every file and folder that autotrace makes is made here: readable by its owner alone, through no symbolic link.

Standard library only: traced processes import it.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from pathlib import Path

from autotrace.config import environment as env

FILE_MODE = 0o600
DIR_MODE = 0o700
_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # NONBLOCK: opening a pipe must not wait

AnyPath = str | Path


def new(path: AnyPath) -> int:
    """A descriptor that appends to a file which was not there before. Raises ``FileExistsError``, ``OSError``."""
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | _SAFE, FILE_MODE)


def append(path: AnyPath) -> int:
    """A descriptor that appends to ``path``, which is made if it is not there. Raises ``OSError``."""
    return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | _SAFE, FILE_MODE)


def overwrite(path: AnyPath, *, follow: bool = False) -> int:
    """A descriptor of ``path``, emptied or made. ``follow``: a person named the file, perhaps ``/dev/stdout``, so a
    link is what was meant. Raises ``OSError``."""
    links = os.O_CLOEXEC if follow else _SAFE
    return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | links, FILE_MODE)


def shared(path: AnyPath, flags: int = 0) -> int:
    """A descriptor to read, write and lock ``path``, which is made if it is not there. Raises ``OSError``."""
    return os.open(path, os.O_CREAT | os.O_RDWR | _SAFE | flags, FILE_MODE)


def ensure(path: AnyPath) -> None:
    """See that ``path`` is there: before a library opens it, which would make it readable by everybody. Raises
    ``OSError``."""
    os.close(shared(path))


def touch(path: AnyPath) -> int:
    """See that ``path`` is there and was changed just now; when that was, in ns of the file system's clock. Raises
    ``OSError``."""
    fd = append(path)
    try:
        os.utime(fd)
        return os.fstat(fd).st_mtime_ns
    finally:
        os.close(fd)


def replace(path: AnyPath, data: bytes) -> None:
    """Write ``path`` so that a reader finds it as it was before or whole. Raises ``OSError``."""
    part = f"{path}.{os.getpid()}.part"
    with os.fdopen(overwrite(part), "wb") as file:
        file.write(data)
    os.replace(part, path)


def folder(path: AnyPath) -> None:
    """See that the folder is there; it and those above it that are made have our mode. Raises ``OSError``."""
    path = os.path.abspath(path)
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        try:
            os.mkdir(each, DIR_MODE)
        except FileExistsError:  # another process made it, or something else has that name
            if not os.path.isdir(each):
                raise


def own_folder(top: AnyPath, path: AnyPath) -> None:
    """See that ``path`` is there, below ``top``, and that nobody else can change what is in it: every folder from
    ``top`` down is a real one, of this user, that only this user may write. Raises ``OSError``."""
    folder(os.path.dirname(os.path.abspath(top)))
    below = os.path.relpath(path, top).split(os.sep)
    for each in itertools.accumulate([str(top), *(name for name in below if name != os.curdir)], os.path.join):
        with contextlib.suppress(FileExistsError):
            os.mkdir(each, DIR_MODE)
        if not is_own(each):
            raise PermissionError(errno.EPERM, "another user may write there", str(each))
    if reason := exposed(top):
        raise PermissionError(errno.EPERM, reason, str(top))


def is_own(path: AnyPath) -> bool:
    """``path`` is a folder, not a link, that belongs to this user and that nobody else may write."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    owners = (str(os.getuid()), os.environ.get(env.RUN_OWNER))
    return stat.S_ISDIR(info.st_mode) and str(info.st_uid) in owners and not info.st_mode & 0o022


def exposed(path: AnyPath) -> str | None:
    """Why any user of this machine could replace the folder ``path``; None: they cannot.

    A folder on the way that everybody may write is refused, unless it is sticky and root's or this user's, as ``/tmp``
    is. A folder of somebody else is refused within a sticky one. A folder that its owner shares with a group, or gave
    to this user to write in, is accepted: its people are colleagues, who can move the run away.
    """
    named = Path(os.path.abspath(path))
    for each in (named, *named.parents):
        info = os.lstat(each)
        his = stat.S_ISLNK(info.st_mode) and info.st_uid not in (0, os.getuid())
        if his and os.stat(each.parent).st_mode & stat.S_IWOTH:
            return f"{each} is a link of another user, who could have it lead to another folder than the run's"
    above = False
    for each in reversed([(whole := Path(os.path.realpath(path))), *whole.parents]):
        info = os.lstat(each)
        everybody = bool(info.st_mode & stat.S_IWOTH)
        if (above or everybody) and info.st_uid not in (0, os.getuid()):
            return f"{each} belongs to another user, who could replace the run's folder"
        if everybody and not info.st_mode & stat.S_ISVTX:
            return f"everybody may write {each} and replace the run's folder (chmod +t {each})"
        above = everybody
    return None


def temporary_folder(prefix: str, within: AnyPath | None = None) -> str:
    """A new folder of this user's alone, by default in the system's temporary one. Raises ``OSError``."""
    import tempfile

    return tempfile.mkdtemp(prefix=prefix, dir=within)


MOST = 64 << 20
"""Bytes of a file of a run that is read whole; those of honest runs are far below it."""
_HOLES = 512 << 20
"""A file that is mostly holes and has this many bytes is not a run's."""


def is_ours(info: os.stat_result) -> bool:
    """It may be a file of a run: a regular one that is not mostly holes."""
    return stat.S_ISREG(info.st_mode) and info.st_size <= max(_HOLES, 64 * 512 * info.st_blocks)


_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""How a rollback journal ends that names another file. SQLite removes that file."""


def strange_database(path: AnyPath) -> str | None:
    """Why SQLite would touch other files to open the database ``path``: a link, or a journal that names one; None: it
    would not, as with each database that autotrace makes."""
    for file in (f"{path}{end}" for end in ("", "-journal", "-wal", "-shm")):
        with contextlib.suppress(FileNotFoundError):
            if not is_ours(os.lstat(file)):
                return f"{file} is a link, or no file of a run"
    with contextlib.suppress(FileNotFoundError), open(f"{path}-journal", "rb") as journal:
        journal.seek(max(0, journal.seek(0, os.SEEK_END) - len(_SUPER_JOURNAL)))
        if journal.read() == _SUPER_JOURNAL:
            return f"{path}-journal is not autotrace's: it names another file; remove it"
    return None


def inside(top: AnyPath, name: str) -> str:
    """Return the path of the file ``name`` below the folder ``top``; ``name`` has ``/`` between its parts. Whatever is
    written under a name that data tells gets its path here. Raises ``OSError`` for a name that leads elsewhere."""
    for part in name.split("/"):
        if part in ("", os.curdir, os.pardir) or "\0" in part:
            raise OSError(errno.EINVAL, "is not the name of a file", name[:200])
    return os.path.join(top, name)


def reading(top: AnyPath, *names: str) -> int:
    """A descriptor to read the file ``names`` below the folder ``top``, whose path a person gave. It follows no link
    below ``top`` and opens regular files only, so that it waits for nothing. Raises ``OSError``."""
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for number, name in enumerate(names, 1):
        path = os.path.join(top, *names[:number])
        try:
            if os.path.basename(name) != name or name in ("", os.curdir, os.pardir):
                raise OSError(errno.EINVAL, "is not the name of a file")
            below = os.open(name, os.O_RDONLY | _SAFE | (os.O_DIRECTORY if number < len(names) else 0), dir_fd=at)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(path):
                error = OSError(errno.ELOOP, "is a link, which is not followed")
            raise OSError(error.errno, error.strerror, path) from None
        finally:
            os.close(at)
        at = below
    if not is_ours(os.fstat(at)):
        os.close(at)
        raise OSError(errno.EINVAL, "is not a file of a run", path)
    return at


def read(top: AnyPath, *names: str, most: int | None = None) -> bytes:
    """Read a whole file. Raises ``OSError``, also where the file has more than ``most`` bytes (default: ``MOST``)."""
    limit = MOST if most is None else most
    with os.fdopen(reading(top, *names), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, "is too large to be one of a run", os.path.join(top, *names))
    return data


def changed(path: AnyPath) -> tuple[int, int] | None:
    """Time and size of the file, which differ once it is written again; None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def write_all(fd: int, data: bytes) -> None:
    """Write ``data``, in parts where the file takes parts. Raises ``OSError`` where it does not take all."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def readable_by_others(path: AnyPath) -> int:
    """The mode of a folder whose names others than its owner can list; 0: nobody can, or it is not there."""
    try:
        mode = os.stat(path).st_mode & 0o7777
    except OSError:
        return 0
    return mode if mode & 0o044 else 0


class Descriptor:
    """A descriptor that stays open in a process of somebody else's.

    The host may close it behind our back (``os.closerange`` in daemons and sandboxes), and get its number for a file of
    its own. So it is asked for by ``number`` before each use, which raises ``Taken`` once it is not the file any more;
    then it is let go, not closed: it is the host's.
    """

    __slots__ = ("_fd", "_identity")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        info = os.fstat(fd)
        self._identity = info.st_dev, info.st_ino

    @property
    def open(self) -> bool:
        """It was neither closed nor given up, as far as we have noticed."""
        return self._fd >= 0

    def number(self, size: int | None = None) -> int:
        """The descriptor's number. ``size``: of a file that nobody else changes; a removed file's inode may be given to
        another one. Raises ``Taken``."""
        if self._fd >= 0:
            try:
                info = os.fstat(self._fd)
            except OSError:  # closed
                pass
            else:
                if (info.st_dev, info.st_ino) == self._identity and size in (None, info.st_size):
                    return self._fd
            self._fd = -1
        raise Taken("the host closed our descriptor")

    def close(self) -> None:
        """Close it if it is still ours. Never raises."""
        try:
            fd, self._fd = self.number(), -1
            os.close(fd)
        except OSError:
            return


class Taken(OSError):
    """The descriptor is no longer the file that it was opened for."""
