"""Cycles are looked for now and then."""

from __future__ import annotations

import gc
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
