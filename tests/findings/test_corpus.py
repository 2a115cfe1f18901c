"""The corpus in short: some of each family, in veRL's own loops. All of it: ``make findings``."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.findings import hangs, named
from tests.findings.judge import judge, play, table

pytestmark = pytest.mark.timeout(900)
SHORT = {
    "v0": [
        "tools",
        "asynchronous, resumed",
        "cut over the turns faint",
        "empty first answer",
        "unknown tool faint",
        "another model for some faint",
        "a NaN reward, trained",
        "llama: answers stripped",
    ],
    "v1": [
        "one turn",
        "a conversation begins anew",
        "answers stripped faint",
        "mask over tools faint",
        "reward raises faint",
        "cut at the context faint",
        "temperature changed faint",
        "tool raises faint",
        "the same call again faint",
        "a cache of old weights",
        "one row that fills the batch",
        "ReAct's format",
    ],
}


@pytest.mark.long
@pytest.mark.parametrize("mode", ["v0", "v1"])
def test_what_is_planted_is_found_where_it_is_and_nothing_else(mode: str, tmp_path: Path) -> None:
    play(mode, tmp_path, SHORT[mode])
    verdicts = judge(mode, tmp_path)
    assert len(verdicts) == len(SHORT[mode])
    assert all(verdict.is_good for verdict in verdicts), table(verdicts)


@pytest.mark.long
def test_what_hangs_is_named_while_it_does_and_what_was_killed_afterwards(tmp_path: Path) -> None:
    with hangs.played(tmp_path / "played") as (process, run):
        verdicts = hangs.judge(process, run, now_ns=time.time_ns() + 3600 * 10**9)
    assert all(verdict.is_good for verdict in verdicts), table(verdicts)


REPORTED = [
    "no session", "outage", "call in the thinking", "first call only", "wall clock", "made-up answer",
    "prompts share a group", "numbers share a group", "one prompt for all",
    "no tools", "question dropped", "thinking without an end", "nested header",
    "mask off by one", "text of the harness", "pad rows", "batch: one sample", "batch: cut",
]  # fmt: skip


def test_faults_that_people_reported_are_named_in_words_and_nothing_is_said_of_their_twins(tmp_path: Path) -> None:
    named.play(tmp_path, REPORTED)
    verdicts = named.judge(tmp_path)
    assert len(verdicts) == len(REPORTED)
    assert all(verdict.is_good for verdict in verdicts), named.table(verdicts)
