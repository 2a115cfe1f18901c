"""Describe export formats, list the formats by name (a module of this folder with a function ``write``, and one line
here), and write their files: all files appear together once every file is complete."""

from __future__ import annotations

import errno
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
"""Value of ``out`` for standard output, for formats of one file."""


class ExportError(Exception):
    """Report that an export is impossible; the message is a sentence for the user. Nothing was written."""


@dataclass
class Written:
    """Count the exported and the omitted trajectories."""

    trajectories: int = 0
    files: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Reason -> number of trajectories."""


Write = Callable[..., Written]
"""Write all trajectories with ``write(trajectories, out)`` below the folder ``out``, or to the target that ``out``
means to the format (a file, ``STDOUT``, a URL). Files appear complete, or stay as before: an exception, also of the
iterator, leaves nothing half written. The iterator is read once, and no trajectory has to be kept. Without trajectories
nothing is written. Raises ``ExportError`` and ``OSError``."""

FORMATS = {
    "jsonl": "everything, as the backend of that name writes it: one JSON object a line",
    "parquet": "the tables of `autotrace help data`, for polars, DuckDB, Ray Data; --out may be s3://bucket/folder",
    "verl": "veRL's rollout dump: one {step}.jsonl a step, for its rollout viewer",
    "sft": "rows of messages and tools, one a trajectory, for supervised fine-tuning",
    "dpo": "the best and the worst rollout of each group, as pairs for preference training",
    "atif": "Harbor's Agent Trajectory Interchange Format: one JSON file a trajectory, with token ids",
}
"""Name of a format and its module -> contents; modules are imported on use."""


TABLES = "parquet"
"""Name of the format that needs Arrow. ``out`` may be a URL (``s3://bucket/folder``), and ``write`` takes an argument
``metrics``: step -> numbers that the trainer logged (``tables.metrics.OfStep``)."""


def get(name: str) -> Write:
    """Return ``write`` of the format called ``name``, a key of ``FORMATS``."""
    write: Write = importlib.import_module(f"{__package__}.{name}").write
    return write


def help_text() -> str:
    """Return all formats in one line, for ``--help``."""
    return "; ".join(f"{name}: {what}" for name, what in FORMATS.items())


Row = tuple[str, Any]
"""Name of a file below the folder, and the plain value of a line."""
RowOf = Callable[[Trajectory], Row | list[Row] | str]
"""Return the row or rows of a trajectory, or the reason why no row is possible."""


class Staging:
    """Write files under temporary names, then move all files to their final names. The context manager moves every file
    on exit without an exception, and no file after an exception. An existing target that is not a file (``/dev/null``,
    a pipe) is written directly."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: dict[str, tuple[Path, Path]] = {}
        """Name -> temporary path and final path: both equal for a target that is not a file."""
        self._open: tuple[str, IO[bytes]] | None = None

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._parts)

    def path(self, name: str) -> Path:
        """Return the path to write the file ``name`` for now. Raises ``OSError``."""
        if name not in self._parts:
            named = files.inside(self._folder, name)
            if reason := files.planted(named):
                raise PermissionError(errno.EPERM, reason, named)
            part = final = Path(os.path.realpath(named))  # a user's link stays a link
            if not final.exists() or final.is_file() or final.is_dir():
                files.folder(final.parent)
                part = final.with_name(f"{final.name}.{os.urandom(6).hex()}.part")
                os.close(files.new(part))
            self._parts[name] = part, final
        return self._parts[name][0]

    def append(self, name: str, data: bytes) -> None:
        """Append ``data`` to the file ``name``. Raises ``OSError``."""
        if self._open is None or self._open[0] != name:
            self._close()
            try:
                fd = files.append(path := self.path(name))
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                raise OSError(errno.ENXIO, "it is a socket, or a pipe that nobody reads", str(path)) from None
            os.set_blocking(fd, True)  # the reader of a pipe may be slower
            self._open = name, os.fdopen(fd, "wb")
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
    """Write one or several lines of JSON for each trajectory. See ``write_rows``."""
    written = Written()
    return write_rows(_rows(trajectories, row_of, written), out, written, one_file=one_file)


def write_rows(rows: Iterable[Row], out: str, written: Written, *, one_file: bool) -> Written:
    """Write lines of JSON; ``written`` is filled while ``rows`` are taken.

    ``out``: a folder; with ``one_file`` also a file (its name ends with ``.jsonl`` or ``.json``) or ``STDOUT``. Raises
    ``ExportError`` and ``OSError``.
    """
    to_file = out.endswith((".jsonl", ".json"))
    if (to_file or out == STDOUT) and not one_file:
        raise ExportError(f"this format is several files, so --out must be a folder, not {out}")
    if out == STDOUT:
        shown = sys.stdout.isatty()
        for _, row in rows:
            line = msgspec.json.encode(row) + b"\n"
            # a terminal would act on control characters in a model's text
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
