"""uni-agent at 6f4a7c9: its ``_dump_trajectories`` of a session with two chains. With a checkout in ``PYTHONPATH`` and
veRL installed: on the index, ``uni-agent`` is another project."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

from uni_agent.framework import framework
from uni_agent.framework.framework import Trajectory

SESSION = "session-sample-3-rollout-1-0123456789abcdef0123456789abcdef"


def main(folder: str) -> None:
    first = Trajectory(
        prompt_ids=[1, 2, 3], response_ids=[*range(10, 30), *range(50, 56), *range(30, 40)],
        response_mask=[1] * 20 + [0] * 6 + [1] * 10, response_logprobs=[-0.5] * 36, num_turns=4, reward_score=1.0,
        reward_info={"finished": True, "reward": 1.0},
    )  # fmt: skip
    second = Trajectory(prompt_ids=[9, 9], response_ids=[1, 2, 3], response_mask=[1] * 3, num_turns=2, reward_score=1.0)
    (of,) = (one for one in vars(framework).values() if isinstance(one, type) and "_dump_trajectories" in vars(one))
    stand = SimpleNamespace(_trajectory_meta=lambda one: of._trajectory_meta(None, one))
    of._dump_trajectories(stand, Path(folder, "step_4", SESSION), SESSION, [first, second])


if __name__ == "__main__":
    main(sys.argv[1])
