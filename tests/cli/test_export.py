"""A run as files: JSON lines, and veRL's own layout."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from autotrace.run import layout
from autotrace.ship.shipper import ship
from tests.cli.conftest import Call
from tests.ship.spools import Process, attributes, new_run, trajectory


def rows(path: Path) -> list[dict[str, object]]:
    """The lines of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_verls_layout(call: Call, run: Path, tmp_path: Path) -> None:
    done = call("export", run, "--format", "verl", "--out", tmp_path / "dump")
    assert done.exit_code == 0, done.output
    assert sorted(str(path.relative_to(tmp_path / "dump")) for path in (tmp_path / "dump").rglob("*.jsonl")) == [
        "1.jsonl", "2.jsonl", "validation/2.jsonl",
    ]  # fmt: skip
    found = rows(tmp_path / "dump" / "2.jsonl")
    assert {"input", "output", "gts", "score", "step", "uid"} <= set(found[0])
    assert [(row["step"], row["uid"], row["score"]) for row in found] == [(2, "u2_0_0", 0.75), (2, "u2_1_0", 1.0)]
    assert (tmp_path / "dump" / "1.jsonl").stat().st_mode & 0o777 == 0o600


def test_json_lines_are_those_of_the_backend(call: Call, run: Path) -> None:
    done = call("export", run)
    assert done.exit_code == 0, done.output
    found = rows(run / "export" / "jsonl" / "trajectories.jsonl")
    assert len(found) == 5
    assert {"trace_id", "facts", "spans"} <= set(found[0])


def test_nothing_to_export_is_said(call: Call, run: Path) -> None:
    done = call("export", run, "--step", "7")
    assert done.exit_code != 0
    assert "no trajectory" in done.output


def test_what_is_gone_is_left_out_and_said(call: Call, runs: Path) -> None:
    """Segments that an earlier release removed after delivery; the rest is exported all the same."""
    run = new_run(runs)
    for number, node in enumerate(("node-1-aa", "node-2-bb")):
        process = Process(run, node)
        trajectory(process, trace=bytes([number + 1]) * 16)
        process.exit()
    assert ship(run, once=True).state == "done"
    for segment in (run / layout.SPOOL).glob("node-1-*"):
        segment.unlink()
    shutil.rmtree(run / "tables")
    done = call("export", run, "--out", "there")
    assert done.exit_code == 0
    assert "1 trajectory left out" in done.output and "wrote 1 trajectory to " in done.output
    assert [row["trace_id"] for row in rows(Path("there/trajectories.jsonl"))] == ["02" * 16]


def test_verl_format_of_an_agent_that_works_with_text(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    root = process.open(b"t" * 16, "trajectory", attributes=attributes())
    for asked, said in (("Where is Bonn?", "Let me see."), ("And?", "On the Rhine.")):
        llm = process.open(b"t" * 16, "llm", root, inputs={"prompt": asked})
        process.close(b"t" * 16, llm, output=said)
    process.close(b"t" * 16, root)
    process.exit()
    assert call("export", "--format", "verl", "--out", "there").exit_code == 0
    (row,) = [json.loads(line) for line in Path("there/1.jsonl").read_text().splitlines()]
    assert (row["input"], row["output"]) == ("Where is Bonn?", "On the Rhine.")
