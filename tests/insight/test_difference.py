"""How two runs are compared: what grows with their size."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from autotrace.insight import difference


def test_few_rollouts_of_a_prompt_are_loaded() -> None:
    loaded: list[tuple[int, str]] = []

    def load(side: int, trace_id: str) -> Any:
        loaded.append((side, trace_id))
        return None

    side: Any = [SimpleNamespace(trace_id=str(number)) for number in range(10_000)]
    assert list(difference._matched((side, side), load)) == []
    assert len(loaded) == 2 * difference.PAIRED


def test_each_metric_is_looked_up_in_its_own_steps() -> None:
    class Counting(dict[str, float]):
        asked = 0

        def __contains__(self, name: object) -> bool:
            Counting.asked += 1
            return super().__contains__(name)

    one: Any = {step: Counting({f"m{step}": 1.0}) for step in range(500)}
    other: Any = {step: Counting({f"m{step}": 2.0}) for step in range(500)}
    assert len(difference.metrics_part(one, other)) == 500
    assert Counting.asked == 500


def test_a_deep_configuration_has_short_names() -> None:
    nested: Any = "value"
    for number in range(400):
        nested = {f"level_{number}": nested}
    ((name, value),) = difference._flat(nested, "")
    assert name.count(".") <= difference.DEEPEST and len(value) <= difference.LONGEST
