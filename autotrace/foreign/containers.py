"""Describe formats, and read rows of a stranger's files: JSON lines, JSON, Parquet, PyTorch, numpy, Inspect's archives.

A file may be anybody's. Reading runs nothing from the file, follows no link, and costs in proportion to the file's
bytes: the sizes that an archive claims are checked before unpacking.
"""

from __future__ import annotations

import io
import math
import os
import re
import zipfile
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from autotrace.foreign.collector import objects
from autotrace.foreign.opened import LONGEST, Opened, Row, Rows, decoded
from autotrace.foreign.parquet import parquet_rows
from autotrace.tables.errors import QueryError, missing
from autotrace.trajectory.jsonable import MAX_DEPTH, Conversion, integer
from autotrace.trajectory.model import Trajectory

LARGEST = 1 << 30
"""Maximum bytes of a PyTorch file."""
BESIDE = ""
"""Name in a row of the contents of files beside the row's file."""
TRIAL = frozenset({"task_id", "trial_name", "instruction", "is_resolved"})
"""Names in the result of a trial of Terminal-Bench."""
PEEKED = 64 << 10
"""Bytes at the beginning of a file that decide the format."""
EXPANDED, VALUES = 64, 8
"""Bytes of an unpacked archive, and values of a pickle or of arrays, for each byte of the file."""


def _object(value: Any) -> Row:
    return value if isinstance(value, dict) else {"": value}


def _beside(opened: Opened, *names: str, above: int = 0) -> Row:
    """Return the object in a JSON file beside ``opened``; empty if the file does not exist or is damaged."""
    try:
        return _object(decoded(opened.beside(*names, above=above) or b"{}"))
    except (ValueError, RecursionError):
        return {}


# -- JSON --------------------------------------------------------------------------------------------------------------


def _lines(opened: Opened, start: int) -> Rows:
    with opened.reading() as file:
        file.seek(start)
        at = start
        while line := file.readline(LONGEST):
            whole = line.endswith(b"\n")
            try:
                value = decoded(line) if line.strip() else None
            except (ValueError, RecursionError) as error:
                if not whole and len(line) < LONGEST:
                    return  # the line is still being written
                raise opened.wrong("it is no JSON, or too long", _line_of(file, at)) from error
            if value is not None:
                yield at, _object(value)
            at += len(line)


def _line_of(file: IO[bytes], at: int) -> int:
    """Return the number of the line that begins at a byte."""
    file.seek(0)
    number = 1
    while at > 0:
        part = file.read(min(at, 1 << 20))
        number, at = number + part.count(b"\n"), at - len(part)
    return number


def _json(opened: Opened, start: int) -> Rows:
    with opened.reading() as file:
        data = file.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise opened.wrong(f"it has more than {LONGEST >> 20} MB")
        is_lines = False
        try:
            value = decoded(data)
        except (ValueError, RecursionError):
            decoded(data.partition(b"\n")[0])  # raises: no lines either
            is_lines = True
    if is_lines:
        yield from _lines(opened, start)
        return
    if isinstance(value, dict) and any("trial_name" in one for one in objects(value.get("results"))):
        value = value["results"]  # a run of Terminal-Bench
    is_rows = bool(objects(value))
    if any({"role", "from", "action", "observation"} & one.keys() for one in objects(value)):  # messages, or events
        is_rows, value = False, {"messages": value}
    trials = set[tuple[str, ...]]()
    for number, one in enumerate(value[start:] if is_rows else [value], start):
        given = _object(one)
        if given.keys() >= TRIAL:
            trial = str(given["task_id"]), str(given["trial_name"])
            given[BESIDE] = opened.episodes(*trial) if trial not in trials else []
            trials.add(trial)
        elif "agent_info" in given:  # a trial of Harbor
            given[BESIDE] = _beside(opened, "agent", "trajectory.json")
        elif "schema_version" in given and opened.path.name == "trajectory.json":
            given[BESIDE] = _beside(opened, "result.json", above=1)
        yield number, given


# -- archives ----------------------------------------------------------------------------------------------------------


def _archive(opened: Opened, file: IO[bytes]) -> zipfile.ZipFile:
    """Open an archive. Raises ``QueryError`` if the unpacked size is far above the packed size."""
    archive = zipfile.ZipFile(file)
    unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > PEEKED + EXPANDED * os.fstat(file.fileno()).st_size:
        raise opened.wrong(f"it would unpack to {unpacked >> 20} MB")
    return archive


_ZSTD = 93


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: IO[bytes]) -> bytes:
    """Unpack a member. ``zipfile`` lacks Zstandard before Python 3.14; Inspect 0.3.285 uses Zstandard."""
    if member.file_size > LONGEST:
        raise ValueError(f"{member.filename[:80]} has more than {LONGEST >> 20} MB")
    if member.compress_type != _ZSTD:
        with archive.open(member) as part:
            return part.read(member.file_size)
    import pyarrow as pa

    file.seek(member.header_offset)
    header = file.read(30)
    file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), os.SEEK_CUR)
    packed = file.read(min(member.compress_size, LONGEST))
    return bytes(pa.decompress(packed, decompressed_size=member.file_size, codec="zstd", asbytes=True))


def _samples(opened: Opened, start: int) -> Rows:
    with opened.reading() as file, _archive(opened, file) as archive:
        members = archive.infolist()
        header = next((member for member in members if member.filename == "header.json"), None)
        log = _object(decoded(_unpacked(archive, header, file))) if header else {}
        log.pop("plan", None)
        for number, member in enumerate(members[start:], start):
            if member.filename.startswith("samples/") and member.filename.endswith(".json"):
                yield number, {**log, "samples": [decoded(_unpacked(archive, member, file))]}


_ARRAY = re.compile(rb"\{'descr': '[<|]([if][1248])', 'fortran_order': False, 'shape': \((\d{1,12}),\), \}\s*")
_CODES = {b"i1": "b", b"i2": "h", b"i4": "i", b"i8": "q", b"f4": "f", b"f8": "d"}


def _arrays(opened: Opened, start: int) -> Rows:
    """Yield a single row: array name -> numbers. Only flat arrays of numbers are read: numpy's other kinds are
    pickles."""
    with opened.reading() as file, _archive(opened, file) as archive:
        row: Row = {}
        left = PEEKED + VALUES * os.fstat(file.fileno()).st_size
        for member in archive.infolist():
            data = _unpacked(archive, member, file)
            end = 10 + int.from_bytes(data[8:10], "little")
            shape = _ARRAY.fullmatch(data[10:end]) if data.startswith(b"\x93NUMPY\x01") else None
            if shape is None:
                raise ValueError(f"{member.filename[:80]} is not a flat array of numbers")
            if (left := left - int(shape[2])) < 0:
                raise opened.wrong("it has far more numbers than bytes")
            numbers: array[Any] = array(_CODES[shape[1]])
            numbers.frombytes(data[end : end + int(shape[2]) * numbers.itemsize])
            row[member.filename.removesuffix(".npy")] = numbers.tolist()
        yield 0, {**row, BESIDE: _beside(opened, "trajectory.json")}


# -- PyTorch -----------------------------------------------------------------------------------------------------------


class _Plain(Conversion):
    """Convert pickled objects to plain values; a value in several places counts each time."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise ValueError("it repeats its values without end")

    def __call__(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        self._take(1)
        return super().__call__(value, depth)

    def sequence(self, value: Any, depth: int) -> Any:
        if type(value) is list and set(map(type, value)) <= {int, float, bool}:
            self._take(len(value))
            return value
        return super().sequence(value, depth)

    def other(self, value: Any) -> Any:
        if callable(getattr(value, "numel", None)):
            self._take(math.prod(max(1, int(size)) for size in value.shape))  # rows without numbers are lists, too
            try:
                return value.tolist()
            except RuntimeError as error:
                raise ValueError(f"a tensor cannot be read: {error}") from None
        return super().other(value)


_MAKES_ROOM = re.compile(rb"c(?:builtins|__builtin__)\n(?:bytearray|bytes|set)\n")
"""Match the opcode by which a pickle calls a type that takes a size. PyTorch allows ``bytearray``."""


def _torch(opened: Opened, start: int) -> Rows:
    try:
        import torch
    except ImportError:
        raise missing("torch") from None
    import pickle

    with opened.reading() as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST or not zipfile.is_zipfile(file):
            raise opened.wrong(f"torch.save did not write it, or it has more than {LARGEST >> 30} GB")
        checked = io.BytesIO()  # torch reads the checked members alone
        with _archive(opened, file) as archive, zipfile.ZipFile(checked, "w", zipfile.ZIP_STORED) as copy:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED:
                    raise opened.wrong("it is packed, which torch.save does not do")
                data = archive.read(member)
                if member.filename.endswith(".pkl") and _MAKES_ROOM.search(data):
                    raise opened.wrong("it asks for memory; only plain values are read")
                copy.writestr(zipfile.ZipInfo(member.filename), data)
        checked.seek(0)
        try:
            loaded = torch.load(checked, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError) as error:
            what = re.search(r"GLOBAL \S+|Unsupported \w+ \S+", str(error))
            named = f" ({what[0]})" if what else ""
            raise opened.wrong(
                f"it has objects that only code could make{named}; only plain values are read"
            ) from error
        yield 0, _object(_Plain(PEEKED + VALUES * size)(loaded))


_KINDS: Mapping[str, Callable[[Opened, int], Rows]] = {
    ".jsonl": _lines, ".json": _json, ".traj": _json, ".parquet": parquet_rows, ".eval": _samples, ".npz": _arrays,
    ".pt": _torch,
}  # fmt: skip
"""End of a file's name -> function that yields the rows from a start."""
SUFFIXES = tuple(_KINDS)
NAMED = (".jsonl", ".parquet", ".json", ".traj")
"""Files whose first row has the names by which the file is recognised."""


def entries(opened: Opened) -> frozenset[str] | bytes:
    """Return what a file is recognised by: the names in the first row, else the beginning of the file, which contains
    the names of an archive's members. Empty for a file that cannot be read."""
    try:
        if opened.path.suffix in NAMED:
            first = parquet_rows(opened, 0, most="0") if opened.path.suffix == ".parquet" else rows(opened)
            return frozenset(next(first, (0, {}))[1])
        with opened.reading() as file:
            return file.read(PEEKED)
    except QueryError:
        return frozenset()


def rows(opened: Opened, start: int = 0) -> Rows:
    """Yield the rows of a file from ``start``, in order; rows of ``SPREAD`` joined. Raises ``QueryError``."""
    found = _KINDS[opened.path.suffix](opened, start)
    for at, row in found:
        if not start and any(needed <= row.keys() for needed in SPREAD):
            row = {**row, BESIDE: [dict(row)]}
            for end, following in found:
                if end > LONGEST:
                    raise opened.wrong(f"it has more than {LONGEST >> 20} MB")
                row[BESIDE].append(following)
        yield at, row


@dataclass(frozen=True)
class Format:
    """Describe the saved rollouts of a project."""

    name: str
    """Name in commands, and of the trajectory's root call."""
    title: str
    """Title that people see when files are recognised."""
    suffixes: tuple[str, ...]
    """Ends of file names."""
    needs: tuple[frozenset[str], ...]
    """Sets of names; a file that contains all names of any set is recognised (``containers.names``)."""
    read: Callable[[Row, str], Iterator[Trajectory]]
    """Yield the rollouts in a row, without ids; the second argument is the path of the file, which may contain the
    step. A row of anything else yields nothing."""
    certain: bool = True
    """Whether the names alone decide: files of other content have names such as ``history``, too."""
    beside: tuple[str, ...] = ()
    """Names of files that the project writes beside rollouts: a run does not mention such files."""


def names(*words: str) -> tuple[frozenset[str], ...]:
    """Split texts for ``Format.needs``: each text has names with blanks between."""
    return tuple(frozenset(word.split()) for word in words)


SPREAD = names("resourceSpans", "traceId type startTime")
"""Names in rows that have parts of rollouts: the spans of a trace may be in several rows."""
_STEP = re.compile(r"step_(\d{1,12})(?:/|\Z)")
_VALIDATION = re.compile(r"(?:\A|[/_.-])(?:val|valid|validation|eval|test)(?=[/_.-]|\Z)")


def step_of(path: str) -> int | None:
    """Return the step in the name of a folder: ``step_12``."""
    found = _STEP.findall(path)
    return integer(found[-1]) if found else None


def validates(path: str) -> bool | None:
    """Return True if a folder or file name marks data that the trainer does not learn from; else None."""
    return True if _VALIDATION.search(path) else None
