"""Values of a spec: items, functions, constants; absent instead of an error, and no code of the host's runs."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotrace.config import expressions
from autotrace.record.fields import ABSENT, Path
from autotrace.record.formulas import value_of
from autotrace.record.spec_functions import FUNCTIONS, MAX_ITEMS

VALUES: dict[str, Any] = {
    "i": 5, "n": 8, "row": {"prompt": [{"content": "hi"}], "a-b": 1, "x-y": [7], "many": [1] * (MAX_ITEMS + 1)},
    "result": SimpleNamespace(advantages=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], nothing=None, parts=([1], [2])),
    "self": SimpleNamespace(
        size=4, training=True, logs={"a": deque([1.0, 2.0]), "b": deque([3.0, 4.0])}, flag=False, prompts=[1]
    ),
}  # fmt: skip
READ: dict[str, Any] = {
    "group(i, self.size)": 1,
    "member(i, self.size)": 1,
    "group(row_of_all(i, n, 2), self.size)": 5,
    "result.advantages[i]": 5.0,
    "result.advantages[row_from_end(i, n)]": 5.0,
    "result.advantages[row_from_end(0, 3, 1, 3)]": 2.0,
    "result.advantages[-1]": 7.0,
    "result.advantages[99]": ABSENT,
    "result.parts.1[0]": 2,
    "opposite(self.training)": False,
    "opposite(self.flag)": True,
    "opposite(self.missing)": ABSENT,
    "choice(self.training, self.size, n)": 4,
    "choice(self.flag, self.size, n)": 8,
    "choice(self.missing, self.size, n)": 8,
    "choice(self.training, self.missing, n)": ABSENT,
    "choice(self.prompts, i, n)": 5,
    "unless(self.flag, i)": 5,
    "unless(self.training, i)": ABSENT,
    "unless(self.missing, i)": 5,
    "self.logs.*[1]": {"a": 2.0, "b": 4.0},
    "self.logs.*[-2]": {"a": 1.0, "b": 3.0},
    "row.prompt.*.content": ["hi"],
    "row.prompt.*.missing": [],
    "result.nothing.*": ABSENT,
    "group(i, 0)": ABSENT,
    "group(i, true)": ABSENT,
    "group(i, self.logs)": ABSENT,
    "equal(i, 5)": True,
    "equal( i ,n )": False,
    "equal(row.prompt.0.content, 'hi')": True,
    "one_of(row.prompt.0.content, 'ho', 'hi')": True,
    "one_of(row.prompt.0.content, 'ho')": False,
    "one_of(self, 'ho')": ABSENT,
    "equal(self, self)": ABSENT,
    "equal(self.missing, 1)": ABSENT,
    "true": True,
    "'a'": "a",
    "-5": -5,
    "when(self.training, true)": True,
    "when(self.flag, i)": ABSENT,
    "when(result.nothing, i)": ABSENT,
    "when(self.missing, i)": ABSENT,
    "when(equal(i, -5), i)": ABSENT,
    "at_least(i, 5)": True,
    "at_least(i, 6)": False,
    "at_least(row.prompt, 6)": ABSENT,
    "row.x-y[0]": 7,
    "row.many.*": ABSENT,
    "sum(row.many)": ABSENT,
    "number(self.training)": 1,
    "number(self.flag)": 0,
    "number(i)": 5,
    "number(row.prompt)": ABSENT,
    "seconds(i)": 0.005,
    "between(i, n)": 3,
    "sum(result.advantages)": 28.0,
    "mean(result.advantages, n)": 3.5,
    "mean(result.advantages, self.prompts)": 28.0,
    "mean(result.advantages, 0)": ABSENT,
    "sum(i)": 5,
    "sum(self.logs.a)": 3.0,
    "sum(self.logs)": ABSENT,
    "sum(result.parts)": ABSENT,
    "unknown[i]": ABSENT,
}


@pytest.mark.parametrize("text", READ)
def test_values(text: str) -> None:
    assert value_of(text).read(VALUES) == READ[text]


@pytest.mark.parametrize("text", ["row.a-b", "result.parts.-1.0", "self"])
def test_words_and_dots_are_paths(text: str) -> None:
    assert type(value_of(text)) is Path


def test_what_it_needs() -> None:
    assert value_of("choice(self.b, result.a[i], n)").root == "result"
    assert set(value_of("choice(self.b, result.a[i], n)").roots) == {"result", "i", "self", "n"}


def test_each_function_is_tried_above() -> None:
    assert {name for text in READ for name, _ in expressions.calls(expressions.parse(text))} == {*FUNCTIONS}


def test_nothing_of_the_hosts_is_computed() -> None:
    class Number:
        def __add__(self, other: Any) -> Any:
            raise AssertionError("called")

        def __bool__(self) -> bool:
            raise AssertionError("called")

        __radd__ = __floordiv__ = __index__ = __eq__ = __add__  # type: ignore[assignment]

    values = {"i": 1, "self": SimpleNamespace(number=Number(), items=[1, 2])}
    for text in (
        "group(i, self.number)",
        "number(self.number)",
        "self.items[self.number]",
        "opposite(self.number)",
        "equal(self.number, 1)",
        "choice(self.number, 1, 2)",
        "unless(self.number, 1)",
        "sum(self.number)",
    ):
        assert value_of(text).read(values) is ABSENT


def test_arrays() -> None:
    import numpy as np

    values = {"i": 1, "result": np.array([1.5, 2.5])}
    assert value_of("result[i]").read(values) == 2.5
    assert value_of("sum(result)").read(values) == 4.0


@settings(deadline=None)
@given(st.text(alphabet="in.0*[](),-/% rowequalgsmt", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        tree = expressions.parse(text)
    except expressions.ExpressionError as error:
        assert str(error)
        return
    list(expressions.roots(tree))
    if all(name in FUNCTIONS for name, _ in expressions.calls(tree)):
        value_of(text).read(VALUES)


def test_deep_nesting_is_refused() -> None:
    for text in ("sum(" * 99 + "i" + ")" * 99, "a[" * 99 + "i" + "]" * 99):
        with pytest.raises(expressions.ExpressionError, match="deeply"):
            expressions.parse(text)
