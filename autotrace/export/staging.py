"""Files that appear together when all of them are whole: written beside their place, then moved there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from autotrace.export.format import STDOUT, ExportError, Written
from autotrace.run import files
from autotrace.trajectory.model import Trajectory

Row = tuple[str, Any]
"""Name of a file, below the folder, and the value of one line of it, plain."""


class Staging:
    """A context manager. On leaving it without an exception, every file is in its place; with one, none is. What is
    there and is not a file (``/dev/null``, a pipe) is written to and stays what it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: dict[str, tuple[Path, Path]] = {}
        """Name -> where the file is written, and where it then appears: the same place for what is no file."""
        self._open: tuple[str, IO[bytes]] | None = None

    def __len__(self) -> int:
        """How many files there will be."""
        return len(self._parts)

    def path(self, name: str) -> Path:
        """Where to write the file ``name`` for now. Raises ``OSError``."""
        if name not in self._parts:
            part = final = Path(os.path.realpath(self._folder / name))  # a link of the user's stays one
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


def write_lines(
    trajectories: Iterable[Trajectory],
    out: str,
    row_of: Callable[[Trajectory], Row | list[Row] | str],
    *,
    one_file: bool,
) -> Written:
    """Write one line of JSON a trajectory, or several. ``row_of`` gives a file's name and each line, or says why it
    cannot. See ``write_rows``."""
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


def _rows(
    trajectories: Iterable[Trajectory], row_of: Callable[[Trajectory], Row | list[Row] | str], written: Written
) -> Iterable[Row]:
    for trajectory in trajectories:
        row = row_of(trajectory)
        if isinstance(row, str):
            written.left_out[row] += 1
            continue
        yield from row if isinstance(row, list) else [row]
        written.trajectories += 1
