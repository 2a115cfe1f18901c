"""Lists that record little of an agent with nothing wrong: no detector claims what is not known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases import some
from tests.places import Place

PROGRAM = Path(__file__).parent / "little.py"
ROOT = "{target: little.Agent.solve, role: trajectory%s}"
TURN = "{target: little.Model.ask, role: llm, capture: {include: [%s]}%s}"
BOTH = ", tokens: {prompt: prompt_ids, response: result.token_ids}"
GROUPS = ", attributes: {uid: task}"
STEPS = ", attributes: {uid: task, step: step}"
LISTS: dict[str, tuple[list[str], list[str], str]] = {
    "names alone": (["little.Agent.solve", "little.Model.ask", "little.Screen.poll", "little.grade"], [], ""),
    "a trajectory alone": ([ROOT % ""], [], ""),
    "turns without a token or a text": ([ROOT % GROUPS, TURN % ("turn", "")], [], ""),
    "texts": ([ROOT % GROUPS, TURN % ("prompt, result", "")], [], ""),
    "ids without a tokenizer": ([ROOT % GROUPS, TURN % ("turn", BOTH)], [], ""),
    "ids and no groups": ([ROOT % "", TURN % ("turn", BOTH)], [], ""),
    "ids of the answers": ([ROOT % GROUPS, TURN % ("turn", ", tokens: {response: result.token_ids}")], [], ""),
    "ids of the prompts, and of what was returned": (
        [ROOT % ", tokens: {response: result.ids}", TURN % ("turn", ", tokens: {prompt: prompt_ids}")], [], "",
    ),
    "ids of some turns": ([ROOT % STEPS, TURN % ("turn", BOTH)], [], "some"),
    "ids that are empty beside a text": ([ROOT % STEPS, TURN % ("result", BOTH)], [], "empty"),
    "steps and weights, and nothing that trains": (
        [ROOT % STEPS, TURN % ("turn", f"{BOTH}, attributes: {{weight_version: result.weights}}")], [], "",
    ),
    "sampling parameters": ([ROOT % "", TURN % ("sampling_params", BOTH)], [], ""),
    "rewards of parts and no lengths": (
        [ROOT % ", attributes: {uid: task, step: step}, facts: {reward: result.score, reward_extra_info: result.parts}",
         TURN % ("turn", "")], [], "",
    ),
    "a reward": ([ROOT % STEPS, TURN % ("turn", ""), "{target: little.grade, role: reward}"], [], ""),
    "tools": ([ROOT % "", "{target: little.Screen.poll, role: tool}", "{target: little.Screen.click, role: tool}"],
              [], ""),
    "tools without arguments": (
        [ROOT % "", "{target: little.Screen.poll, role: tool, capture: {exclude: [job]}}",
         "{target: little.Screen.click, role: tool, capture: {exclude: [x, y]}}"], [], "",
    ),
    "tools without results": (
        [ROOT % "", "{target: little.Screen.poll, role: tool, capture: {include: [job]}}"], [], "",
    ),
    "no content": ([ROOT % STEPS, TURN % ("prompt, result", BOTH), "{target: little.Screen.poll, role: tool}"],
                   ["--content", "none"], ""),
    "no ids": ([ROOT % STEPS, TURN % ("prompt, result", BOTH)], ["--content", "text"], ""),
}  # fmt: skip


@pytest.mark.parametrize("name", some(LISTS, *[*LISTS][::3]))
def test_what_is_not_known_is_not_claimed(name: str, place: Place) -> None:
    entries, options, kind = LISTS[name]
    place.write("little.py", PROGRAM.read_text())
    place.write("list.yaml", "".join(f"- {entry}\n" for entry in entries))
    ran = place.record(["python", "little.py", kind], ["--spec", "list.yaml", *options])
    assert ran.returncode == 0, ran.stderr
    (run,) = place.runs()
    lines = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    assert len(lines) >= 5 * 12, "it was recorded"
    found = place.cli("diagnose", run, "--json")
    codes = {line["code"]: line["notes"] for line in map(json.loads, found.stdout.splitlines()) if line["code"]}
    assert codes == {} and found.exit_code == 0, found.stderr
    assert {code for line in lines for code in line.get("findings", [])} == set()
