"""To which of several rollouts a fact belongs that names them by what they answered."""

from __future__ import annotations

import pytest

from autotrace.ship.index.facts import UNKNOWN, _distance


@pytest.mark.parametrize(
    ("reward", "score", "expected"),
    [(0.1, 0.1 + 1e-9, 0.0), (None, 0.1, UNKNOWN), (0.1, None, 0.0), (None, None, 0.0), (0.5, 0.25, 0.25)],
)
def test_a_reward_that_is_not_known_yet_is_between_match_and_mismatch(
    reward: float | None, score: float | None, expected: float
) -> None:
    assert _distance(reward, score) == expected
    assert _distance(0.25, 0.25) < UNKNOWN < _distance(0.25, 0.25 + 1e-3)
