"""What a spec may compute: numbers, items, choices; absent instead of an error, and nothing of the host's runs."""

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

VALUES: dict[str, Any] = {
    "i": 5, "n": 8, "row": {"prompt": [{"content": "hi"}], "a-b": 1},
    "result": SimpleNamespace(advantages=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], nothing=None, parts=([1], [2])),
    "self": SimpleNamespace(
        size=4, training=True, logs={"a": deque([1.0, 2.0]), "b": deque([3.0, 4.0])}, flag=False, prompts=[1]
    ),
}  # fmt: skip
READ: dict[str, Any] = {
    "i // self.size": 1,
    "i % self.size": 1,
    "(i + n * 2) // self.size": 5,
    "i + n*2 - 1": 20,
    "0 - i": -5,
    "(-i)": -5,
    "result.advantages[i]": 5.0,
    "result.advantages[i - n]": 5.0,
    "result.advantages[-1]": 7.0,
    "result.advantages[99]": ABSENT,
    "result.parts.1[0]": 2,
    "not self.training": False,
    "not self.missing": ABSENT,
    "self.size if self.training else n": 4,
    "self.size if self.flag else n": 8,
    "self.size if self.missing else n": 8,
    "i if self.prompts else n": 5,
    "i if self.training": 5,
    "i if not self.training": ABSENT,
    "(i if i == 5) if self.training": 5,
    "(i if i == 4) if self.training": ABSENT,
    "self.logs.*[1]": {"a": 2.0, "b": 4.0},
    "self.logs.*[-2]": {"a": 1.0, "b": 3.0},
    "row.prompt.*.content": ["hi"],
    "row.prompt.*.missing": [],
    "result.nothing.*": ABSENT,
    "i // 0": ABSENT,
    "i / n": 0.625,
    "i == 5": True,
    "true": True,
    "false if i == 5 else true": False,
    "true if self.missing": ABSENT,
    "true + 1": ABSENT,
    "i + 1 == n": False,
    "not i == n": True,
    "row.prompt.0.content == 'hi'": True,
    "i if row.prompt.0.content == 'no' else 'other one'": "other one",
    "self == self": ABSENT,
    "self.missing == 1": ABSENT,
    "i / 0": ABSENT,
    "sum(result.advantages)": 28.0,
    "sum(result.advantages) / n": 3.5,
    "sum(i)": 5,
    "sum(self.prompts) + sum": ABSENT,
    "sum(self.logs.a)": 3.0,
    "sum(self.logs)": ABSENT,
    "sum(result.parts)": ABSENT,
    "i // self.logs": ABSENT,
    "unknown[i]": ABSENT,
}


@pytest.mark.parametrize("text", READ)
def test_values(text: str) -> None:
    assert value_of(text).read(VALUES) == READ[text]


@pytest.mark.parametrize("text", ["row.a-b", "result.parts.-1.0", "self"])
def test_words_and_dots_are_paths(text: str) -> None:
    assert type(value_of(text)) is Path


def test_what_it_needs() -> None:
    assert value_of("result.a[i] if self.b else n").root == "result"
    assert set(value_of("result.a[i] if self.b else n").roots) == {"result", "i", "self", "n"}


def test_nothing_of_the_hosts_is_computed() -> None:
    class Number:
        def __add__(self, other: Any) -> Any:
            raise AssertionError("called")

        def __bool__(self) -> bool:
            raise AssertionError("called")

        __radd__ = __floordiv__ = __index__ = __add__

    values = {"i": 1, "self": SimpleNamespace(number=Number(), items=[1, 2])}
    for text in (
        "i + self.number",
        "self.number // 2",
        "self.items[self.number]",
        "not self.number",
        "1 if self.number else 2",
    ):
        assert value_of(text).read(values) is ABSENT


def test_arrays() -> None:
    import numpy as np

    values = {"i": 1, "result": np.array([1.5, 2.5])}
    assert value_of("result[i]").read(values) == 2.5
    assert value_of("sum(result)").read(values) == 4.0


@settings(deadline=None)
@given(st.text(alphabet="in.0*[]()+-/% rowifelsnt", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        tree = expressions.parse(text)
    except expressions.ExpressionError as error:
        assert str(error)
        return
    list(expressions.roots(tree))
    value_of(text).read(VALUES)


def test_deep_nesting_is_refused() -> None:
    for text in ("(" * 99 + "i" + ")" * 99, "a[" * 99 + "i" + "]" * 99, "- " * 99 + "i"):
        with pytest.raises(expressions.ExpressionError, match="deeply"):
            expressions.parse(text)
