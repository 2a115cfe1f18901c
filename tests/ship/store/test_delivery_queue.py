"""What is known of each delivery."""

from __future__ import annotations

from pathlib import Path

from autotrace.ship.store.delivery_queue import DeliveryQueue
from autotrace.ship.store.state import State


def test_a_version_rejected_later_leaves_what_the_backend_has(tmp_path: Path) -> None:
    state = State.of_run(tmp_path)
    queue = DeliveryQueue(state)
    with state:
        queue.acknowledged("mlflow", [("t", 1, "http://host/t")])
        before = dict(state.db.execute("SELECT * FROM deliveries").fetchone())
        queue.add(["mlflow"], "t", 2)
        queue.rejected("mlflow", [("t", 2, "too large"), ("u", 1, "no")])
    after = {row["trace_id"]: dict(row) for row in state.db.execute("SELECT * FROM deliveries")}
    assert after["t"] == {**before, "version": 2, "rejected": "too large"}
    assert (after["u"]["delivered_ns"], after["u"]["page"], after["u"]["rejected"]) == (None, None, "no")
    assert state.count("SELECT count(*) FROM queue") == 0
    with state:
        queue.acknowledged("mlflow", [("t", 3, "http://host/t")])
    assert state.count("SELECT count(*) FROM deliveries WHERE trace_id = 't' AND rejected IS NULL") == 1
    state.close()
