"""A run whose veRL configuration names the backend: it is used unless an option or a variable chose one."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotrace.run.info import RunInfo
from autotrace.ship.shipper import ship
from autotrace.sinks import registry
from tests.ship.spools import Process, new_run, trajectory

pytestmark = pytest.mark.row("veRL's switches")


def recorded(tmp_path: Path, origin: str, chosen: str) -> Path:
    """A run with ``otlp`` as its backend that came from ``origin``; its veRL configuration says ``chosen``."""
    run = new_run(tmp_path, backends=["otlp"], origins={"backends": origin})
    process = Process(run)
    process.bind("verl_trace", backend=chosen, token2text=True, max_samples_per_step_per_worker=5)
    trajectory(process)
    process.exit()
    return run


def test_verls_backend_is_used_where_nobody_chose_one(tmp_path: Path) -> None:
    run = recorded(tmp_path, "default", "jsonl")
    status = ship(run, once=True)
    assert (status.state, list(status.backends)) == ("done", ["jsonl"])
    assert len((run / "trajectories.jsonl").read_text().splitlines()) == 1
    info = RunInfo.read(run)
    assert (info.backends, info.origins["backends"]) == (["jsonl"], "veRL's actor_rollout_ref.rollout.trace.backend")
    assert ship(run, once=True).backends["jsonl"].delivered == 1


def test_the_place_of_the_tables_stays_beside_it(tmp_path: Path) -> None:
    run = recorded(tmp_path, "default", "jsonl")
    info = RunInfo.read(run)
    info.tables, info.backends = str(tmp_path / "lake"), ["otlp", "parquet"]
    info.write(run)
    assert list(ship(run, once=True).backends) == ["jsonl", "parquet"]
    assert RunInfo.read(run).backends == ["jsonl", "parquet"]
    assert list((tmp_path / "lake").glob("*/*/run.json"))


@pytest.mark.parametrize(("origin", "chosen"), [("option --backend", "jsonl"), ("default", "trackio")])
def test_an_option_wins_and_what_there_is_not_is_not_chosen(
    tmp_path: Path, origin: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    run = recorded(tmp_path, origin, chosen)
    assert list(ship(run, once=True).backends) == ["otlp"]
    assert RunInfo.read(run).backends == ["otlp"]


def test_a_backend_whose_library_is_missing_is_said_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise ImportError("No module named 'httpx'", name="httpx")

    monkeypatch.setattr(registry.get("weave"), "make", missing)
    run = new_run(tmp_path, origins={"backends": "default"})
    process = Process(run)
    process.bind("verl_trace", backend="weave")
    trajectory(process)
    process.exit()
    status = ship(run, once=True)
    assert (status.state, status.backends["jsonl"].delivered) == ("done", 1)
    notes = " ".join(status.notes)
    assert (
        "the backend weave needs httpx" in notes
        and f"[weave]', then autotrace ship {run.name} --backend weave" in notes
    )
