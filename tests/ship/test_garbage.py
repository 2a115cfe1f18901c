"""Cycles are looked for now and then, and freed memory goes back to the host."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from autotrace.ship import process


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_cycles_are_collected_now_and_then(thresholds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    process.put_off_garbage()
    kept = [weakref.ref(Node()) for _ in range(2_000)]
    monkeypatch.setattr(process, "_last", process.time.monotonic())
    process.collect_garbage()
    assert all(node() is not None for node in kept), "collected a moment ago"
    monkeypatch.setattr(process, "COLLECT_EVERY", -1.0)
    process.collect_garbage()
    assert not any(node() is not None for node in kept)


def test_tables_use_memory_that_goes_back() -> None:
    code = (
        "from autotrace.ship import process; process.give_memory_back(); import pyarrow; "
        "print(pyarrow.default_memory_pool().backend_name)"
    )
    environ = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "system\n"
