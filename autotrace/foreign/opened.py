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
LONGEST = 64 << 20
"""Maximum bytes of a line, of a JSON file and of a member of an archive."""


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

    def beside(self, name: str, above: int = 0) -> Row:
        """Read the JSON file ``name`` in the same folder, or ``above`` that folder; empty if the file does not
        exist."""
        folder = Path(self.name).parts[:-1]
        try:
            data = files.read(self.top, *folder[: len(folder) - above], name)
        except OSError:
            return {}
        value = decoded(data)
        return value if isinstance(value, dict) else {}


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
