"""Read the metrics and settings that a trainer leaves behind, without the packages that wrote them.

W&B's offline folder (``*.wandb`` of wandb 0.31), TensorBoard's event files, ``trainer_state.json`` of transformers, the
lines of veRL's file and console loggers, trackio's and MLflow's SQLite databases, MLflow's ``mlruns``, and CSV with a
column of steps. A file is anybody's: reading is bounded by the bytes of the file, and a database runs no view, function
or trigger.
"""

from __future__ import annotations

import csv
import os
import re
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, NamedTuple

from autotrace.foreign.collector import mapped, objects
from autotrace.foreign.containers import rows
from autotrace.foreign.opened import LONGEST, Opened
from autotrace.run import files
from autotrace.tables.errors import QueryError
from autotrace.trajectory.jsonable import finite, integer, loaded

SETTING = "setting"
Scalar = tuple[str, object, str, object]
"""Name of the run within the file (empty: the file is a run), step (``SETTING``: a setting of the run), name, value."""
Metrics = dict[int, dict[str, float]]
"""Step -> name -> value."""


class TrainerLog(NamedTuple):
    """Hold the metrics and the settings of a run."""

    metrics: Metrics
    settings: dict[str, Any]


MOST = 2_000_000
"""Maximum values of a file."""
LONGEST_NAME = 200
"""Characters of a name that count."""
STEPS = ("step", "global_step", "_step", "training/global_step", "Step", "iteration", "epoch")
"""Names of the column of steps in CSV and in a history."""


def _parts(name: str, value: Any, depth: int = 3) -> Iterator[tuple[str, object]]:
    """Yield the numbers in a value; the name of a number in an object leads through the object."""
    if isinstance(value, dict) and depth:
        for key, part in value.items():
            yield from _parts(f"{name[:LONGEST_NAME]}/{key}", part, depth - 1)
    else:
        yield name, value


def of_row(run: str, row: dict[str, Any], step: object = None) -> Iterator[Scalar]:
    """Yield the numbers of a row of a log, at the step of the row."""
    step = next((row[name] for name in STEPS if row.get(name) is not None), None) if step is None else step
    for name, value in row.items():
        for part, number in _parts(name, value) if name not in STEPS else ():
            yield run, step, part, number


# -- text --------------------------------------------------------------------------------------------------------------

_CONSOLE = re.compile(rb"(?:\A|[\s\]])step:(\d{1,12}) - (?=[^\s:]+:)")
_NUMBER = re.compile(r"(?:np\.\w+\()?(-?[\d.]+(?:e[+-]?\d+)?)\)?\Z")


def _rows(opened: Opened) -> Iterator[Scalar]:
    for _, row in rows(opened):
        if not isinstance(row.get("data"), dict) and "log_history" not in row:
            return
        for entry in (mapped(row, "data"), *objects(row.get("log_history"))):
            yield from of_row("", entry, row.get("step") if "data" in row else None)


def _console(opened: Opened) -> Iterator[Scalar]:
    with opened.reading() as file:
        while line := file.readline(LONGEST):
            if (begin := _CONSOLE.search(line)) is None:
                continue
            for part in line[begin.end() :].decode("utf-8", "replace").strip().split(" - "):
                name, _, value = part.rpartition(":")
                if name and (number := _NUMBER.match(value)):
                    yield "", int(begin[1]), name, number[1]


def _csv(opened: Opened) -> Iterator[Scalar]:
    with opened.reading() as file:
        texts = (line.decode("utf-8", "replace") for line in iter(lambda: file.readline(1 << 20), b""))
        try:
            lines = filter(None, csv.reader(texts))
            names = next(lines, [])
            for line in lines:
                yield from of_row("", dict(zip(names, line, strict=False)))
        except csv.Error as error:
            raise ValueError(str(error)) from error


def _mlruns(opened: Opened) -> Iterator[Scalar]:
    run, kind, name = re.findall(_MLRUNS, str(opened.path))[-1]
    with opened.reading() as file:
        if kind == "params":
            yield run, SETTING, name, file.read(1 << 13).decode("utf-8", "replace")
        for line in iter(lambda: file.readline(1 << 12), b"") if kind == "metrics" else ():
            if len(words := line.decode("ascii", "replace").split()) == 3:  # time, value, step
                yield run, words[2], name, words[1]


# -- protocol buffers --------------------------------------------------------------------------------------------------

_BLOCK, _HEAD = 1 << 15, 7


def _whole(file: IO[bytes], count: int) -> bytes:
    """Return ``count`` bytes, or nothing if the file ends earlier: the writer is still writing."""
    data = file.read(count) if count <= LONGEST else b""
    return data if len(data) == count else b""


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
    raise ValueError("a number has no end")


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field: an int, or bytes. Anything but bytes has no field."""
    at, data = 0, data if isinstance(data, bytes) else b""
    while at < len(data):
        key, at = _number(data, at)
        if (kind := key & 7) == 0:
            value, at = _number(data, at)
            yield key >> 3, value
            continue
        size, at = _number(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        yield key >> 3, data[at : at + size]
        at += size


def _message(data: Any) -> dict[int, Any]:
    return dict(_fields(data))


def _text(data: Any) -> str:
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else ""


def _records(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the records of a log in LevelDB's form, which W&B writes; the header has the length of a record's."""
    at, parts, size = _HEAD, list[bytes](), 0
    file.seek(at)
    while True:
        if (left := _BLOCK - at % _BLOCK) < _HEAD:
            file.seek(left, os.SEEK_CUR)
            at += left
        head = _whole(file, _HEAD)
        length, kind = int.from_bytes(head[4:6], "little"), head[6] if head else 0
        if not length or len(data := _whole(file, length)) != length:
            return
        at += _HEAD + length
        if kind in (1, 2):
            parts, size = [], 0
        parts.append(data)
        if (size := size + length) > LONGEST:
            raise ValueError("a record is too long")
        if kind in (1, 4):
            yield b"".join(parts)
            parts, size = [], 0


_ENVIRONMENT = {2: "versions.python", 25: "versions.cuda", 18: "gpu_type", 19: "gpu_count"}
"""Field of W&B's record of the environment -> name of the setting."""


def _wandb(opened: Opened) -> Iterator[Scalar]:
    with opened.reading() as file:
        for kind, value in (field for record in _records(file) for field in _fields(record)):
            if kind == 2:  # history
                step = next((_message(part).get(1, 0) for number, part in _fields(value) if number == 2), None)
                for keys, written in _items(value):
                    if (len(keys) > 1 or not keys[0].startswith("_")) and len(written) < 64:
                        yield "", step, "/".join(keys), loaded(written)
            for number, part in _fields(value) if kind in (17, 26) else ():  # run, environment
                if kind == 26 and number in _ENVIRONMENT:
                    yield "", SETTING, _ENVIRONMENT[number], part if isinstance(part, int) else _text(part)
                elif kind == 17 and number == 4:
                    yield from _config(part)
            yield from _config(value) if kind == 5 else ()
    for line in opened.beside("files", "requirements.txt").decode("utf-8", "replace").split():
        name, is_version, version = line.partition("==")
        if is_version:
            yield "", SETTING, f"versions.{name}", version


def _config(config: Any) -> Iterator[Scalar]:
    for keys, written in _items(config):
        if keys != ["_wandb"]:
            yield "", SETTING, ".".join(keys), loaded(written)


def _items(data: Any) -> Iterator[tuple[list[str], str]]:
    """Yield the names that lead to a value of W&B's history or configuration, and the value as JSON."""
    for item in (value for number, value in _fields(data) if number == 1 and isinstance(value, bytes)):
        if keys := [_text(value) for number, value in _fields(item) if number in (1, 2)]:
            yield keys, _text(_message(item).get(16))


def _events(opened: Opened) -> Iterator[Scalar]:
    with opened.reading() as file:
        while head := _whole(file, 12):
            record = _whole(file, int.from_bytes(head[:8], "little"))
            if not record or not _whole(file, 4):
                return
            event = _message(record)
            for value in (_message(part) for number, part in _fields(event.get(5)) if number == 1):
                tensor = _message(value.get(8))
                data = value.get(2) or tensor.get(5) or tensor.get(6) or tensor.get(4) or b""
                if isinstance(data, bytes) and len(data) in (4, 8):
                    number = struct.unpack("<f" if len(data) == 4 else "<d", data)[0]
                    yield "", event.get(2, 0), _text(value.get(1)), number


# -- databases ---------------------------------------------------------------------------------------------------------

_QUERIES = (
    ("metrics", "run_name", "SELECT run_name, step, metrics FROM metrics NOT INDEXED ORDER BY +id"),
    ("configs", "run_name", f"SELECT run_name, '{SETTING}', config FROM configs"),
    (
        "metrics",
        "run_uuid",
        "SELECT run_uuid, step, key, value FROM metrics NOT INDEXED WHERE NOT is_nan ORDER BY +timestamp",
    ),
    ("params", "run_uuid", f"SELECT run_uuid, '{SETTING}', key, value FROM params"),
)  # fmt: skip
"""Tables of trackio and MLflow: name, a column by which the table is recognised, query. An index is not read: an index
that somebody made may name one row many times."""
TEXTS = 4
"""Limits the characters of a database's texts, times the bytes of the file."""


def _database(opened: Opened) -> Iterator[Scalar]:
    with opened.reading() as file:  # a regular file, and no link
        if why := files.strange_database(opened.path):
            raise ValueError(why)
        if os.path.exists(journal := f"{opened.path}-wal") and os.path.getsize(journal):
            raise ValueError("values are in its -wal file only; open it once with the program that wrote it")
        size = os.fstat(file.fileno()).st_size
        db = sqlite3.connect(f"file:/dev/fd/{file.fileno()}?mode=ro&immutable=1", uri=True)
        budget, left = iter(range(1000 + size // 1000)), TEXTS * size + (1 << 20)
        try:
            db.execute("PRAGMA trusted_schema=OFF")
            db.set_progress_handler(lambda: next(budget, None) is None, 10_000)
            if (found := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise ValueError(f"it is damaged: {found}")
            for table, column, sql in _QUERIES:
                kind = db.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
                columns = db.execute(f"PRAGMA table_xinfo({table})").fetchall()
                if not kind or kind[0] != "table" or "VIRTUAL" in str(kind[1]).upper() or any(c[6] for c in columns):
                    continue  # only stored columns: anything else could run code
                for row in db.execute(sql) if column in {of[1] for of in columns} else ():
                    if len(row) == 4:
                        yield str(row[0]), *row[1:]
                    else:
                        text = row[2].decode("utf-8", "replace") if isinstance(row[2], bytes) else str(row[2])
                        if (left := left - len(text)) < 0:
                            raise ValueError("its rows have far more text than the file has bytes")
                        yield from of_row(str(row[0]), mapped(loaded(text)), row[1])
        except sqlite3.Error as error:
            raise ValueError(str(error)) from None
        finally:
            db.close()


# -- files -------------------------------------------------------------------------------------------------------------

_MLRUNS = r"(?s)/([0-9a-f]{32})/(metrics|params)/(.+)\Z"
_KINDS: dict[str, tuple[str, Callable[[Opened], Iterator[Scalar]]]] = {
    _MLRUNS: ("metrics of MLflow's files", _mlruns),
    r"\.wandb\Z": ("W&B's metrics", _wandb),
    r"(?:\A|/)events\.out\.tfevents\.[^/]*\Z": ("TensorBoard's metrics", _events),
    r"(?:\A|/)trainer_state\.json\Z": ("metrics of trainer_state.json", _rows),
    r"\.jsonl\Z": ("metrics of veRL's file logger", _rows),
    r"\.(?:log|out|txt)\Z": ("metrics of veRL's console", _console), r"\.csv\Z": ("metrics of CSV", _csv),
    r"\.(?:db|sqlite3?)\Z": ("metrics of trackio or MLflow", _database),
}  # fmt: skip
"""Pattern of a file's path -> title, reader."""
TITLES = tuple(title for title, _ in _KINDS.values())


def is_wanted(path: str) -> bool:
    """Return whether a file at this path may contain metrics."""
    return any(re.search(pattern, path) for pattern in _KINDS)


def scalars(opened: Opened) -> Iterator[tuple[str, str, TrainerLog]]:
    """Yield title, name and contents of each run in a file; nothing if the file is of another kind. Raises
    ``QueryError``."""
    title, read = next((of for pattern, of in _KINDS.items() if re.search(pattern, str(opened.path))), ("", None))
    values = () if read is None else read(opened)
    yield from ((title, run, found) for run, found in collected(values, str(opened.path)).items())


def collected(values: Iterable[Scalar], name: str) -> dict[str, TrainerLog]:
    """Sort numbers by run and step; ``name``: the name of the place. Raises ``QueryError``."""
    runs: dict[str, TrainerLog] = {}
    for number, (run, at, key, given) in enumerate(values):
        if number >= MOST:
            raise QueryError(f"{name} has more than {MOST:,} values")
        value, step, key = _value(given), integer(_value(at)), str(key)[:LONGEST_NAME]
        if at == SETTING and key[:1] != "_":
            runs.setdefault(run[:100], TrainerLog({}, {})).settings[key] = given
        elif step is not None and value is not None:
            runs.setdefault(run[:100], TrainerLog({}, {})).metrics.setdefault(step, {})[key] = value
    return runs


def _value(given: object) -> float | None:
    if isinstance(given, str):  # of a text
        try:
            given = float(given)
        except ValueError:
            return None
    return finite(given)
