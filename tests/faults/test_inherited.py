"""A shell that was started inside of a run has its variables after the run is over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.faults.outcome import Outcome
from tests.places import Place

THREE = "import steps; [steps.step(number) for number in range(3)]"
VARIABLES = "\nimport json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('AUTOTRACE')}))"


def _delivered(run: Path) -> int:
    lines = (run / "trajectories.jsonl").read_text().splitlines()
    return sum(len(json.loads(line)["spans"]) for line in lines)


def test_a_program_with_the_variables_of_a_finished_run(place: Place, note: Callable[..., None]) -> None:
    """Nothing is written where nobody delivers any more: a program and its child have a run of their own."""
    place.write("steps.py", "def step(number): return number\n")
    place.write("spec.yaml", "- steps.step\n")
    first = place.launch(["python", "-c", THREE + VARIABLES], ["--spec", "spec.yaml"])
    (finished,) = place.runs()
    inherited = {**json.loads(first.stdout), "AUTOTRACE_SPECS": "spec.yaml", "AUTOTRACE_BACKEND": "jsonl"}
    child = f"\nimport subprocess, sys; subprocess.run([sys.executable, '-c', {THREE!r}], check=True)"
    second = place.run(["python", "-c", THREE + child], inherited)
    assert second.returncode == 0, second.stderr
    (new,) = set(place.runs()) - {finished}
    found = Outcome(9, delivered=_delivered(finished) + _delivered(new))
    assert _delivered(finished) == 3 and found.delivered == 9
    note("variables of a finished run", found, "a program and its child make a run of their own")
