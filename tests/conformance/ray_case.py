"""What has to be true of a run of ``program/ray_program.py``, whichever release of Ray ran it."""

from __future__ import annotations

from pathlib import Path

from .processes import PROGRAM, run

SPEC = """
- actors.**
- target: actors.Base.overridden
  subclasses: true
- ray_program.Local.work
- ray_program.Local.inherited
- actors.Decorated.work
- actors.task
- ray_program.local_task
"""


def check(folder: Path, python: str) -> str:
    """Run the program under ``python``; returns its last line. Raises ``AssertionError``."""
    ran = run(folder, SPEC, str(PROGRAM / "ray_program.py"), python=python)
    assert "all answers right" in ran.stdout, ran.stdout
    names = [name for _, name in ran.calls()]
    expected = {
        # by itself, by callback; as argument of a task
        "Sync.work": 3, "Sync.by_callback": 1, "Base.inherited": 3, "Sync.overridden": 1, "Sync.static": 1,
        "Sync.made": 1, "Sync.stream": 1, "Sync.fails": 1, "Decorated.work": 1, "Local.work": 1, "function": 2,
        "task": 1, "local_task": 1,
        "calls_back": 2, "Async.wait": 3, "Async.release": 1, "Async.stream": 1,
    }  # fmt: skip
    counts = {name: names.count(name) for name in {*names, *expected}}
    wrong = {name: (count, expected.get(name, 0)) for name, count in counts.items() if count != expected.get(name, 0)}
    assert not wrong, f"(recorded, expected): {wrong}"
    return ran.stdout.strip().splitlines()[-1]
