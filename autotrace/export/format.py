"""What an export format is, the formats by name (a module of this folder with a function ``write``, and one line here),
and how their files are written: they appear together when all of them are whole."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from autotrace.run import files
from autotrace.trajectory.model import Trajectory

STDOUT = "-"
"""As ``out``: to standard output, for formats of one file."""


class ExportError(Exception):
    """An export cannot be made; the message is one sentence for the user. Nothing was written."""


@dataclass
class Written:
    """What an export wrote, and what it left out."""

    trajectories: int = 0
    files: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Why -> how many trajectories."""


Write = Callable[..., Written]
"""``write(trajectories, out)`` writes all of them below the folder ``out``, or to what ``out`` means to this format (a
file, ``STDOUT``, a URL). The files are there whole, or as they were before: whatever is raised, by the iterator too,
leaves nothing half written. The iterator is read once, and no trajectory need be kept. Nothing is written for no
trajectory. Raises ``ExportError`` and ``OSError``."""

FORMATS = {
    "jsonl": "everything, as the backend of that name writes it: one JSON object a line",
    "parquet": "the tables of `autotrace help data`, for polars, DuckDB, Ray Data; --out may be s3://bucket/folder",
    "verl": "veRL's rollout dump: one {step}.jsonl a step, for its rollout viewer",
    "sft": "rows of messages and tools, one a trajectory, for supervised fine-tuning",
    "dpo": "the best and the worst rollout of each group, as pairs for preference training",
    "atif": "Harbor's Agent Trajectory Interchange Format: one JSON file a trajectory, with token ids",
}
"""Name, which is that of the module -> what it writes; the modules are imported when used."""


TABLES = "parquet"
"""The format that needs Arrow. There, ``out`` may be a URL (``s3://bucket/folder``), and ``write`` takes an argument
``metrics``: step -> what the trainer logged of it (``tables.metrics.OfStep``)."""


def get(name: str) -> Write:
    """``write`` of the format called ``name``, which is one of ``FORMATS``."""
    write: Write = importlib.import_module(f"{__package__}.{name}").write
    return write


def help_text() -> str:
    """All formats in one line, for ``--help``."""
    return "; ".join(f"{name}: {what}" for name, what in FORMATS.items())


Row = tuple[str, Any]
"""Name of a file, below the folder, and the value of one line of it, plain."""
RowOf = Callable[[Trajectory], Row | list[Row] | str]
"""Gives the row of a trajectory, or several, or says why it cannot."""


class Staging:
    """Files that are written beside their place, then moved there. A context manager: on leaving it without an
    exception, every file is in its place; with one, none is. What is there and is not a file (``/dev/null``, a pipe) is
    written to and stays what it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: dict[str, tuple[Path, Path]] = {}
        """Name -> where the file is written, and where it then appears: the same place if it is not a file."""
        self._open: tuple[str, IO[bytes]] | None = None

    def __len__(self) -> int:
        """How many files there will be."""
        return len(self._parts)

    def path(self, name: str) -> Path:
        """Where to write the file ``name`` for now. Raises ``OSError``."""
        if name not in self._parts:
            part = final = Path(os.path.realpath(files.inside(self._folder, name)))  # a link of the user's stays one
            if not final.exists() or final.is_file() or final.is_dir():
                files.folder(final.parent)
                part = final.with_name(f"{final.name}.{os.getpid()}.part")
                os.close(files.overwrite(part))
            self._parts[name] = part, final
        return self._parts[name][0]

    def append(self, name: str, data: bytes) -> None:
        """Add ``data`` to the file ``name``. Raises ``OSError``."""
        if self._open is None or self._open[0] != name:
            self._close()
            self._open = name, os.fdopen(files.append(self.path(name)), "wb")
        self._open[1].write(data)

    def _close(self) -> None:
        last, self._open = self._open, None
        if last is not None:
            last[1].close()

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        moved = [(part, final) for part, final in self._parts.values() if part != final]
        try:
            self._close()
            for part, final in moved if kind is None else ():
                os.replace(part, final)
        finally:
            for part, _ in moved:
                part.unlink(missing_ok=True)


def write_lines(trajectories: Iterable[Trajectory], out: str, row_of: RowOf, *, one_file: bool) -> Written:
    """Write one line of JSON a trajectory, or several. See ``write_rows``."""
    written = Written()
    return write_rows(_rows(trajectories, row_of, written), out, written, one_file=one_file)


def write_rows(rows: Iterable[Row], out: str, written: Written, *, one_file: bool) -> Written:
    """Write lines of JSON; ``written`` is filled while ``rows`` are taken.

    ``out``: a folder; with ``one_file`` also a file (its name ends with ``.jsonl`` or ``.json``) or ``STDOUT``.
    Raises ``ExportError`` and ``OSError``.
    """
    to_file = out.endswith((".jsonl", ".json"))
    if (to_file or out == STDOUT) and not one_file:
        raise ExportError(f"this format is several files, so --out must be a folder, not {out}")
    if out == STDOUT:
        shown = sys.stdout.isatty()
        for _, row in rows:
            line = msgspec.json.encode(row) + b"\n"
            # a terminal would act on what a model wrote
            sys.stdout.buffer.write(json.dumps(msgspec.json.decode(line)).encode() + b"\n" if shown else line)
        sys.stdout.flush()
        written.files = 1
        return written
    with Staging(Path(out).parent if to_file else Path(out)) as staging:
        for name, row in rows:
            staging.append(os.path.basename(out) if to_file else name, msgspec.json.encode(row) + b"\n")
        written.files = len(staging)
    return written


def _rows(trajectories: Iterable[Trajectory], row_of: RowOf, written: Written) -> Iterable[Row]:
    for trajectory in trajectories:
        row = row_of(trajectory)
        if isinstance(row, str):
            written.left_out[row] += 1
            continue
        yield from row if isinstance(row, list) else [row]
        written.trajectories += 1
