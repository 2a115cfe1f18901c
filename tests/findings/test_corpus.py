"""The corpus in short: some of each family, in veRL's own loops. All of it: ``make findings``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.findings.judge import judge, play, table

pytestmark = pytest.mark.timeout(900)
SHORT = {
    "v0": ["tools", "asynchronous, resumed", "cut over the turns faint", "empty first answer", "unknown tool faint"],
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
    ],
}


@pytest.mark.parametrize("mode", sorted(SHORT))
def test_what_is_planted_is_found_where_it_is_and_nothing_else(mode: str, tmp_path: Path) -> None:
    play(mode, tmp_path, SHORT[mode])
    verdicts = judge(mode, tmp_path)
    assert len(verdicts) == len(SHORT[mode])
    assert all(verdict.is_good for verdict in verdicts), table(verdicts)
