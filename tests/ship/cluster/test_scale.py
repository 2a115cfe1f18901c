"""``make scale`` in short: the relays of 64 nodes send at once, and everything is delivered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks import scale
from tests.places import ROOT
from tests.waiting import DEADLINE


def test_sixty_four_nodes_at_a_gentle_rate(tmp_path: Path) -> None:
    command = [
        sys.executable, "benchmarks/scale.py", "--seconds", "10", "--rate", "130", "--relays", "64", "--turns", "6",
        "--every", "2", "--json", str(tmp_path / "result.json"),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)
    # 2: everything arrived, but other processes had the cores that playing the rate takes; it says how many
    assert done.returncode in (0, 2), done.stdout[-2000:] + done.stderr[-2000:]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["connections"] == 64 and result["delivered"] == result["rollouts"] > 64
    assert result["spans"] == result["rollouts"] * 13
    if done.returncode == 2:
        assert "NOT PLAYED" in done.stdout and result["other_cores"] >= scale.OTHERS * result["cores"]
    else:
        assert result["spans_per_s"] >= scale.PLAYED * 130


def test_a_rate_that_was_not_played_has_a_reason() -> None:
    slow = {"spans_per_s": 900.0, "cores": 2, "other_cores": 0.1}
    assert scale.not_played(slow, 1640) == (
        "FAILED: 900 of 1640 calls a second, although other processes had 0.1 of 2 cores: the collector takes no more, "
        "or the generator plays no more"
    )
    assert "NOT PLAYED: 900 of 1640" in scale.not_played({**slow, "other_cores": 1.5}, 1640)
