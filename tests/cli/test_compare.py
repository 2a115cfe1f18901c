"""A group beside itself: turns aligned, the first token and the first tool call that differ, reward and advantage."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from autotrace.ship.readers import of_run
from autotrace.trajectory.divergence import calls_parted, parted
from autotrace.trajectory.tool_calls import tool_calls
from tests.cli.conftest import Call
from tests.ship.spools import ANSWER, FINAL, PROMPT, TOOL, Process, attributes, new_run, trajectory

pytestmark = pytest.mark.row("comparing a group")

EVIL = "\x1b[2J[red]evil"


def rollout(
    process: Process,
    number: int,
    *,
    answer: list[int] = ANSWER,
    item: str = "apples",
    result: str = "12",
    final: list[int] | None = FINAL,
    **facts: Any,
) -> str:
    """One rollout of step 3, sample 17: a turn, a tool call, and (unless None) a last turn."""
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes(3, number, "u", sample_index=17))
    agent = process.open(trace, "agent", root)
    llm = process.open(trace, "llm", agent, PROMPT)
    process.close(trace, llm, answer)
    asked = {"name": "stock", "arguments": json.dumps({"item": item, "n": 1})}
    tool = process.open(trace, "tool", agent, inputs={"tool_call": asked})
    process.close(trace, tool, output=[{"text": result}, 0.0, {}])
    if final is not None:
        last = process.open(trace, "llm", agent, PROMPT + answer + TOOL)
        process.close(trace, last, final)
    process.close(trace, agent)
    for name, value in facts.items():
        process.fact(name, value, trace)
    process.close(trace, root)
    return trace.hex()


def test_a_run_is_named_where_other_commands_take_it(call: Call, group: tuple[Path, list[str]]) -> None:
    folder, _ = group
    expected = call("compare", "--run", folder, "--step", "3", "--sample", "17").stdout
    assert call("compare", folder, "--step", "3", "--sample", "17").stdout == expected != ""
    assert "name at least two trajectories" in call("compare", folder).output


@pytest.fixture
def group(runs: Path) -> tuple[Path, list[str]]:
    """Five rollouts: the first, its twin, another last token, another argument, one without a last turn."""
    folder = new_run(runs, "20261121-070000-aaaaaa")
    process = Process(folder)
    ids = [
        rollout(process, 0, reward=1.0, advantage=0.5),
        rollout(process, 1, reward=1.0, advantage=0.5),
        rollout(process, 2, final=[*FINAL[:2], 99, 98], reward=0.0, advantage=-1.25),
        rollout(process, 3, item=EVIL, reward=0.0, advantage=-1.25),
        rollout(process, 4, final=None, reward=0.0, advantage=-1.25),
    ]
    process.exit()
    return folder, ids


def test_where_tokens_part(group: tuple[Path, list[str]]) -> None:
    index = of_run(group[0])
    first, *others = [index.load(trace) for trace in group[1]]
    found = [parted(first, other) for other in others]
    assert [None if one is None else (one.turn, one.part, one.token) for one in found] == [
        None, (2, "answer", 2), None, (2, "end", None),
    ]  # fmt: skip


def test_where_tool_calls_part(group: tuple[Path, list[str]]) -> None:
    index = of_run(group[0])
    first, *others = [index.load(trace) for trace in group[1]]
    found = [calls_parted(first, other) for other in others]
    assert [None if one is None else (one[0], one[1].part) for one in found] == [None, None, (1, "arguments"), None]
    assert str(tool_calls(first)[0]) == 'stock(item="apples", n=1)'
    assert tool_calls(first)[0].told == "12"


def test_the_group_of_a_sample_stands_side_by_side(call: Call, group: tuple[Path, list[str]]) -> None:
    shown = call("compare", "--step", "3", "--sample", "17", "--run", group[0])
    assert shown.exit_code == 0, shown.output
    for trace in group[1]:
        assert trace[:12] in shown.output
    (advantages,) = [line for line in shown.output.splitlines() if line.strip().startswith("advantage")]
    assert advantages.split() == ["advantage", "0.5", "0.5", "-1.25", "-1.25", "-1.25"]
    assert "≠ turn 2" in shown.output
    assert "≠ turn 1" not in shown.output
    assert "≠ tool" in shown.output
    assert "B  is identical to A" in shown.output
    assert "C  differs from A in turn 2, token 2 of the answer" in shown.output
    assert "\x1b[2J" not in shown.output
    assert "\\u001b[2J[red]evil" in shown.output
    assert "D  tool call 1, other arguments" in shown.output


def test_eight_are_a_list_where_columns_would_be_too_narrow(
    call: Call, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(new_run(runs, "20261121-070000-bbbbbb"))
    ids = [
        rollout(process, number, final=None if number > 1 else FINAL, reward=float(number < 2)) for number in range(8)
    ]
    process.exit()
    words = ("compare", "--step", "3", "--sample", "17")
    wide = [line for line in call(*words).stdout.splitlines() if ids[0][:12] in line]
    assert all(trace[:12] in wide[0] for trace in ids), "200 columns have room for all"
    monkeypatch.setenv("COLUMNS", "80")
    shown = call(*words).stdout.splitlines()
    heads = [line.split() for line in shown if any(trace[:12] in line for trace in ids)]
    assert heads == [[letter, trace[:12]] for letter, trace in zip("ABCDEFGH", ids, strict=True)]
    assert sum(line.endswith("as A") for line in shown) == 15, "turn 1 and the tool of all, turn 2 of the twin"
    listed = shown[: next(place for place, line in enumerate(shown) if line.startswith("B  is"))]
    assert max(map(len, listed)) <= 80 and all(line == line.rstrip() for line in listed)
    means = {line[:18].strip(): line[18:].split() for line in shown}
    assert means["mean"] == ["winners", "(2)", "losers", "(6)"]
    assert (means["reward"], means["turns"], means["tokens written"]) == (["1", "0"], ["2", "1"], ["7", "3"])


def test_named_trajectories_as_json(call: Call, group: tuple[Path, list[str]]) -> None:
    shown = call("compare", group[1][0][:10], group[1][2][:10], "--run", group[0], "--json")
    whole = json.loads(shown.output)
    assert [one["facts"]["reward"] for one in whole["trajectories"]] == [1.0, 0.0]
    assert whole["divergence"][1]["tokens"]["token"] == 2


def test_one_is_not_enough(call: Call, group: tuple[Path, list[str]]) -> None:
    assert call("compare", group[1][0], "--run", group[0]).exit_code == 2
    nothing = call("compare", "--step", "9", "--sample", "17", "--run", group[0])
    assert nothing.exit_code != 0
    assert "no trajectory of sample 17 in step 9" in nothing.output


def _plain(process: Process, said: str | None, *, tokens: int | None = None, turns: bool = True) -> str:
    """A trajectory without token ids: of an agent that works with text, or recorded without its content."""
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes(3, 0, "u", sample_index=17))
    if turns:
        read: dict[str, Any] = {} if tokens is None else {"prompt": PROMPT, "withheld": True}
        llm = process.open(trace, "llm", root, **read)
        written: dict[str, Any] = {} if tokens is None else {"response": list(range(tokens)), "withheld": True}
        process.close(trace, llm, output=said, **written)
    process.close(trace, root, output=None if turns else said)
    return trace.hex()


def test_without_token_ids_what_was_returned_is_compared(call: Call, runs: Path) -> None:
    folder = new_run(runs, "20261121-070002-cccccc")
    process = Process(folder)
    texts = [_plain(process, said) for said in ("It is 4.", "It is 4.", "It is 5.")]
    silent = [_plain(process, None, tokens=number) for number in (4, 4, 6)]
    bare = [_plain(process, said, turns=False) for said in ("4", "4", "5")]
    process.exit()

    shown = call("compare", *texts, "--run", folder).output
    assert "It is 5." in shown
    assert "B  is identical to A" in shown
    assert "C  differs from A in turn 1, the answer: 4. | 5." in shown
    shown = call("compare", *silent, "--run", folder).output
    assert "B  cannot be compared with A further: the answer of turn 1 was not recorded" in shown
    assert "C  differs from A in turn 1, the answer: 4 tokens | 6 tokens" in shown
    shown = call("compare", *bare, "--run", folder).output
    assert "B  is identical to A" in shown
    assert "C  returns something other than A: 4 | 5" in shown


def test_a_group_is_chosen_by_a_condition(call: Call, run: Path) -> None:
    chosen = json.loads(call("compare", "--where", "step = 2", "--json").output)
    assert [one["facts"]["reward"] for one in chosen["trajectories"]] == [0.75, 1.0]
    assert "no trajectory matches" in call("compare", "--where", "step = 2", "--validate", "--status", "error").output
    assert "not both" in call("compare", "a", "b", "--where", "step = 2").output
    assert "name at least two trajectories" in call("compare", "--step", "2").output


def test_a_sample_alone_is_a_group_where_it_is_in_one_step_only(call: Call, runs: Path) -> None:
    folder = new_run(runs, "20261121-070003-dddddd")
    process = Process(folder)
    for step, sample, uid in ((None, 1, "a"), (None, 1, "a"), (None, 2, "b"), (3, 4, "c"), (3, 4, "c"), (5, 4, "d")):
        trajectory(process, step=step, uid=uid, sample_index=sample)
    process.exit()
    shown = json.loads(call("compare", "--sample", "1", "--run", folder, "--json").output)
    assert [one["attributes"]["sample_index"] for one in shown["trajectories"]] == ["1", "1"]
    lonely = call("compare", "--sample", "2", "--run", folder)
    assert lonely.exit_code != 0 and "only one trajectory of sample 2; autotrace ls shows" in lonely.output
    several = call("compare", "--sample", "4", "--run", folder)
    assert several.exit_code != 0 and "sample 4 is in several steps (3, 5): name one, --step 5" in several.output
    assert call("compare", "--sample", "4", "--step", "3", "--run", folder).exit_code == 0


def test_more_than_can_stand_beside_each_other(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    for rollout in range(65):
        trajectory(process, rollout=rollout)
    process.exit()
    assert "more than 64 trajectories match" in call("compare", "--step", "1", "--sample", "7").output
