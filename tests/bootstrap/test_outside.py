"""A program that asks a model outside of any trajectory: its conversations are trajectories if no spec names one; else
it is told what to name."""

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


DROPPED = "2 calls of openai outside of a trajectory were not recorded"

WORKER = """
import queue, sys, threading, httpx, agent

asked = queue.Queue()

def work():
    while (task := asked.get()) is not None:
        task()

def ask_plainly():
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "2+2?"}]}
    httpx.post(sys.argv[1] + "/chat/completions", json=asked, timeout=60)

def rollout(start):
    for task in (ask_plainly, lambda: agent.solve("2+2?")):
        over = threading.Event()
        start(lambda: (task(), over.set()))
        over.wait()

threading.Thread(target=work).start()
rollout(asked.put)
rollout(lambda run: threading.Thread(target=run).start())
asked.put(None)
"""


@pytest.fixture
def agent(place: Place) -> Place:
    place.write("agent.py", AGENT)
    place.write("mine.yaml", "- {target: agent.score, role: trajectory}\n")
    return place


def status(place: Place) -> tuple[str, str]:
    """What ``autotrace status`` prints and, in one text, what it advises."""
    (run,) = place.runs()
    shown = place.cli("status", run, COLUMNS="400").stdout
    return shown, "\n".join(json.loads(place.cli("status", run, "--json").stdout)["advice"])


def test_with_a_list_that_names_another_function(agent: Place) -> None:
    with serving() as url:
        done = agent.launch(["python", "agent.py", url], ["--spec", "mine.yaml"])
    assert done.stdout == "It is 4.\nIt is 4.\n"
    (ending,) = [line for line in done.stderr.splitlines() if "nothing was recorded" in line]
    assert ending.startswith(f"autotrace: {DROPPED}; nothing was recorded; why: autotrace status ")
    shown, advice = status(agent)
    assert (
        "openai was called outside of a trajectory, by agent.main > agent.solve > agent.Agent.ask, which is not "
        "recorded: name the function that is one rollout in a spec, such as `- {target: agent.solve, role: trajectory}`"
    ) in advice
    (line,) = [line for line in shown.splitlines() if "Completions.create" in line and "Async" not in line]
    assert "called outside of a trajectory" in line
    assert "no traced process imported" not in advice


def test_a_worker_that_was_started_elsewhere(agent: Place) -> None:
    agent.write("prog.py", WORKER)
    agent.write("rollouts.yaml", "- {target: prog.rollout, role: trajectory}\n")
    with serving() as url:
        done = agent.launch(["python", "prog.py", url], ["--spec", "rollouts.yaml"])
    dropped = "1 call of {} outside of a trajectory was not recorded"
    (ending,) = [line for line in done.stderr.splitlines() if "2 trajectories to jsonl" in line]
    assert ending.startswith("autotrace: " + "; ".join(map(dropped.format, ("httpx", "openai"))))
    (run,) = agent.runs()
    for command in ("ls", "diagnose", "status"):
        first = agent.cli(command, run, COLUMNS="400").stdout.splitlines()[:2]
        assert first == [f"! {dropped.format(library)}" for library in ("httpx", "openai")], command
    listed = agent.cli("ls", "--json", run).stdout.splitlines()
    assert [json.loads(line)["turns"] for line in listed] == [0, 2]
    advice = status(agent)[1]
    assert "by prog.work > agent.solve > agent.Agent.ask, which is not recorded: no call of prog.rollout was" in advice
    assert "target: prog.rollout," not in advice


def test_where_other_calls_were_recorded(agent: Place) -> None:
    with serving() as url:
        done = agent.launch(["python", "agent.py", url, "score"], ["--spec", "mine.yaml"])
    assert "2 trajectories to jsonl" in done.stderr
    assert "`- {target: agent.solve, role: trajectory}`" in status(agent)[1]


@pytest.mark.parametrize("options", [(), ("--spec", "others.yaml")], ids=["no list", "no root"])
def test_without_a_root_in_a_list(agent: Place, options: tuple[str, ...]) -> None:
    agent.write("others.yaml", "- agent.nothing\n")
    with serving() as url:
        done = agent.launch(["python", "agent.py", url], options)
    assert done.stdout == "It is 4.\nIt is 4.\n" and "2 trajectories to jsonl" in done.stderr
    shown, advice = status(agent)
    assert "called outside" not in shown and "outside" not in advice
    (run,) = agent.runs()
    listed = agent.cli("show", "--where", "turns = 1", run, COLUMNS="400").stdout
    assert "made from its conversation: no spec names the function that is one rollout" in listed


def test_a_conversation_that_was_over_when_its_process_was_killed_is_whole(place: Place) -> None:
    killed = "    main()\n    import os, time\n    time.sleep(2)\n    os.kill(os.getpid(), 9)\n"
    place.write("agent.py", AGENT.replace("    main()\n", killed))
    with serving() as url:
        done = place.launch(["python", "agent.py", url])
    assert done.returncode == -9
    (run,) = place.runs()
    shipped = place.cli("ship", run)
    assert shipped.exit_code == 0, shipped.stderr
    listed = place.cli("ls", "--json", run).stdout
    assert [json.loads(line)["status"] for line in listed.splitlines()] == ["OK", "OK"]


def test_what_many_import_is_no_agent(place: Place) -> None:
    """Nothing of ours is loaded into such a program, so nobody knows what it called."""
    place.write("agent.py", "import httpx, sys\nprint(httpx.get(sys.argv[1] + '/models').status_code)\n")
    with serving() as url:
        place.launch(["python", "agent.py", url])
    shown, advice = status(place)
    (imported,) = [line for line in shown.splitlines() if "in modules that no traced process imported" in line]
    assert "httpx" not in imported and "openai" in imported and "verl" in imported
    (clients,) = [line for line in shown.splitlines() if "recorded only inside of others" in line]
    assert "httpx" in clients and "openai" not in clients and "verl" not in clients
    assert advice.startswith("no trajectory began, and your specs name none: name the function that is one rollout")
    assert "`- {target: agent.FUNCTION, role: trajectory}`" in advice and "autotrace init proposes" in advice
    assert "none imported a module" not in advice


def test_what_is_advised_works(agent: Place) -> None:
    agent.write("advised.yaml", "- {target: agent.solve, role: trajectory}\n")
    with serving() as url:
        done = agent.launch(["python", "agent.py", url], ["--spec", "advised.yaml"])
    assert "2 trajectories to jsonl" in done.stderr
    shown, advice = status(agent)
    assert "outside" not in shown and advice == ""
