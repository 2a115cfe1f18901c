"""What a trainer computed, packed and read back; what is damaged is nothing."""

from __future__ import annotations

import math
import struct

from autotrace.spool import token_facts
from autotrace.spool.token_facts import COLUMNS, MASK, NUMBERS, WHOLE


def test_numbers_come_back_by_name_without_what_is_not_known() -> None:
    values = [float(number) if name in WHOLE else number / 10 for number, name in enumerate(NUMBERS)]
    read = token_facts.summary(token_facts.pack_summary(values))
    assert read == {name: value for name, value in zip(NUMBERS, values, strict=True)}
    assert {name for name, value in read.items() if isinstance(value, int)} == WHOLE
    values[1], values[2] = math.nan, math.inf
    assert token_facts.summary(token_facts.pack_summary(values)).keys() == set(NUMBERS) - {NUMBERS[1], NUMBERS[2]}


def test_what_is_no_summary_has_no_numbers() -> None:
    for packed in (None, b"", b"\0" * 7, "text", [1.0]):
        assert token_facts.summary(packed) == {}


def test_columns_come_back_as_lists() -> None:
    value = {name: struct.pack("<3e", -0.5, 0.0, -2.0) for name in COLUMNS} | {MASK: b"\1\0\1", "summary": b"x"}
    read = token_facts.columns(value)
    assert read == {**{name: [-0.5, 0.0, -2.0] for name in COLUMNS}, MASK: [1, 0, 1]}
    assert token_facts.columns({"old_log_probs": b"\0\0\0", "entropy": 5, "other": b"\0\0"}) == {"old_log_probs": [0.0]}
