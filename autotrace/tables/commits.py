"""List the contents of a run's tables: the lines of ``commits.jsonl``, each written at once.

A line names the files that a commit adds, the files that the commit removes, and the trajectories whose earlier rows no
longer count. A file that no line names is garbage. A torn last line does not count. A reader who reads the lines once
has a snapshot: files never change, and a removed file stays on the disk for ``LINGERS`` seconds. Removed files
disappear from the lines some time later.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec.structs import replace

FOLDER, FILE = "tables", "commits.jsonl"
SUFFIX = ".parquet"
_FILE = re.compile(r"[a-z_]+/[0-9A-Za-z][0-9A-Za-z._-]*\.parquet")
LINGERS = 60.0
"""Seconds for which a removed file can still be read."""


TRIES = 5
T = TypeVar("T")


def asked_again(ask: Callable[[], T]) -> T:
    """Call ``ask``, which reads the lines and then files that the lines name, again until all files exist: a compaction
    may run between the two reads. Raises ``FileNotFoundError``."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(FileNotFoundError):
            return ask()
    return ask()


class Added(msgspec.Struct, array_like=True):
    """Name a file of a table, with rows and bytes."""

    name: str
    rows: int
    bytes: int


class Commit(msgspec.Struct, omit_defaults=True):
    """Record a commit: a line of ``commits.jsonl``."""

    batch: int
    at_ns: int
    files: dict[str, Added] = {}
    """Table -> the file with the new rows."""
    removes: list[str] = []
    """``TABLE/NAME`` of the files whose rows ``files`` now contain."""
    supersedes: dict[str, int] = {}
    """Trace id -> version: rows of the trajectory with a smaller version do not count."""
    trajectories: int = 0
    """Number of trajectories that are new or written again."""

    def names_tables_alone(self) -> bool:
        """Check that every named file belongs to a table: a line may be a stranger's, and named files are read and
        removed."""
        names = [*(f"{table}/{added.name}" for table, added in self.files.items()), *self.removes]
        return all(_FILE.fullmatch(name) for name in names)

    def line(self) -> bytes:
        """Return the bytes of the line, with the line end."""
        text = msgspec.json.encode(self)
        return b'%s,"crc":%d}\n' % (text[:-1], zlib.crc32(text))


@dataclass
class Snapshot:
    """List the files and versions that count at a moment."""

    files: dict[str, dict[str, Added]] = field(default_factory=dict)
    """Table -> path below the folder of the tables -> file."""
    superseded: dict[str, int] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    size: int = 0
    """Bytes of the complete lines."""

    @property
    def batch(self) -> int:
        """Return the number of the last commit; 0 without a commit."""
        return self.commits[-1].batch if self.commits else 0

    def add(self, commit: Commit) -> None:
        """Apply the next line."""
        self.commits.append(commit)
        self.superseded |= commit.supersedes
        for path in commit.removes:
            self.files.get(path.partition("/")[0], {}).pop(path, None)
        for table, added in commit.files.items():
            self.files.setdefault(table, {})[f"{table}/{added.name}"] = added


def folded(found: Snapshot, since_ns: int) -> list[Commit]:
    """Return the commits of ``found`` without removed files. ``removes`` stays for files removed after ``since_ns``.
    Each commit keeps its number."""
    lines = []
    for commit in found.commits:
        files = {table: file for table, file in commit.files.items() if f"{table}/{file.name}" in found.files[table]}
        removes = commit.removes if commit.at_ns >= since_ns else []
        if files or removes or commit is found.commits[-1]:
            lines.append(replace(commit, files=files, removes=removes, supersedes={}))
    if lines:
        lines[0].supersedes = dict(found.superseded)
    return lines


def snapshot(text: bytes) -> Snapshot:
    """Parse the lines of ``text`` up to the first incomplete line."""
    found = Snapshot()
    for line in text.splitlines(keepends=True):
        head, mark, crc = line.rpartition(b',"crc":')
        try:
            if not mark or not crc.endswith(b"}\n") or int(crc[:-2]) != zlib.crc32(whole := head + b"}"):
                break
            commit = msgspec.json.decode(whole, type=Commit)
        except (ValueError, msgspec.MsgspecError):
            break
        if not commit.names_tables_alone():
            break
        found.add(commit)
        found.size += len(line)
    return found
