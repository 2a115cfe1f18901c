"""An agent of one's own that branches and returns the rows of its trajectory."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from autotrace.cli.main import main
from tests.places import Place

PROGRAM = """
import asyncio

class Agent:
    async def ask(self, prompt_ids, answer):
        await asyncio.sleep(0)
        return {"token_ids": answer}

    async def run(self, task):
        prompt, first, other = [1, 2, 3, task], [11, 12, 13], [21, 22]
        await self.ask(prompt, first)
        again = [*prompt, *first, 5]
        await self.ask(again, other)
        await self.ask([*prompt, *first, 6, 6], [31, 32, 33, 34])        # rolled back, and gone on with other words
        names = "prompt_ids", "response_ids", "mask", "reward"
        row = lambda *values: dict(zip(names, values))
        rows = [
            row(prompt, [*first, 6, 6, 31, 32, 33, 34], [1, 1, 1, 0, 0, 1, 1, 1, 1], 1.0),
            row(prompt, [*first, 5, *other], [1, 1, 1, 0, 1, 1], 0.25),
        ]
        return {"rows": rows[:1] if task == 1 else rows, "seconds": 3}

async def main():
    await asyncio.gather(*(Agent().run(task) for task in range(3)))

asyncio.run(main())
"""
LIST = """
- target: branching.Agent.run
  role: trajectory
  chains: result.rows
  attributes: {sample_index: task}
  tokens: {prompt: row.prompt_ids, response: row.response_ids, mask: row.mask}
  facts: {reward: row.reward, seconds: result.seconds}
- target: branching.Agent.ask
  role: llm
  tokens: {prompt: prompt_ids, response: result.token_ids}
"""


@pytest.fixture
def call() -> Callable[..., Result]:
    """``call("ls", ...)``: the result of ``autotrace ls ...``."""
    return lambda *words: CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False)


def test_each_row_is_its_chain_with_its_own_reward(place: Place, call: Callable[..., Result]) -> None:
    place.write("branching.py", PROGRAM)
    place.write("list.yaml", LIST)
    ran = place.record(["python", "branching.py"], ["--spec", "list.yaml"])
    assert ran.returncode == 0, ran.stderr
    (run,) = place.runs()
    of_chain = ", ".join(f"c.{name}" for name in ("chain", "kind", "turns", "tokens", "row", "in_rows", "reward"))
    joined = "chains c JOIN trajectories t USING (trace_id)"
    answer = call("sql", f"SELECT t.sample_index, {of_chain} FROM {joined} ORDER BY 1, 2", run, "--json")
    assert answer.exit_code == 0, answer.output
    rows = [tuple(json.loads(line).values()) for line in answer.output.splitlines()]
    whole = [(0, None, 2, 5, 1, 5, 0.25), (1, "rewrite", 1, 4, 0, 4, 1.0)]
    left = [(0, None, 2, 5, None, 3, 1.0), (1, "rewrite", 1, 4, 0, 4, 1.0)]
    assert [(int(task), *rest) for task, *rest in rows] == [
        (task, *chain) for task, chains in enumerate((whole, left, whole)) for chain in chains
    ]
    trace = json.loads(call("ls", run, "--where", "sample_index = 1", "--json").output.splitlines()[0])["trace_id"]
    shown = call("show", trace, run).output
    assert "9 generated, 7 in 1 row, 2 in none (2 rewrite)" in shown
    facts = call("sql", f"SELECT name FROM facts WHERE trace_id = '{trace}'", run, "--json").output
    assert {json.loads(line)["name"] for line in facts.splitlines()} >= {"reward", "row_tokens", "seconds"}
    assert "AT-TOKENS-DROPPED" in call("diagnose", run).output
