"""Read single rows of a stranger's files, in any order."""

from __future__ import annotations

from autotrace.foreign.containers import rows
from autotrace.foreign.opened import LONGEST, Opened, Row, Rows
from autotrace.run import files


class RowReader:
    """Provide single rows of files. Rows are mostly requested in order, and a JSON file is parsed as a whole each time;
    a JSON file whose rows are requested out of order is therefore kept, up to ``LONGEST`` bytes of files."""

    def __init__(self) -> None:
        self._opened: Opened | None = None
        self._rows: Rows = iter(())
        self._left: set[str] = set()
        """Names of the files that other files followed."""
        self._parsed: dict[str, dict[int, Row]] = {}
        self._room = LONGEST

    def row(self, opened: Opened, number: int) -> Row | None:
        """Return a row of a file; None: the file has no such row."""
        if opened.name in self._parsed:
            return self._parsed[opened.name].get(number)
        again = opened.name in self._left and opened is not self._opened
        if opened is self._opened:
            at, value = next(self._rows, (None, {}))
            if at == number:
                return value
            again = True
        elif self._opened is not None:
            self._left.add(self._opened.name)
        seen = files.changed(opened.path) if again and opened.path.suffix in (".json", ".traj") else None
        size = seen[1] if seen else LONGEST
        if size < self._room:
            self._room -= size
            self._opened, self._rows = None, iter(())  # holds the whole file, too
            self._parsed[opened.name] = dict(rows(opened))
            return self._parsed[opened.name].get(number)
        self._opened, self._rows = opened, rows(opened, number)
        at, value = next(self._rows, (None, {}))
        return value if at == number else None
