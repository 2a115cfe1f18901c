"""JSON of a stranger: its values take 128 MB of memory at most, and 24 bytes for each byte of a line."""

from __future__ import annotations

import contextlib
import itertools
import json
import tracemalloc
from pathlib import Path

import pytest

import autotrace
from autotrace.foreign.containers import rows
from autotrace.foreign.opened import Opened
from autotrace.tables.errors import Gone, QueryError
from autotrace.tables.line_files import line_files
from tests.cases import some
from tests.security import reading, strangers

SLACK, A_BYTE = 128 << 20, 24
DENSE = ("[],", "{},", "1,", '{"":1},')
"""Values of few bytes each."""


def line(kind: str, item: str, size: float) -> bytes:
    """A line of about ``size`` MB, nearly all of them of ``item``."""
    value = f"[{item * (int(size * (1 << 20)) // len(item))}0]"
    if kind == "messages":
        return f'{{"messages": [{{"role": "assistant", "content": "a"}}], "metadata": {value}}}\n'.encode()
    row = json.loads((strangers.honest() / "stored.jsonl").read_bytes().splitlines()[0])
    return (json.dumps({**row, "facts": {"x": "@"}}).replace('"@"', value) + "\n").encode()


@pytest.mark.parametrize(
    ("kind", "item"), some(itertools.product(["messages", "stored"], DENSE), ("messages", "[],"), ("stored", "1,"))
)
def test_values_take_memory_in_proportion_to_their_bytes(kind: str, item: str, tmp_path: Path) -> None:
    path = tmp_path / "stored.jsonl"
    for size in (0.7, 12):
        written = line(kind, item, size)
        path.write_bytes(written)
        was_read = False
        tracemalloc.start()
        try:
            with contextlib.suppress(QueryError):
                found = next(rows(Opened(tmp_path, path.name))) if kind == "messages" else line_files(path)
                was_read = bool(found)
            taken = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert taken < SLACK + A_BYTE * len(written), f"{taken / len(written):.0f} bytes for each"
        assert was_read or size > 1


def test_a_command_takes_memory_in_proportion_to_a_line(tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()
    peaks = []
    for size in (0.1, 12):
        (tmp_path / "rows.jsonl").write_bytes(line("messages", DENSE[0], size))
        (listed,) = reading.run([["ls", str(tmp_path / "rows.jsonl")]], here, tmp_path / "mine", memory=16 << 30)
        assert not reading.faults([listed]), listed
        peaks.append(listed["peak"])
    assert peaks[1] - peaks[0] < SLACK + A_BYTE * (12 << 20), peaks


@pytest.mark.parametrize("column", ["inputs", "attributes", "messages"])
def test_json_in_tables_is_bounded_as_well(column: str, tmp_path: Path) -> None:
    """Parquet makes some bytes of a text that repeats itself."""
    lake = strangers.tables_with(tmp_path, column, f"[{'[],' * (1 << 20)}0]")
    (run,) = autotrace.open(lake)
    source = run.reader().run
    with pytest.raises(Gone, match="far more memory than its bytes"):
        source.load("ab" * 16)
    assert sum(path.stat().st_size for path in lake.rglob("*.parquet")) < 1 << 20
