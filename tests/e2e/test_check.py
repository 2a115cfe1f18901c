"""Reading the source of the real libraries says what importing them says."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.places import ROOT


def test_reading_agrees_with_importing() -> None:
    command = [sys.executable, "-c", "from tests.spec.imported import main; main()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    said = json.loads(done.stdout.splitlines()[-1])  # libraries print while they are imported
    assert said["differ"] == []
    assert len(said["agree"]) > 30
