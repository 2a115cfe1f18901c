"""Hide large libraries that other libraries import wherever installed, in autotrace's own processes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from types import ModuleType
from typing import Any


class _Absent:
    """Find no module among some names, on a single thread."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Raise ``ModuleNotFoundError`` for the names; leave other names to the other finders."""
        if name in self._names and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextmanager
def absent(*names: str) -> Iterator[None]:
    """Hide modules: within the block, imports of this thread find no module of ``names`` that is not yet imported."""
    finder: Any = _Absent(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def arrow_without_pandas(*others: str) -> None:
    """Import pyarrow without pandas, which pyarrow otherwise imports with the first array: a second of CPU. For the
    process of a command or a shipper, where nobody converts an Arrow table to a data frame. Do nothing where pyarrow is
    imported or missing. ``others``: further libraries that pyarrow 18 and newer can do without.

    Memory comes from the system's allocator: with pyarrow's own, a shipper of Parquet takes 310 MB instead of 260.
    """
    if "pyarrow" in sys.modules:
        return
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        is_new = bool(others) and int(version("pyarrow").partition(".")[0]) >= 18
        with absent("pandas", *(others if is_new else ())):
            import pyarrow

            pyarrow.array([""])  # looks for pandas now, and never again
    except ImportError:
        return
