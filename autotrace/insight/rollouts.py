"""Store rollouts as rows of traits: the least that a comparison of many rollouts needs.

A row has the numbers of its traits' texts, so a hundred thousand rows take tens of megabytes.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from autotrace.insight.families.engine import behind
from autotrace.insight.families.time import PARTS
from autotrace.insight.registry import codes
from autotrace.insight.step_records import Record, Step
from autotrace.insight.traits import DECLARED, PROVES, Stage
from autotrace.trajectory.jsonable import finite

OF_FAMILY = {
    "tokens": Stage.HISTORY, "responses": Stage.REWARD, "chains": Stage.END, "rewards": Stage.REWARD,
    "ending": Stage.END, "engine": Stage.SAMPLING, "tools": Stage.TOOL, "text": Stage.ANSWER,
    "proofs": Stage.PROMPT,
}  # fmt: skip
"""Map family of a finding -> the stage of a rollout in which the finding comes about."""
OF_CODE = {
    "AT-REWARD-DROPPED": len(Stage), "AT-REWARD-JUMPED": len(Stage), "AT-GROUP-MIXED": Stage.DATA,
    "AT-REWARD-NO-TURN": Stage.DATA, "AT-ONE-PROMPT": Stage.DATA, "AT-DUPLICATE-ROLLOUTS": Stage.END,
    "AT-TOOL-SLOW": Stage.TIME,
}  # fmt: skip
"""Map code -> position, where the family has another position."""
AFTER = {"signal": 1, "trainer": 2, "scalars": 2, "mismatch": 2, "time": 3}
"""Order the families of faults after the rollout: an equal reward follows from its cause in the rollouts."""
Sight = tuple[Stage, str, float | None]
"""Describe a trait of a row: the position, the words, and the number if the trait is a quantity."""


def position(code: str) -> int:
    """Return the position of a finding in a rollout, the earliest first."""
    known = codes().get(code)
    family = known.family if known is not None else ""
    if code in OF_CODE:
        return OF_CODE[code]
    return OF_FAMILY[family] if family in OF_FAMILY else len(Stage) + AFTER.get(family, len(AFTER))


def of_record(record: Record, step: Step) -> Iterator[Sight]:
    """Yield the findings of a rollout and the values of its line as traits."""
    known = codes()
    for mark in record.profile.marks:
        code = known.get(mark.code)
        if code is not None and code.family in OF_FAMILY and mark.code not in PROVES.values():
            kind = f" ({mark.kind})" if mark.kind not in ("", code.title) else ""
            yield OF_FAMILY[code.family], code.title + kind, None
    for name in step.found.get(record.trace_id, ()):
        if name in known and (at := position(name)) < Stage.REWARD:  # later findings follow from the reward
            yield Stage(at + 1), known[name].title, None  # behind the trait that the finding is about
    if record.data_source:
        yield Stage.DATA, f"the data source is {record.data_source}", None
    if record.rollout_n is not None:
        yield Stage.PLACE, f"the rollout has the number {record.rollout_n} in its group", None
    yield Stage.END, f"the rollout ends with {record.status}", None
    turns = record.profile.turns
    quantities = [
        (Stage.SAMPLING, "steps that the weights are behind", behind(record, step)),
        (Stage.PROMPT, "tokens of the first prompt", turns[0].prompt if turns else None),
        (Stage.ANSWER, "tokens of the last answer", turns[-1].response if turns else None),
        (Stage.END, "turns", len(turns)),
        (Stage.TIME, "seconds of the rollout", record.seconds and round(record.seconds, 1)),
    ]
    times = ((PARTS[name], value) for name, value in record.times.items() if name in PARTS)
    quantities += [(Stage.TIME, f"seconds in {part}", round(value, 1)) for part, value in times]
    yield from ((position, words, float(value)) for position, words, value in quantities if value is not None)


@dataclass(slots=True, eq=False)
class Row:
    """Hold a rollout."""

    trace_id: str
    step: int | None
    group: int
    """Number the group: rollouts with the same number share a prompt."""
    reward: float | None
    traits: array[int]
    """List numbers of ``Rollouts.traits``."""
    quantities: array[int]
    values: array[float]
    """List the values of ``quantities``."""


class Rollouts:
    """Build rows, and keep the words of their traits."""

    def __init__(self) -> None:
        self.traits: list[tuple[Stage, str]] = []
        """Map number of a trait (the index) -> its position and words."""
        self._numbers: list[dict[str, int]] = [{} for _ in Stage]
        """Map stage -> words of a trait -> number of the trait."""
        self._groups: dict[str, int] = {}

    def rows_of(self, step: Step, records: Sequence[Record], most: int, run: str = "") -> list[Row]:
        """Convert ``records`` to rows: whole groups, ``most`` rollouts or a few more. ``run``: tells groups of equal
        names in two runs apart."""
        chosen = sorted({record.group for record in records}, key=lambda group: zlib.crc32(group.encode()))
        sizes = Counter(record.group for record in records)
        ends = accumulate(sizes[group] for group in chosen)
        taken = {group for group, end in zip(chosen, ends, strict=True) if end - sizes[group] < most}
        return [self._row(record, step, run) for record in records if record.group in taken]

    def group(self, name: str) -> int:
        """Return the number of a group."""
        return self._groups.setdefault(name, len(self._groups))

    def _row(self, record: Record, step: Step, run: str) -> Row:
        traits, quantities, values = dict[int, None](), array("I"), array("d")
        declared = [(DECLARED[x.name][0], x.text, x.value) for x in record.profile.traits if x.name in DECLARED]
        for stage, words, value in (*declared, *of_record(record, step)):
            numbers = self._numbers[stage]
            number = numbers.get(words)
            if number is None:
                number = numbers[words] = len(self.traits)
                self.traits.append((stage, words))
            if value is None:
                traits[number] = None
            else:
                quantities.append(number)
                values.append(value)
        group = self.group(run + record.group)
        return Row(record.trace_id, record.step, group, finite(record.score), array("I", traits), quantities, values)
