"""Harbor's own validator reads what ``autotrace export --format atif`` writes. Needs ``make harbor``."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.cli.conftest import Call
from tests.cli.test_branches import helped
from tests.export.conftest import call, model, run, runs
from tests.ship.spools import Process, attributes, new_run, trajectory

__all__ = ["call", "model", "run", "runs"]

HARBOR = os.environ["AUTOTRACE_TEST_HARBOR"]
"""Its environment's interpreter."""
PROGRAM = """
import json, sys
from harbor.models.trajectories import Trajectory
from harbor.utils.trajectory_validator import TrajectoryValidator
for path in sys.argv[1:]:
    validator = TrajectoryValidator()
    if not validator.validate(path):
        sys.exit(f"{path}: {validator.get_errors()}")
    print(json.dumps(Trajectory.model_validate_json(open(path).read()).to_json_dict()))
"""


def read_by_harbor(folder: Path) -> list[dict[str, object]]:
    """Every trajectory below ``folder``, as Harbor writes it again."""
    files = sorted(folder.rglob("*.json"))
    done = subprocess.run([HARBOR, "-c", PROGRAM, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read = [json.loads(line) for line in done.stdout.splitlines()]
    assert read == [json.loads(path.read_text()) for path in files]
    return read


def test_trajectories_with_tools(call: Call, run: Path) -> None:
    assert call("export", "--format", "atif", "--out", "there").exit_code == 0
    read = read_by_harbor(Path("there"))
    assert len(read) == 3


def test_trajectories_without_texts_and_those_that_failed(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    trajectory(process)  # token ids, and no tokenizer
    root = process.open(b"f" * 16, "trajectory", attributes=attributes(uid="f", step=None))
    llm = process.open(b"f" * 16, "llm", root, inputs={"messages": [{"role": "user", "content": [
        {"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]}]})  # fmt: skip
    process.close(b"f" * 16, llm, status="ERROR", error=("ValueError", "no", "stack"))
    process.close(b"f" * 16, root, status="ERROR", error=("ValueError", "no", "stack"))
    process.exit()
    assert call("export", "--format", "atif", "--out", "there").exit_code == 0
    assert len(read_by_harbor(Path("there"))) == 2


def test_sub_agents(call: Call, runs: Path) -> None:
    helped(runs)
    assert call("export", "--format", "atif", "--out", "there").exit_code == 0
    (read,) = read_by_harbor(Path("there"))
    assert read["subagent_trajectories"]
