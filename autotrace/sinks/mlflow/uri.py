"""Check tracking URIs, make a local store once, and name the command that opens a store."""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import shlex
import sqlite3
import threading
from contextlib import closing
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from autotrace.redact.masking import masked_uri
from autotrace.run import files
from autotrace.tables.light_imports import absent

SQL_SCHEMES = ("sqlite", "postgresql", "mysql", "mssql")
_DRIVERS = {"postgresql": "psycopg2", "mysql": "MySQLdb", "mysql+mysqldb": "MySQLdb", "mssql": "pyodbc",
            "mysql+mysqlconnector": "mysql.connector"}  # fmt: skip
"""Modules that SQLAlchemy imports, if the module's name differs from the scheme (``postgresql+psycopg``)."""
_SQLITE = "sqlite:///"
MARK = 0x61747263
"""SQLite's ``application_id`` of a store that autotrace created. Direct rows go only into such a file."""


def check_uri(uri: str) -> None:
    """Check that trajectories can be stored at ``uri``, as far as possible without a connection and without MLflow.

    Raises ``ValueError`` with a sentence that names an alternative.
    """
    scheme = urlsplit(uri).scheme.split("+")[0].lower()
    if scheme in ("http", "https"):
        if not urlsplit(uri).hostname:
            raise ValueError(f"{masked_uri(uri)} names no host; write http://HOST:PORT")
        try:
            _ = urlsplit(uri).port
        except ValueError:
            raise ValueError(f"{masked_uri(uri)}: the port is not a number; write http://HOST:PORT") from None
    elif scheme == "sqlite":
        _check_sqlite(uri)
    elif scheme in SQL_SCHEMES:
        _check_driver(uri)
    elif scheme in ("", "file"):
        raise ValueError(
            f"{masked_uri(uri)} is a directory store, which MLflow no longer accepts for traces; use sqlite:////absolute/path/"
            "mlflow.db or the URL of an `mlflow server` (`mlflow migrate-filestore` moves what is there)"
        )
    else:
        raise ValueError(
            f"{masked_uri(uri)} cannot be used for trajectories; use http(s)://HOST:PORT of an MLflow server, sqlite:////absolute/"
            "path/mlflow.db, or the URI of a PostgreSQL, MySQL or SQL Server database"
        )


def _check_sqlite(uri: str) -> None:
    path = sqlite_path(uri)
    if path is None:
        raise ValueError(f"{masked_uri(uri)} is a store in memory; write sqlite:////absolute/path/mlflow.db")
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise ValueError(f"{path} is a directory; write sqlite:///{os.path.join(path, 'mlflow.db')}")
    if not os.path.isdir(folder):
        raise ValueError(f"{masked_uri(uri)}: the folder {folder} does not exist; make it, or choose another")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise ValueError(f"{masked_uri(uri)} cannot be written by this user; choose another path")


def _check_driver(uri: str) -> None:
    scheme = urlsplit(uri).scheme.lower()
    module = _DRIVERS.get(scheme) or scheme.partition("+")[2]
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        better = " psycopg[binary] and write postgresql+psycopg://" if scheme.startswith("postgresql") else " it"
        raise ValueError(
            f"{masked_uri(uri)} is opened with the module {module}, which is not installed here; install{better}"
        )


def absolute(uri: str) -> str:
    """Return ``uri`` with an absolute path for an SQLite file; any other ``uri`` unchanged."""
    if uri.startswith(_SQLITE) and not uri.startswith(_SQLITE + "/"):
        return _SQLITE + os.path.abspath(uri[len(_SQLITE) :])
    return uri


def sqlite_path(uri: str) -> str | None:
    """Return the file of an SQLite URI; None: another kind of URI, or in memory."""
    scheme, separator, rest = uri.partition(":///")
    if not separator or scheme.split("+")[0] != "sqlite":
        return None
    path = rest.split("?")[0]
    return path if path and path != ":memory:" else None


def ui_command(uri: str) -> str | None:
    """Return the command that shows the store ``uri`` in a browser; None for a server, which already has a page."""
    if urlsplit(uri).scheme in ("http", "https"):
        return None
    return f"mlflow server --backend-store-uri {shlex.quote(uri)}"


def initialise(uri: str) -> None:
    """Create a missing SQLite store, exactly once however many processes try; leave anything else alone.

    MLflow creates a store without a lock, and processes that do so at the same time damage the file for good. A store
    of another MLflow release is never migrated: raises ``ValueError`` with the remedy.
    """
    path = sqlite_path(uri)
    if path is None:
        return
    check_uri(uri)
    lock = files.shared(f"{path}.lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _tables(path):
            _check_revision(uri, path)
            return
        made_by = store_class()
        files.ensure(path)  # SQLite's files beside the store get the same mode
        made_by(uri, artifact_root(path)).engine.dispose()
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA application_id = {MARK}")
            # Readers (the UI) and the writer do not wait for each other; the mode stays with the file. If the file
            # system does not support WAL, SQLite keeps the old mode.
            db.execute("PRAGMA journal_mode=WAL")
    finally:
        os.close(lock)


def artifact_root(path: str) -> str:
    """Return the place of artifacts of our experiments: beside the store, not in the folder where the run began."""
    return os.path.join(os.path.dirname(os.path.abspath(path)), "mlartifacts")


def _tables(path: str) -> list[str]:
    if not os.path.exists(path) or not os.path.getsize(path):
        return []
    with closing(sqlite3.connect(path, timeout=20.0)) as db:
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [name for name in names if not name.startswith(("sqlite_", "alembic_"))]


def is_own(path: str) -> bool:
    """Tell whether autotrace created the store at ``path``: the file has autotrace's mark."""
    with closing(sqlite3.connect(path, timeout=20.0)) as db:
        return bool(db.execute("PRAGMA application_id").fetchone() == (MARK,))


def revision_of(path: str) -> str:
    """Return the schema of the store at ``path``; empty if the store has no version."""
    with closing(sqlite3.connect(path, timeout=20.0)) as db:
        try:
            return ", ".join(str(row[0]) for row in db.execute("SELECT version_num FROM alembic_version"))
        except sqlite3.Error:
            return ""


def _check_revision(uri: str, path: str) -> None:
    """Refuse a store of another release: MLflow would migrate an incomplete store without asking the owner."""
    store_class()
    database: Any = importlib.import_module("mlflow.store.db.utils")
    revision, expected = revision_of(path), database._get_latest_schema_revision()
    if revision != expected:
        raise ValueError(
            f"{uri} was written by another release of MLflow (schema {revision or 'unknown'}; MLflow "
            f"{version('mlflow')} here expects {expected}); make a backup and run `mlflow db upgrade {uri}`, or "
            "choose another store"
        )


LIBRARIES = ("numpy", "pandas", "polars", "pyarrow", "pygments", "scipy")
_STORE = "mlflow.store.tracking.sqlalchemy_store"
_one_at_a_time = threading.Lock()


def store_class() -> Any:
    """Import MLflow's store class without data libraries that MLflow imports wherever installed.

    Leaving the libraries out saves 2 s of CPU and 110 MB. MLflow works without the libraries (``mlflow-skinny`` needs
    none), and MLflow's store never uses the libraries. Raises ``ImportError``.
    """
    with _one_at_a_time:
        try:
            with absent(*LIBRARIES):
                importlib.import_module(_STORE)
        except Exception:  # of a release that needs such a library
            importlib.import_module(_STORE)
        return importlib.import_module(_STORE).SqlAlchemyStore
