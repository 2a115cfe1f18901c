"""A program that asks a model outside of any trajectory is told that, and what to name."""

from __future__ import annotations

import json

import pytest

from tests.agent_frameworks.server import serving
from tests.places import Place

AGENT = """
import sys, openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none")

class Agent:
    def ask(self, text):
        asked = [{"role": "user", "content": text}]
        return client.chat.completions.create(model="tiny", messages=asked).choices[0].message.content

def solve(task):
    return Agent().ask(task)

def score(answer):
    return 1.0

def main():
    for task in ("2+2?", "1+3?"):
        answer = solve(task)
        if "score" in sys.argv:
            score(answer)
        print(answer)

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def agent(place: Place) -> Place:
    place.write("agent.py", AGENT)
    place.write("mine.yaml", "- agent.score\n")
    return place


def status(place: Place) -> tuple[str, str]:
    """What ``autotrace status`` prints and, in one text, what it advises."""
    (run,) = place.runs()
    shown = place.run(["autotrace", "status", str(run)], {"COLUMNS": "400"}).stdout
    return shown, "\n".join(json.loads(place.run(["autotrace", "status", str(run), "--json"]).stdout)["advice"])


def test_with_a_list_that_names_no_trajectory(agent: Place) -> None:
    with serving() as url:
        done = agent.launch(["python", "agent.py", url], ["--spec", "mine.yaml"])
    assert done.stdout == "It is 4.\nIt is 4.\n"
    assert "nothing was recorded: openai was called outside of a trajectory; why: autotrace status" in done.stderr
    shown, advice = status(agent)
    assert (
        "openai was called outside of a trajectory, by agent.main > agent.solve > agent.Agent.ask, which is not "
        "recorded: name the function that is one rollout in a list, such as `- {target: agent.solve, role: trajectory}`"
    ) in advice
    (line,) = [line for line in shown.splitlines() if "Completions.create" in line and "Async" not in line]
    assert "called outside of a trajectory" in line
    assert "no process recorded anything" not in advice


def test_where_other_calls_were_recorded(agent: Place) -> None:
    with serving() as url:
        done = agent.launch(["python", "agent.py", url, "score"], ["--spec", "mine.yaml"])
    assert "2 traces -> jsonl" in done.stderr
    assert "`- {target: agent.solve, role: trajectory}`" in status(agent)[1]


def test_without_a_list_the_rule_is_said(agent: Place) -> None:
    """Nothing of ours is loaded into such a program, so nobody knows what it called."""
    with serving() as url:
        agent.launch(["python", "agent.py", url])
    shown, advice = status(agent)
    (imported,) = [line for line in shown.splitlines() if "in modules that no process imported" in line]
    assert "openai" not in imported and "verl" in imported
    (clients,) = [line for line in shown.splitlines() if "recorded only inside of others" in line]
    assert "openai" in clients and "verl" not in clients
    assert "calls through anthropic, " in advice and "openai are recorded only inside of a trajectory: name" in advice
    assert "`- {target: agent.FUNCTION, role: trajectory}`" in advice and "autotrace init proposes" in advice
    assert "none imported a module" not in advice


def test_what_is_advised_works(agent: Place) -> None:
    agent.write("advised.yaml", "- {target: agent.solve, role: trajectory}\n")
    with serving() as url:
        done = agent.launch(["python", "agent.py", url], ["--spec", "advised.yaml"])
    assert "2 trajectories -> jsonl" in done.stderr
    shown, advice = status(agent)
    assert "outside" not in shown and advice == ""
