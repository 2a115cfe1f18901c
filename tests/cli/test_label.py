"""``autotrace label``: a judgement is kept in the run folder, and is there wherever trajectories are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from starlette.testclient import TestClient

import autotrace
from autotrace.cli.main import main
from autotrace.run import files, layout
from autotrace.ship.shipper import ship
from autotrace.tables import labels
from autotrace.view.app import application
from autotrace.view.guard import Guard
from tests.run_folder import recorded


def call(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(params=["delivered", "recorded"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """In its tables, and in its segments alone."""
    folder = recorded(tmp_path)
    if request.param == "delivered":
        assert ship(folder, once=True).state == "done"
    return folder


def ids(run: Path) -> list[str]:
    return [json.loads(line)["trace_id"] for line in call("ls", run, "--json").output.splitlines()]


def test_a_label_is_shown_found_and_exported(run: Path, tmp_path: Path) -> None:
    first, second, *_ = ids(run)
    assert " label " not in call("ls", run).output
    done = call("label", first[:10], "good", "two calls only", "--run", run)
    assert (done.exit_code, done.output) == (0, f"{first[:12]}  good\n")
    call("label", second, "bad", "--run", run)
    assert (run / layout.LABELS).stat().st_mode & 0o777 == 0o600

    (found,) = call("ls", run, "--where", "label = 'good'", "--json").output.splitlines()
    assert (json.loads(found)["trace_id"], json.loads(found)["label_why"]) == (first, "two calls only")
    assert " label " in call("ls", run).output
    assert "label good" in call("show", first, run).output
    assert len(call("ls", run, "--where", "label is null", "--json").output.splitlines()) == 6
    query = "SELECT label, count(*) AS n FROM trajectories GROUP BY ALL ORDER BY label"
    assert call("sql", query, run, "--csv").output.split() == ["label,n", "bad,1", "good,1", ",6"]

    call("export", run, "--where", "label = 'good'", "--out", tmp_path / "one.jsonl")
    assert json.loads((tmp_path / "one.jsonl").read_text())["facts"]["label"] == "good"
    call("export", run, "--format", "parquet", "--out", tmp_path / "tables")
    stored = autotrace.open(tmp_path / "tables").sql("SELECT label FROM trajectories WHERE label IS NOT NULL")
    assert sorted(stored["label"].to_pylist()) == ["bad", "good"]


def test_the_last_label_counts_and_can_be_taken_away(run: Path) -> None:
    first = ids(run)[0]
    for label in ("good", "bad"):
        call("label", first, label, "--run", run)
    assert call("sql", "SELECT label FROM trajectories WHERE label IS NOT NULL", run, "--csv").output.split()[1:] == [
        "bad"
    ]
    assert call("label", first, "--remove", "--run", run).exit_code == 0
    assert call("sql", "SELECT count(label) AS n FROM trajectories", run, "--csv").output.split() == ["n", "0"]
    assert "label" not in call("show", first, run).output


def test_what_was_torn_or_is_not_ours_is_passed_over(run: Path) -> None:
    first = ids(run)[0]
    strange = b'{"trace_id":"a","label":"\xff","why":null,"at_ns":1}\n'
    long = b'{"trace_id":"a","label":"%s","why":null,"at_ns":1}\n' % (b"x" * 501)
    (run / layout.LABELS).write_bytes(b'[1]\n{"trace_id": "x"}\n\xff\n' + strange + long + b'{"trace_id": "ab')
    call("label", first, "good", "--run", run)

    assert {name: one.label for name, one in labels.read(run).items()} == {first: "good"}


def test_only_a_run_folder_of_ones_own_is_written_to(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    first = ids(folder)[0]
    call("export", folder, "--format", "parquet", "--out", tmp_path / "tables")
    (stored,) = (tmp_path / "tables").glob("*/*/")
    assert "is not a run folder" in call("label", first, "good", "--run", stored).output
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    (folder / layout.LABELS).symlink_to(elsewhere)
    with pytest.raises(OSError, match="is a link, which is not followed"):
        labels.write(folder, first, "good", None)
    assert elsewhere.read_text() == "untouched" and not labels.read(folder)
    (folder / layout.LABELS).unlink()
    folder.chmod(0o770)
    done = call("label", first, "good", "--run", folder)
    assert done.exit_code == 2 and "only its owner labels" in done.output
    assert not (folder / layout.LABELS).exists()


def test_the_page_keeps_a_label_for_a_session_alone(run: Path) -> None:
    first = ids(run)[0]
    guard = Guard(application(run), "127.0.0.1")
    address = f"/api/runs/{run.name}/traces/{first}/label?label=good&why=quick"
    with TestClient(guard, base_url="http://127.0.0.1:8642") as client:
        assert client.post(address).status_code == 401
        session = client.get("/session", headers={"authorization": f"Bearer {guard.code()}"}).text
        mine = {"authorization": f"Bearer {session}"}
        assert client.post(address, headers={**mine, "origin": "http://evil.example"}).status_code == 403
        assert client.post(f"/api/runs/{run.name}", headers=mine).status_code == 405
        assert client.delete(address, headers=mine).status_code == 405
        assert not (run / layout.LABELS).exists()
        before = client.get(f"/api/runs/{run.name}", headers=mine).json()["version"]
        assert client.post(address, headers=mine).status_code == 204
        assert client.get(f"/api/runs/{run.name}/traces/{first}", headers=mine).json()["facts"]["label"] == "good"
        assert client.get(f"/api/runs/{run.name}", headers=mine).json()["version"] > before
        run.chmod(0o777)
        assert client.post(address, headers=mine).status_code == 403


def test_what_cannot_be_kept_is_one_sentence(run: Path) -> None:
    (run / layout.LABELS).mkdir()
    done = call("label", ids(run)[0], "good", "--run", run)
    assert done.exit_code == 2 and "the label was not kept" in done.output and done.output.count("\n") == 1


def test_a_label_is_kept_where_it_is_read_again_or_not_at_all(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ids(run)[0]
    monkeypatch.setattr(files, "MOST", 20_000)
    (run / layout.LABELS).write_bytes(b"\n" * 20_001)
    assert "the label was not kept" in call("label", first, "good", "--run", run).output
    (run / layout.LABELS).unlink()
    assert call("label", first, "half a character: \udcff", "--run", run).output.endswith("text that UTF-8 can hold\n")
    latest = run.parent / "latest"
    latest.symlink_to(run)
    assert call("label", first, "good", "--run", latest).exit_code == 0 and labels.read(run)[first].label == "good"


def test_a_full_disk_is_said(run: Path) -> None:
    first, room = ids(run)[0], 30
    limit = "import resource as r, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
    limit += f"; r.setrlimit(r.RLIMIT_FSIZE, ({room}, {room}))"
    words = f"from autotrace.cli.main import main; main(['label', {first!r}, 'good', '--run', {str(run)!r}])"
    done = subprocess.run(
        [sys.executable, "-B", "-c", f"{limit}; {words}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "the label was not kept" in done.stderr and not labels.read(run)
