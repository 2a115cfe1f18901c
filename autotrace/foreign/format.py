"""What a format is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autotrace.foreign.containers import Row
from autotrace.trajectory.jsonable import integer
from autotrace.trajectory.model import Trajectory


@dataclass(frozen=True)
class Format:
    """The rollouts of one project."""

    name: str
    """In commands, and of the trajectory's own call."""
    title: str
    """What people are told that was recognised."""
    suffixes: tuple[str, ...]
    """Ends of its files' names."""
    needs: tuple[frozenset[str], ...]
    """One of these is among the names by which a file is recognised (``containers.names``)."""
    read: Callable[[Row, str], Iterator[Trajectory]]
    """The rollouts in a row, without ids; its second argument is the path of the file, which may say the step. A
    row of something else has none."""


def names(*words: str) -> tuple[frozenset[str], ...]:
    """For ``Format.needs``: each text has names with blanks between."""
    return tuple(frozenset(word.split()) for word in words)


_STEP = re.compile(r"step_(\d{1,12})(?:/|\Z)")
_VALIDATION = re.compile(r"(?:\A|[/_.-])(?:val|valid|validation|eval|test)(?=[/_.-]|\Z)")


def step_of(path: str) -> int | None:
    """The step that a folder is named after: ``step_12``."""
    found = _STEP.findall(path)
    return integer(found[-1]) if found else None


def validates(path: str) -> bool | None:
    """True where a folder or the file says so by its name, as people call what the trainer does not learn from."""
    return True if _VALIDATION.search(path) else None
