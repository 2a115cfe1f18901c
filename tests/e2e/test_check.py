"""``autotrace check`` on the real libraries: reading their source says what importing them says."""

from __future__ import annotations

import json
import subprocess
import sys


def test_reading_agrees_with_importing() -> None:
    command = [sys.executable, "-m", "autotrace.cli.main", "check", "--json"]
    read = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    imported = subprocess.run([*command, "--import"], capture_output=True, text=True, timeout=300, check=True)
    # libraries print to stdout while they are imported
    real = json.loads(imported.stdout[imported.stdout.index('{\n  "targets"') :])["targets"]
    targets = json.loads(read.stdout)["targets"]
    assert [row["state"] for row in targets] == [row["state"] for row in real]
    assert {row["state"] for row in targets if row["target"].startswith(("verl.", "vllm."))} <= {"resolves", "skipped"}
    confirmed = [row for row in real if row["state"] == "resolves" and not row["notes"]]
    assert len(confirmed) > 30
    disagreements = [note for row in real for note in row["notes"] if not note.startswith("importing it here fails")]
    assert disagreements == []
