"""Programs that do more with the client of openai than to ask and to read see the same, traced or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autotrace.cli.main import main
from autotrace.trajectory.model import Trajectory
from tests.agent_frameworks.openai.rude import WAYS
from tests.agent_frameworks.rude_server import HUGE, TEXT, serving
from tests.agent_frameworks.tracing import SPEC, by_way, run_bare, run_program
from tests.folders import contents

OK, FAILED, LEFT = ("OK", None), ("ERROR", None), ("CANCELLED", "dropped")
ENDS: dict[str, list[tuple[str, str | None]]] = {
    "azure": [OK, OK],
    "azure_later": [OK],
    "proxied": [OK],
    "subclassed": [OK, OK],
    "copied": [OK] * 3,
    "closed": [FAILED],
    "files_and_batches": [],
    "parsed": [OK, FAILED],
    "retried": [OK, FAILED],
    "refused": [FAILED, FAILED],
    "moved": [FAILED],
    "cut": [OK],
    "latin": [FAILED],
    "broken": [FAILED],
    "error_inside": [FAILED],
    "nothing": [OK],
    "called": [OK],
    "unread": [OK, LEFT, LEFT, LEFT],  # the third was closed, which ends it, and read then
    "threads": [OK] * 8,
    "loops": [OK] * 6,
}
"""Status and outcome of each call that a model was asked by, where there is nothing to choose."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str], Path]:
    folder = tmp_path_factory.mktemp("rude")
    bare = run_bare("openai", folder, "rude", serving)
    spec = SPEC.format(framework="openai").replace("openai.program", "openai.rude")
    run, traced = run_program("openai", folder, spec, "rude", serving)
    return bare, traced, run


@pytest.fixture(scope="module")
def trajectories(runs: tuple[list[str], list[str], Path]) -> dict[str, Trajectory]:
    return by_way(runs[2])


@pytest.mark.parametrize("number", range(len(WAYS)), ids=WAYS)
def test_the_program_sees_the_same(runs: tuple[list[str], list[str], Path], number: int) -> None:
    bare, traced, _ = runs
    assert bare[number].startswith(WAYS[number]) and traced[number] == bare[number]
    assert len(bare) == len(traced) == len(WAYS)


@pytest.mark.parametrize("way", ENDS)
def test_each_call_ends_as_it_ended(trajectories: dict[str, Trajectory], way: str) -> None:
    turns = [span for span in trajectories[way].spans if span.role == "llm"]
    assert [(span.status, span.attributes.get("outcome")) for span in turns] == ENDS[way]


def _answers(trajectory: Trajectory) -> list[Any]:
    return [(span.messages or [{}])[-1].get("content") for span in trajectory.llm_spans]


def test_answers_are_whole_however_their_bytes_came(trajectories: dict[str, Trajectory]) -> None:
    for way in ("azure", "cut", "loops", "copied", "proxied"):
        assert set(_answers(trajectories[way])) == {TEXT}
    (called,) = trajectories["called"].llm_spans
    assert (called.messages or [])[-1]["tool_calls"][0]["function"]["arguments"].startswith(HUGE[:60_000])


def test_what_came_before_a_failure_is_kept(trajectories: dict[str, Trajectory]) -> None:
    assert _answers(trajectories["broken"]) == [TEXT] and _answers(trajectories["error_inside"]) == ["Gr"]
    assert _answers(trajectories["cancelled"])[:2] == [TEXT[:3]] * 2


def test_nothing_of_ours_failed_and_no_key_was_recorded(runs: tuple[list[str], list[str], Path]) -> None:
    status = json.loads(CliRunner().invoke(main, ["status", str(runs[2]), "--json"], catch_exceptions=False).output)
    assert not [reason for reason in status["status"]["drops"] if reason.startswith("fault:")]
    assert not any(b"sk-secret" in text for text in contents(runs[2]).values())
