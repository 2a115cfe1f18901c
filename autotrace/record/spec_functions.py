"""Define the functions that a value of a spec may name, such as ``member(row.index, args.n_samples_per_prompt)``.

A function computes from exact builtin values and sums of arrays, so no more code of the host's runs than reading a path
runs. An absent argument makes the value absent, except in a function marked as ``takes_absent``.
"""

from __future__ import annotations

import operator
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from itertools import islice
from typing import Any

from autotrace.record import arrays
from autotrace.record.fields import ABSENT

MAX_ITEMS = 1_048_576
"""Limit the items of a list: a value of more items is absent."""
_ASKED = frozenset({bool, int, float, str, list, tuple, dict, type(None)})
"""Holds builtin types, which tell whether a value is true or empty without any code of the host's."""
_COMPARED = frozenset({bool, int, float, str, type(None)})


@dataclass(frozen=True, slots=True)
class SpecFunction:
    """Describe a function of the spec language."""

    name: str
    call: Callable[..., Any]
    takes_absent: bool
    is_optional: bool
    """Tells whether the spec allows that no value comes out."""

    def read(self, values: list[Any]) -> Any:
        """Return the value for these arguments, or ``ABSENT``. Raises for values of a wrong kind."""
        if not self.takes_absent and any(value is ABSENT for value in values):
            return ABSENT
        return self.call(*values)

    @property
    def meaning(self) -> str:
        """Return the value in words, as in ``the sum of ...``."""
        return (self.call.__doc__ or "").removeprefix("Return ").rstrip(".")

    @property
    def arguments(self) -> tuple[tuple[str, bool], ...]:
        """Return (name, whether the argument may be left out) of each argument. Several arguments have a star."""
        found = signature(self.call).parameters.values()
        return tuple((str(each).partition(":")[0], each.default is not each.empty) for each in found)

    def takes(self, count: int) -> bool:
        """Tell whether the function can be called with ``count`` arguments."""
        names = [name for name, may_be_left_out in self.arguments if not may_be_left_out]
        return count >= len(names) and (names[-1].startswith("*") or count <= len(self.arguments))


FUNCTIONS: dict[str, SpecFunction] = {}


def _named(takes_absent: bool = False, is_optional: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def added(call: Callable[..., Any]) -> Callable[..., Any]:
        name = call.__name__.rstrip("_")
        FUNCTIONS[name] = SpecFunction(name, call, takes_absent, is_optional)
        return call

    return added


def _is_true(value: Any) -> bool:
    """Tell whether ``value`` is true. An absent value is false. Raises for a value of the host's own type."""
    if value is not ABSENT and type(value) not in _ASKED:
        raise TypeError
    return value is not ABSENT and bool(value)


def _computed(compute: Callable[..., Any], *numbers: Any) -> Any:
    return compute(*numbers) if {*map(type, numbers)} <= {int, float} else ABSENT


@_named()
def sum_(values: Any) -> Any:
    """Return the sum of the numbers in a list, an array or a tensor in the CPU's memory, or a number unchanged."""
    return total(values)


@_named()
def mean(values: Any, mask: Any) -> Any:
    """Return the sum of `values` divided by the sum of `mask`."""
    return _computed(operator.truediv, total(values), total(mask))


@_named()
def group(row: Any, size: Any) -> Any:
    """Return the number of the group of row number `row`, where each `size` rows in turn are a group."""
    return _computed(operator.floordiv, row, size)


@_named()
def member(row: Any, size: Any) -> Any:
    """Return the number of row `row` within the row's group of `size` rows."""
    return _computed(operator.mod, row, size)


@_named()
def row_of_all(row: Any, rows: Any, process: Any) -> Any:
    """Return the number of row `row` among the rows of all processes, where each process has `rows` rows."""
    return _computed(lambda i, n, rank: i + n * rank, row, rows, process)


@_named()
def row_from_end(row: Any, rows: Any, process: Any = 0, processes: Any = 1) -> Any:
    """Return the number of row `row` of all rows, counted from the end: -1 is the last row of the last process."""
    return _computed(lambda i, n, rank, ranks: i - n * (ranks - rank), row, rows, process, processes)


@_named()
def number(value: Any) -> Any:
    """Return a number unchanged, 1 for true, 0 for false."""
    return int(value) if type(value) is bool else _computed(operator.pos, value)


@_named()
def seconds(milliseconds: Any) -> Any:
    """Return the same time in seconds."""
    return _computed(operator.truediv, milliseconds, 1000)


@_named()
def between(start: Any, end: Any) -> Any:
    """Return `end` less `start`."""
    return _computed(operator.sub, end, start)


@_named()
def equal(left: Any, right: Any) -> Any:
    """Return whether two numbers, texts or truth values are equal."""
    return left == right if {type(left), type(right)} <= _COMPARED else ABSENT


@_named()
def one_of(value: Any, *choices: Any) -> Any:
    """Return whether `value` equals some argument behind."""
    return value in choices if {*map(type, (value, *choices))} <= _COMPARED else ABSENT


@_named()
def at_least(value: Any, least: Any) -> Any:
    """Return whether the number `value` is `least` or more."""
    return _computed(operator.ge, value, least)


@_named()
def opposite(value: Any) -> Any:
    """Return false for a true value, true for a false or empty value."""
    return not _is_true(value)


@_named(is_optional=True)
def when(condition: Any, value: Any) -> Any:
    """Return `value` if `condition` is true and not empty, and no value otherwise."""
    return value if _is_true(condition) else ABSENT


@_named(takes_absent=True, is_optional=True)
def unless(condition: Any, value: Any) -> Any:
    """Return `value` if `condition` is false, empty or absent, and no value otherwise."""
    return ABSENT if _is_true(condition) else value


@_named(takes_absent=True)
def choice(condition: Any, value: Any, otherwise: Any) -> Any:
    """Return `value` if `condition` is true and not empty, else `otherwise`."""
    return value if _is_true(condition) else otherwise


def total(value: Any) -> Any:
    """Sum the numbers in a list, an array or a tensor in the CPU's memory; return a number unchanged."""
    kind = type(value)
    if kind in (int, float):
        return value
    if kind is list or kind is tuple or kind is deque or kind is array:
        numbers = list(islice(value, MAX_ITEMS + 1))
        is_summed = len(numbers) <= MAX_ITEMS and {*map(type, numbers)} <= {int, float, bool}
        return sum(numbers) if is_summed else ABSENT
    found = arrays.total(value, kind)
    return ABSENT if found is None else found
