"""Rows into PostgreSQL by COPY: the server parses no statements for them, and looks for no row to replace.

It knows no ON CONFLICT, so it is for rows that cannot be there yet: of traces that this transaction has inserted.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any

from sqlalchemy import JSON, Connection, Table, text
from sqlalchemy.exc import DBAPIError

DRIVERS = ("psycopg", "psycopg2")
"""SQLAlchemy's drivers whose COPY is known here."""
AT_ONCE = 200
"""Rows that are put together at once: a transaction's take tens of megabytes in each form that they have on the way."""
_ABSENT = "\\N"
_LZ4 = text(
    "SELECT count(*) FROM pg_settings "
    "WHERE name = 'default_toast_compression' AND source = 'default' AND 'lz4' = ANY (enumvals)"
)
_USE_LZ4 = text("SET LOCAL default_toast_compression = 'lz4'")


def copy(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add ``rows``, which have the same columns in the same order, to ``table``. Raises SQLAlchemy's errors, and
    ``UnicodeError``."""
    names = list(rows[0])
    quote = connection.dialect.identifier_preparer
    columns = ", ".join(map(quote.quote, names))
    statement = f"COPY {quote.format_table(table)} ({columns}) FROM STDIN"
    documents = [isinstance(table.c[name].type, JSON) for name in names]
    lines = ("\t".join(map(_field, row.values(), documents)) + "\n" for row in rows)
    driver: Any = connection.connection.driver_connection
    errors: Any = connection.dialect.dbapi
    try:
        with driver.cursor() as cursor:
            if connection.dialect.driver == "psycopg2":
                # here: an error while it reads would look as if the server were gone
                encodings = import_module("psycopg2.extensions").encodings
                cursor.copy_expert(statement, io.BytesIO("".join(lines).encode(encodings[driver.encoding])))
            else:
                with cursor.copy(statement) as into:
                    while some := "".join(islice(lines, AT_ONCE)):
                        into.write(some)
    except errors.Error as error:
        raise DBAPIError.instance(
            statement, None, error, errors.Error, hide_parameters=True, dialect=connection.dialect
        ) from error


def _field(value: Any, document: bool) -> str:
    """In PostgreSQL's text format. ``document``: of a column of JSON."""
    if value is None and not document:
        return _ABSENT
    field = json.dumps(value) if document else str(value)
    return field.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def can_use_lz4(connection: Connection) -> bool:
    """Whether the server can compress long texts with lz4, which takes it a fraction of the time, and nobody has chosen
    another way (PostgreSQL 14; what is stored already is not touched)."""
    return bool(connection.execute(_LZ4).scalar())


def use_lz4(connection: Connection) -> None:
    """For the rest of this transaction."""
    connection.execute(_USE_LZ4)
