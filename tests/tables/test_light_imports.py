"""Large libraries stay out of processes that never use them, and of those processes only."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from autotrace.tables.light_imports import absent
from autotrace.tables.writer import TableWriter
from tests.sinks.rollouts import trajectory
from tests.waiting import DEADLINE


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_module_is_absent_for_one_thread_and_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    names: list[str] = []

    def elsewhere() -> None:
        names.append(importlib.import_module("colorsys").__name__)
        del sys.modules["colorsys"]

    with absent("colorsys"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with pytest.raises(ModuleNotFoundError, match="No module named 'colorsys'"):
            importlib.import_module("colorsys")
    assert names == ["colorsys"] == [importlib.import_module("colorsys").__name__]


def test_to_read_one_trajectory_of_the_tables_needs_no_arrow(tmp_path: Path) -> None:
    one = trajectory(1, 2, reward=1.0)
    TableWriter(tmp_path, "20261128-1").write([one])
    printed = python(
        "import sys; from pathlib import Path; from autotrace.tables.committed import Committed\n"
        f"one = Committed(Path({str(tmp_path)!r})).load({one.trace_id!r})\n"
        "print(one.facts['reward'], len(one.spans), {'pyarrow', 'numpy', 'pandas'} & {*sys.modules})"
    )
    assert printed == f"1.0 {len(one.spans)} set()"


def test_arrow_tables_need_no_pandas_and_no_numpy() -> None:
    printed = python(
        "import io, sys; from autotrace.tables.light_imports import arrow_without_pandas as lean; lean('numpy')\n"
        "from types import SimpleNamespace; import pyarrow.parquet as pq; from autotrace.tables import arrow\n"
        "ids = SimpleNamespace(name='b', type='list<int32>', packed=None, of=lambda row: row)\n"
        "table = arrow.from_rows([ids], [[1, 2], None, []]); pq.write_table(table, io.BytesIO())\n"
        "print(table.to_pydict(), {'pandas', 'numpy', 'pyarrow.compute'} & set(sys.modules))\n"
        "import pandas; print(pandas.DataFrame({'a': [1]}).shape)"
    )
    assert printed == "{'b': [[1, 2], None, []]} set()\n(1, 1)"


def test_a_process_that_has_imported_arrow_keeps_it_as_it_is() -> None:
    printed = python(
        "import pyarrow as pa; from autotrace.tables.light_imports import arrow_without_pandas as lean; lean()\n"
        "print(pa.table({'a': [1]}).to_pandas().shape)"
    )
    assert printed == "(1, 1)"


@pytest.mark.parametrize(("given", "taken"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_memory_of_tables_is_the_systems_unless_the_user_names_another(
    given: str | None, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    if given is not None:
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", given)
    printed = python(
        "from autotrace.tables.light_imports import arrow_without_pandas as lean; lean()\n"
        "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    )
    assert printed == taken
