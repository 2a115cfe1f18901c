"""Runs that the page shows, and a client of its server."""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from autotrace.ship.shipper import ship
from autotrace.view.app import application
from tests.run_folder import recorded

CODES = {"f64": "d", "f32": "f", "i32": "i", "u32": "I", "u16": "H", "u8": "B"}


def unpacked(body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays, as ``static/data.js`` reads them."""
    (size,) = struct.unpack("<I", body[:4])
    header = json.loads(body[4 : 4 + size])
    arrays = {}
    for name, (kind, at, length) in header["arrays"].items():
        values = array(CODES[kind])
        begin = 4 + size + at
        assert begin % 8 == 0
        values.frombytes(body[begin : begin + length * values.itemsize])
        arrays[name] = values
    return header, arrays


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Every file with its size and the time of its last change."""
    return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run, delivered."""
    folder = recorded(tmp_path)
    assert ship(folder, once=True).state == "done"
    return folder


@pytest.fixture
def client(run: Path) -> Iterator[TestClient]:
    """Of the server of ``run``."""
    with TestClient(application(run), raise_server_exceptions=False) as client:
        yield client
