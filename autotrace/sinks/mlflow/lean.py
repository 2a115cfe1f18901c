"""MLflow's store without the data libraries that MLflow imports where they are installed, for the shipper's process.

MLflow works without them (``mlflow-skinny`` needs none), its store never uses them, and they are 100 of the 250 MB that
importing it takes, and a third of the time.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

LIBRARIES = ("pandas", "polars", "pyarrow", "scipy")


class _Absent:
    """A finder for which ``LIBRARIES`` are not installed, on one thread."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Raises ``ModuleNotFoundError`` for them; else leaves it to the other finders."""
        if name in LIBRARIES and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextmanager
def without_data_libraries() -> Iterator[None]:
    """Imports of this thread find none of ``LIBRARIES`` that is not imported already."""
    finder = _Absent()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def import_store() -> None:
    """Import MLflow's store class, lean if that is how this release can be imported. For a process that is the
    shipper's: MLflow stays as it was imported.

    Raises ``ImportError``.
    """
    name = "mlflow.store.tracking.sqlalchemy_store"
    if "mlflow" in sys.modules:
        return
    try:
        with without_data_libraries():
            importlib.import_module(name)
    except Exception:
        importlib.import_module(name)
