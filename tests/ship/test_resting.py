"""A shipper that has nothing to do notices at once that the first process waits for delivery."""

from __future__ import annotations

import threading
from pathlib import Path

from autotrace.run import layout
from autotrace.ship.shipper import Shipper
from tests.ship.spools import new_run
from tests.waiting import DEADLINE


def test_a_rest_ends_when_the_first_process_waits(tmp_path: Path) -> None:
    shipper = Shipper(new_run(tmp_path))
    resting = threading.Thread(target=shipper._rest, args=(10 * DEADLINE,), daemon=True)
    resting.start()
    (shipper.run_folder / layout.DRAIN).touch()
    resting.join(DEADLINE)
    assert not resting.is_alive()
    shipper._rest(0.001)  # by the time alone, from then on
    shipper.close()
