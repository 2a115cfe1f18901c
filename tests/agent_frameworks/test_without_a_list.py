"""The agents of these clients with their lists taken away: the trajectories are what their messages say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from autotrace.ship.assembly.message_parts import NOTE
from autotrace.trajectory.model import Span, Trajectory
from tests.agent_frameworks.tracing import SPEC, run_program, trajectories_of

Said = tuple[tuple[str, ...], ...]
"""Roles of the messages of each turn."""


def said(turns: Iterable[Span]) -> Said:
    return tuple(tuple(str(message["role"]) for message in turn.messages or ()) for turn in turns)


def conversations(listed: Iterable[Trajectory]) -> list[list[Span]]:
    """The turns of the trajectories of the list, by conversation: a turn that is told of a tool goes on, and so does
    one that asks again after an error (also in another way, which nobody can tell)."""
    found: list[list[Span]] = []
    for turn in (turn for one in listed for turn in one.llm_spans):
        told = any(message["role"] == "tool" for message in turn.messages or ())
        if found and (told or found[-1][-1].status == "ERROR"):
            found[-1].append(turn)
        else:
            found.append([turn])
    return found


@pytest.mark.parametrize("framework", ["openai", "anthropic", "httpx"])
def test_the_trajectories_are_the_conversations(framework: str, tmp_path: Path) -> None:
    runs = [tmp_path / "listed", tmp_path / "unlisted"]
    for folder in runs:
        folder.mkdir()
    listed, printed = run_program(framework, runs[0], SPEC.format(framework=framework))
    unlisted, again = run_program(framework, runs[1])
    assert printed == again

    expected = Counter(map(said, conversations(trajectories_of(listed))))
    made = trajectories_of(unlisted)
    assert {(one.root.name, one.root.role, NOTE in one.notes) for one in made} == {("conversation", "trajectory", True)}
    found = Counter(said(one.llm_spans) for one in made)
    found -= Counter([said(made[0].llm_spans)])  # the one call that the program makes outside of its agent
    assert found == expected
    tools = [[span.name for span in one.spans if span.role == "tool"] for one in made]
    assert tools.count(["add"]) == sum(count for turns, count in found.items() if "tool" in turns[-1])
