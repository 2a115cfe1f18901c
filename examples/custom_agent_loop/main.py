"""The agent of ``debate.py`` in veRL's own worker, with an engine that answers from a script.

autotrace-run --spec examples/custom_agent_loop/traced.yaml python examples/custom_agent_loop/main.py
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "verl_loop"), str(HERE)]
import in_process  # noqa: E402

DRAFTS = itertools.cycle(["Two times three, that makes six I should say.", "2 * 3", "Six.", "It is 2 + 2 + 2."])


def script(conversation: str, turn: int) -> str:
    """Drafts that differ, then the answer."""
    return "#### 6" if "Go on." in conversation else next(DRAFTS)


async def main(folder: Path) -> None:
    """One group of two rollouts."""
    tokenizer = in_process.make_model(folder)
    config = in_process.configuration(
        folder,
        [
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={HERE / 'agent_loops.yaml'}",
            f"reward.custom_reward_function.path={HERE.parent / 'verl_loop' / 'reward.py'}",
            "reward.custom_reward_function.name=compute_score",
            "trainer.project_name=autotrace-examples",
            "trainer.experiment_name=custom-agent-loop",
        ],
    )
    agents = in_process.worker(config, in_process.ScriptedServer(tokenizer, script))
    prompt = {"question": "How much is 2 times 3?", "answer": "6", "uid": "u0", "index": 0, "agent_name": "debate"}
    output = await in_process.rollout(agents, [prompt], n=2, step=1)
    print("scores", output.batch["rm_scores"].sum(dim=1).tolist())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as model:
        asyncio.run(main(Path(model)))
