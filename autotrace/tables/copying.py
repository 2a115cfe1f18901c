"""The tables of a run copied to another place as they grow: files first, then ``commits.jsonl``, so a reader of its
lines there sees whole commits. What a killed process copied and no line names is written again, or taken away."""

from __future__ import annotations

from pathlib import Path

from autotrace.run import files
from autotrace.tables.commits import FILE, FOLDER, snapshot
from autotrace.tables.place import Place

TRIES = 5
"""Files may be made one of while they are copied: then the lines are read again."""


class Copy:
    """Copies the tables of ``run_folder`` to ``folder`` of a place."""

    def __init__(self, run_folder: Path, at: Place, folder: str) -> None:
        self._tables = run_folder / FOLDER
        self._place = at
        self._folder = f"{folder}/{FOLDER}"
        self._there: set[str] | None = None
        """Files that are there and that count."""

    def update(self) -> int:
        """Copy what was committed since; bytes. Raises ``PlaceError``, or ``OSError`` where the tables cannot be read;
        then it may be tried again."""
        for attempt in range(TRIES):
            try:
                return self._update()
            except FileNotFoundError:
                if attempt == TRIES - 1:
                    raise
            except BaseException:
                self._there = None
                raise
        raise AssertionError

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
        """The files there that its own lines and these name; others that it has are taken away."""
        known = snapshot(self._place.read(f"{self._folder}/{FILE}") or b"")
        named = {path for by_path in known.files.values() for path in by_path}
        for table in {path.partition("/")[0] for path in counts | named}:
            for name in self._place.names(f"{self._folder}/{table}"):
                if f"{table}/{name}" not in named:
                    self._place.remove(f"{self._folder}/{table}/{name}")
        return named
