"""Open every file and folder that autotrace makes: readable by the owner alone, through no symbolic link.

Standard library only: traced processes import this module.
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
    """Open a new file for appending; return the descriptor. Raises ``FileExistsError``, ``OSError``."""
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | _SAFE, FILE_MODE)


def append(path: AnyPath) -> int:
    """Open ``path`` for appending, made if missing; return the descriptor. Raises ``OSError``."""
    return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | _SAFE, FILE_MODE)


def overwrite(path: AnyPath, *, follow: bool = False) -> int:
    """Open ``path``, emptied or made; return the descriptor.

    With ``follow``, links are followed: a person named the file, perhaps ``/dev/stdout``. Raises ``OSError``.
    """
    links = os.O_CLOEXEC if follow else _SAFE
    return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | links, FILE_MODE)


def shared(path: AnyPath, flags: int = 0) -> int:
    """Open ``path`` to read, write and lock, made if missing; return the descriptor. Raises ``OSError``."""
    return os.open(path, os.O_CREAT | os.O_RDWR | _SAFE | flags, FILE_MODE)


def ensure(path: AnyPath) -> None:
    """Make sure that ``path`` exists before a library opens ``path``, which would create a file that everybody can
    read. Raises ``OSError``."""
    os.close(shared(path))


def touch(path: AnyPath) -> int:
    """Make sure that ``path`` exists and has the current time; return that time in ns of the file system's clock.
    Raises ``OSError``."""
    fd = append(path)
    try:
        os.utime(fd)
        return os.fstat(fd).st_mtime_ns
    finally:
        os.close(fd)


def replace(path: AnyPath, data: bytes) -> None:
    """Write ``path`` so that a reader finds either the old content or the whole new content. Raises ``OSError``."""
    part = f"{path}.{os.getpid()}.part"
    with os.fdopen(overwrite(part), "wb") as file:
        file.write(data)
    os.replace(part, path)


def folder(path: AnyPath) -> None:
    """Create the folder and missing parents with ``DIR_MODE``. Raises ``OSError``."""
    path = os.path.abspath(path)
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        try:
            os.mkdir(each, DIR_MODE)
        except FileExistsError:  # another process made the folder, or something else has that name
            if not os.path.isdir(each):
                raise


def own_folder(top: AnyPath, path: AnyPath) -> None:
    """Create ``path`` below ``top`` so that nobody else can change the content.

    Every folder from ``top`` down is a real folder of this user, which only this user may write. Raises ``OSError``.
    """
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
    """Tell whether ``path`` is a folder, not a link, that belongs to this user and that nobody else may write."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    owners = (str(os.getuid()), os.environ.get(env.RUN_OWNER))
    return stat.S_ISDIR(info.st_mode) and str(info.st_uid) in owners and not info.st_mode & 0o022


def exposed(path: AnyPath) -> str | None:
    """Explain why any user of this machine could replace the folder ``path``; None if nobody can.

    A folder on the way that everybody may write is refused, unless the folder is sticky and belongs to root or this
    user, as ``/tmp`` does. A folder of another user inside a sticky folder is refused. A folder that its owner shares
    with a group, or gave to this user to write in, is accepted: the group's people are colleagues, who can move the run
    away.
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
    """Make a folder that only this user can open, by default in the system's temporary folder. Raises ``OSError``."""
    import tempfile

    return tempfile.mkdtemp(prefix=prefix, dir=within)


MOST = 64 << 20
"""Limits the bytes of a run's file that is read whole; files of honest runs are far below."""
_HOLES = 512 << 20
"""Limits the bytes of a file that is mostly holes; a larger file is not a run's."""


def is_ours(info: os.stat_result) -> bool:
    """Tell whether the file may be a run's: a regular file that is not mostly holes."""
    return stat.S_ISREG(info.st_mode) and info.st_size <= max(_HOLES, 64 * 512 * info.st_blocks)


def strange(folder: AnyPath) -> str | None:
    """Explain why nothing may be written into the run folder ``folder``: a link, a pipe, a device or a file of holes is
    somewhere below.

    None for every run folder that autotrace makes.
    """
    for top, folders, names in os.walk(folder):
        for path in (os.path.join(top, name) for name in (*folders, *names)):
            with contextlib.suppress(FileNotFoundError):  # the run's own shipper removes segments
                info = os.lstat(path)
                if not stat.S_ISDIR(info.st_mode) and not is_ours(info):
                    return f"{path} is a link, or no file of a run"
    return None


_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""Ending of a rollback journal that names another file. SQLite removes that file."""


def strange_database(path: AnyPath) -> str | None:
    """Explain why SQLite would touch other files to open the database ``path``: a link, or a journal that names a file.

    None for every database that autotrace makes.
    """
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
    """Return the path of the file ``name`` below the folder ``top``; ``name`` has ``/`` between the parts.

    Every file whose name comes from data gets its path here. Raises ``OSError`` for a name that leads elsewhere.
    """
    for part in name.split("/"):
        if part in ("", os.curdir, os.pardir) or "\0" in part:
            raise OSError(errno.EINVAL, "is not the name of a file", name[:200])
    return os.path.join(top, name)


def reading(top: AnyPath, *names: str) -> int:
    """Open the file ``names`` below the folder ``top`` for reading; return the descriptor.

    A person gave the path of ``top``. The function follows no link below ``top`` and opens only regular files, so the
    call never waits. Raises ``OSError``.
    """
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
            if error.errno == errno.ENXIO:
                error = OSError(errno.EINVAL, "is a socket")
            raise OSError(error.errno, error.strerror, path) from None
        finally:
            os.close(at)
        at = below
    if not is_ours(os.fstat(at)):
        os.close(at)
        raise OSError(errno.EINVAL, "is not a file of a run", path)
    return at


def read(top: AnyPath, *names: str, most: int | None = None) -> bytes:
    """Read a whole file. Raises ``OSError``, also if the file has more than ``most`` bytes (default: ``MOST``)."""
    limit = MOST if most is None else most
    with os.fdopen(reading(top, *names), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, "is too large to be one of a run", os.path.join(top, *names))
    return data


def named(path: AnyPath, most: int = 8 << 20) -> bytes:
    """Read a whole file that a person named, through links. The call never waits. Raises ``OSError``, also for a pipe,
    a socket, a device, a folder, and a file of more than ``most`` bytes (8 MB of YAML compile for half a minute)."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # before opening: to open a device can change the device
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        if len(data := file.read(most + 1)) <= most:
            return data
    raise OSError(errno.EFBIG, f"larger than {most >> 20} MB", str(path))


def of_this_user(path: AnyPath) -> str:
    """Read a regular file that belongs to this user, or to root; an empty text for a missing file, and for anything
    that somebody else may have put there. Raises ``OSError``, ``UnicodeDecodeError``.

    ``RUN_OWNER`` does not count: the variable holds a number of the run folder's file system, which on another file
    system can be a neighbour's.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        is_trusted = stat.S_ISREG(info.st_mode) and info.st_uid in (0, os.getuid()) and not info.st_mode & 0o002
        return file.read(MOST).decode() if is_trusted else ""


def planted(path: AnyPath) -> str | None:
    """Explain why the file ``path``, which is to be written, may be a trap: another user made it in a folder in which
    everybody may write. None if the file is missing or no trap.

    ``RUN_OWNER`` does not count, as in ``exposed``: a file system that names all users alike (NFS with
    ``all_squash``) names a neighbour alike, too.
    """
    try:
        info, above = os.lstat(path), os.stat(os.path.dirname(os.path.abspath(path)))
    except FileNotFoundError:
        return None
    owners = (0, os.getuid())
    if info.st_uid not in owners and above.st_mode & stat.S_IWOTH:
        return "another user made it, in a folder in which everybody may write"
    return None


def changed(path: AnyPath) -> tuple[int, int] | None:
    """Return time and size of the file, which differ after each new write; None if the file does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def write_all(fd: int, data: bytes) -> None:
    """Write ``data``, in parts if the file takes parts. Raises ``OSError`` if the file does not take all."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


class Descriptor:
    """Holds a descriptor that stays open in the host's process.

    The host may close the descriptor (``os.closerange`` in daemons and sandboxes), and get the number for a file of the
    host. Callers therefore call ``number`` before each use. ``number`` raises ``Taken`` once the number is another
    file. The descriptor is then abandoned, not closed: the number belongs to the host.
    """

    __slots__ = ("_fd", "_identity")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        info = os.fstat(fd)
        self._identity = info.st_dev, info.st_ino

    @property
    def open(self) -> bool:
        """Tell whether the descriptor was neither closed nor abandoned, as far as autotrace has noticed."""
        return self._fd >= 0

    def number(self, size: int | None = None) -> int:
        """Return the descriptor's number. Raises ``Taken``.

        ``size`` is the size of a file that nobody else changes; the inode of a removed file may be given to another
        file.
        """
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
        """Close the descriptor if the file is still ours. Never raises."""
        try:
            fd, self._fd = self.number(), -1
            os.close(fd)
        except OSError:
            return


class Taken(OSError):
    """Reports that the descriptor no longer belongs to the opened file."""
