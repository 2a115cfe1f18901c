"""A shipper goes when there is another one."""

from __future__ import annotations

from pathlib import Path

from autotrace.run.shipper_process import ShipperLock


def test_a_second_shipper_goes(tmp_path: Path) -> None:
    with ShipperLock(tmp_path) as first, ShipperLock(tmp_path) as second:
        assert first.held and not second.held
