"""Open a stranger's file: bounded reads, and a single sentence for any damage of the file."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from autotrace.run import files
from autotrace.tables.errors import QueryError
from autotrace.trajectory.jsonable import EXPANDS, expands, jsonable

Row = dict[str, Any]
Rows = Iterator[tuple[int, Row]]
"""Each row with the value of ``start`` at which ``rows`` of a container begins with that row."""
LONGEST = 64 << 20
"""Maximum bytes of a line, of a JSON file and of a member of an archive."""

_EPISODE = {"prompt.txt": "user", "response.txt": "assistant", "response.json": "assistant"}
"""File of an episode of Terminal-Bench -> role of the message in the file."""


class Opened:
    """Open a file below the folder ``top``; no link on the way is followed. Raises ``QueryError``."""

    def __init__(self, top: Path, name: str) -> None:
        self.top, self.name, self.path = top, name, top / name
        self.is_bounded = False
        """Whether the rows of a Parquet file were counted, and take no more memory than the file's size allows."""

    @contextmanager
    def reading(self) -> Iterator[IO[bytes]]:
        """Open the file's bytes. Any error within the block becomes a sentence."""
        try:
            with os.fdopen(files.reading(self.top, *Path(self.name).parts), "rb") as file:
                yield file
        except QueryError:
            raise
        except OSError as error:
            raise self.wrong(error.strerror or str(error)) from error
        except MemoryError as error:
            raise self.wrong("it takes more memory than there is") from error
        except (ValueError, LookupError, TypeError, RecursionError, NotImplementedError, EOFError, zlib.error,
                zipfile.BadZipFile) as error:  # fmt: skip
            raise self.wrong(f"it is damaged, or not what its name says ({str(error)[:200]})") from error

    def wrong(self, what: str, line: int | None = None) -> QueryError:
        """Return the error to raise."""
        at = "" if line is None else f", line {line}"
        return QueryError(f"{self.path}{at} cannot be read: {' '.join(what.split()).rstrip('.')}")

    def beside(self, *names: str, above: int = 0) -> bytes:
        """Read the file at ``names`` in the same folder, or in the folder ``above``; empty if the file does not
        exist."""
        folder = Path(self.name).parts[:-1]
        try:
            return files.read(self.top, *folder[: max(0, len(folder) - above)], *names)
        except (OSError, ValueError):
            return b""

    def episodes(self, *within: str) -> list[Row]:
        """Return the messages that an agent of Terminal-Bench logged in the trial ``within`` a run, from the file of
        the trial or of the run."""
        folder = () if self.path.parent.name == within[-1] else within
        said: list[Row] = []
        number, left = 0, LONGEST
        while left > 0 and any(parts := [self.beside(*folder, "agent-logs", f"episode-{number}", n) for n in _EPISODE]):
            number, left = number + 1, left - sum(map(len, parts))
            texts = zip(_EPISODE.values(), (part.decode("utf-8", "replace") for part in parts), strict=True)
            said += [{"role": role, "content": text} for role, text in texts if text]
        return said


def decoded(data: bytes) -> Any:
    """Parse JSON to plain values, also with ``NaN``, which JSON lacks and other projects write. Raises ``ValueError``,
    ``RecursionError``."""
    if expands(data):
        raise ValueError(EXPANDS)
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        value = json.loads(data)
    return jsonable(value)
