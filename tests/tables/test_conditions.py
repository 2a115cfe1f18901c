"""Conditions on trajectories: what they find, and what is said of those that cannot be understood."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotrace.tables.conditions import Condition, WhereError, condition, equals, has_status
from autotrace.tables.reader import Reader
from autotrace.tables.sources import Lines, Source, Steps, stored_info
from autotrace.tables.words import NAMES, WORDS
from tests.cases import examples


class Four(Source):
    """Trajectories a to d: their lines, and nothing else."""

    def __init__(self) -> None:
        super().__init__(Path(), stored_info("run", None))
        base = {"role": "trajectory", "complete": True, "is_trajectory": True, "run_id": "run"}
        profile = {"findings": ["AT-TRUNCATED", "AT-TOOL-RAISES"], "truncated": True, "tool_error": True}
        self.rows = [
            {"trace_id": "a", "step": 1, "sample_index": "3", "status": "OK", "reward": 0.05, "validate": False,
             "llm_calls": 2, "start_ns": 0, "duration_s": 1.0, "advantage": -1.5, "findings": [], "truncated": False,
             "facts": json.dumps({"advantage": -1.5, "extra": {"acc": False, "my-score": 3}})},
            {"trace_id": "b", "step": 3, "sample_index": "20", "status": "ERROR", "reward": 0.5, "validate": False,
             "llm_calls": 9, "start_ns": 0, "duration_s": 20.0, "error": "TimeoutError: it's late", "advantage": 0.5,
             "facts": json.dumps({"advantage": 0.5, "extra": "none"}), **profile},
            {"trace_id": "c", "step": 3, "sample_index": "b7-uuid", "status": "OPEN", "validate": True, "uid": 'x"y',
             "attributes": '{"model": "m1"}', "complete": False},
            {"trace_id": "d", "status": "OK", "reward": 1.0, "facts": "{NaN", "tool_s": 4.0},
        ]  # fmt: skip
        self.rows = [{**base, **row} for row in self.rows]

    def lines(self, table: str, columns: Sequence[str], steps: Steps | None, shown: Iterable[str] = ()) -> Lines:
        return [tuple(row.get(column) for column in columns) for row in self.rows]


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    """Of ``Four``."""
    made = Reader([Four()])
    yield made
    made.close()


def found(reader: Reader, wanted: Condition) -> str:
    return "".join(row.trace_id for row in reader.select(wanted, ("trace_id",), sort="trace_id"))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("reward < 0.1 and step >= 1", "a"),
        ("reward<=.5", "ab"),
        ("reward < 0.1 or reward > 0.9", "ad"),
        ("not reward < 0.1", "bd"),
        ("reward is null", "c"),
        ("reward IS NOT NULL AND step is null", "d"),
        ("step = 3 and (status = 'error' or status == \"OPEN\")", "bc"),
        ("status != 'OK'", "bc"),
        ("status in ('OK', 'ERROR') and step not in (1, 2)", "b"),
        ("validate", "c"),
        ("not validate", "abd"),
        ("validate = false", "abd"),
        ("not not validate", "c"),
        ("sample = 3", "a"),
        ("sample_index >= 3", "ab"),
        ("sample_index = '20'", "b"),
        ("sample in (3, 20)", "ab"),
        ("error contains 'TIMEOUT'", "b"),
        ("error contains 'it''s'", "b"),
        ("error not contains 'x'", "b"),
        ("uid = 'x\"y'", "c"),
        ('uid = "x""y"', "c"),
        ("advantage > -2", "ab"),
        ("advantage < reward", "a"),
        ("facts.extra.acc = false", "a"),
        ("facts.extra.my-score = 3", "a"),
        ("attributes.model = 'm1'", "c"),
        ("attributes.model contains 'M'", "c"),
        ("duration > 10 or tool_s > 3", "bd"),
        ("turns = 9", "b"),
        ("facts.extra = 'none'", "b"),
        ("facts.extra > 1", ""),
        ("finding = 'at-truncated'", "b"),
        ("finding contains 'TOOL'", "b"),
        ("finding contains 'tool'", "b"),
        ("not finding contains 'tool'", "acd"),
        ("finding in ('AT-HUNG', 'AT-TOOL-RAISES')", "b"),
        ("finding != 'AT-TRUNCATED'", "acd"),
        ("finding is null", "acd"),
        ("truncated", "b"),
        ("not truncated", "a"),
        ("tool_error = true", "b"),
        ("start = 0 and start_ns <= 0", "ab"),
        ("step < sample", "ab"),
        ("turns>-1 and turns<+1e1 and step=1", "a"),
    ],
)
def test_what_a_condition_finds(reader: Reader, expression: str, expected: str) -> None:
    assert found(reader, condition(expression)) == expected


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("rewrad < 1", 'there is no column "rewrad" at character 1; did you mean "reward"?'),
        ("step=1 and Reward < 1", 'there is no column "Reward" at character 12; did you mean "reward"?'),
        ("zzzzzz = 1", "choose from run_id, trace_id"),
        ("facts = 1", "write facts.NAME"),
        ("reward < 'a'", "reward is a number, but 'a' at character 10 is text"),
        ("validate = 1", "validate is true or false, but 1 at character 12 is a number"),
        ("status = OK", "a text is written in quotes: 'OK' (at character 10)"),
        ("status = 'fine'", "there is no status 'fine'; choose from OK, OPEN"),
        ("reward", "expected a comparison of reward"),
        ("reward <", "expected a value at character 9, not nothing"),
        ("(reward < 1", 'expected ")" at character 12, not nothing'),
        ("reward < 1)", 'expected "and" or "or" at character 11, not ")"'),
        ("", "expected the name of a column at character 1, not nothing"),
        ("'x' = uid", "expected the name of a column"),
        ("reward < 1; DROP TABLE traces", "cannot read ';' at character 11"),
        ("error contains 'abc", "the text that begins at character 16 has no closing quote"),
        ("reward contains 'abc'", "reward is a number, so it cannot contain a text"),
        ("step in ()", "expected a value at character 10"),
        ("facts.a in (1, 'x')", "must be of one kind"),
        ("finding < 'A'", "finding has no order; compare it with = or !="),
        ("finding = uid", "finding is compared with a text in quotes"),
        ("step = validate", "step is a number, but validate is true or false"),
        ("step = uid", "step is a number, but uid is text"),
        ("uid = '\udcff'", "no UTF-8"),
        ("step in (" + "1, " * 2000 + "1)", "too long"),
        (" or ".join(["step = 1"] * 2000), "too long"),
        ("(" * 500 + "step = 1" + ")" * 500, "nested too deeply"),
    ],
)
def test_what_cannot_be_understood_is_said_with_its_place(expression: str, said: str) -> None:
    with pytest.raises(WhereError) as raised:
        condition(expression)
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_every_column_can_be_asked_for(reader: Reader) -> None:
    for name in WORDS:
        assert found(reader, condition(f"{name} is null or {name} is not null")) == "abcd", name


def test_the_longest_condition_is_not_too_much(reader: Reader) -> None:
    assert found(reader, condition("step in (" + ", ".join(map(str, range(399))) + ")")) == "abc"
    assert found(reader, condition(" or ".join(["step = 1"] * 399))) == "a"


def test_conditions_are_joined(reader: Reader) -> None:
    both = equals(step=3, validate=None) & has_status(("OPEN",)) & condition("validate or turns = 9")
    assert found(reader, both) == "c"
    assert found(reader, equals() & has_status(())) == "abcd"


SPOKEN = st.sampled_from(
    [
        *NAMES,
        "and",
        "or",
        "not",
        "(",
        ")",
        "<",
        "=",
        "in",
        "is",
        "null",
        "'x'",
        '"',
        "1",
        "-1.5e3",
        ",",
        "contains",
        "true",
    ]
)


@settings(max_examples=examples(500), deadline=None)
@given(st.one_of(st.lists(SPOKEN, max_size=12).map(" ".join), st.text(max_size=40)))
def test_whatever_is_written_is_a_condition_or_a_sentence(reader: Reader, expression: str) -> None:
    try:
        compiled = condition(expression)
    except WhereError:
        return
    found(reader, compiled)
