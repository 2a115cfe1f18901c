"""Open a file of somebody else: bounded reads, and one sentence for whatever is wrong with the file."""

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
"""Bytes of a line, of a file of JSON and of a member of an archive."""


class Opened:
    """A file below the folder ``top``; no link on the way is followed. Raises ``QueryError``."""

    def __init__(self, top: Path, name: str) -> None:
        self.top, self.name, self.path = top, name, top / name
        self.is_bounded = False
        """Rows of Parquet were counted, and take no more than the file's size allows."""

    @contextmanager
    def reading(self) -> Iterator[IO[bytes]]:
        """Its bytes. Whatever is wrong with them becomes one sentence."""
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
        """The error to raise."""
        at = "" if line is None else f", line {line}"
        return QueryError(f"{self.path}{at} cannot be read: {' '.join(what.split()).rstrip('.')}")

    def beside(self, name: str) -> Row:
        """The file of JSON ``name`` in the same folder; empty if it does not exist."""
        try:
            data = files.read(self.top, *Path(self.name).parent.parts, name)
        except OSError:
            return {}
        value = decoded(data)
        return value if isinstance(value, dict) else {}


def decoded(data: bytes) -> Any:
    """JSON as plain values, also with ``NaN``, which JSON does not have and others write. Raises ``ValueError``,
    ``RecursionError``."""
    if expands(data):
        raise ValueError(EXPANDS)
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        value = json.loads(data)
    return jsonable(value)
