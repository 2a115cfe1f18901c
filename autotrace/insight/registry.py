"""List all findings and their detectors: the families here, and the detectors of other packages.

A detector of another package is a function behind an entry point of the group ``autotrace.findings``. The function has
an attribute ``codes`` (a tuple of ``Code``), takes a ``Trajectory`` and yields ``Mark``s with the codes. See
``docs/findings.md``.
"""

from __future__ import annotations

import difflib
import functools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, TypeVar

from autotrace.insight.evidence import Evidence
from autotrace.insight.finding import Code
from autotrace.insight.profile import VERSION, Mark
from autotrace.insight.step_records import Group, History, Hit, Step
from autotrace.trajectory.model import Trajectory

Found = TypeVar("Found")
_log = logging.getLogger("autotrace")
GROUP = "autotrace.findings"
"""Name the group of entry points of other packages."""
_NAMES = ("tokens", "responses", "chains", "signal", "rewards", "ending", "engine", "mismatch", "tools", "proofs",
          "time", "trainer", "scalars", "text")  # fmt: skip
FAMILIES: tuple[ModuleType, ...] = tuple(import_module(f"autotrace.insight.families.{name}") for name in _NAMES)
OfTrajectory = Callable[[Evidence], Iterable[Mark]]
OfGroup = Callable[[Group, Step], Iterable[Hit]]
OfStep = Callable[[Step, History], Iterable[Hit]]
Own = Callable[[Trajectory], Iterable[Mark]]


@dataclass(frozen=True)
class OwnDetector:
    """Hold a detector of another package."""

    name: str
    find: Own | None
    codes: tuple[Code, ...]
    problem: str = ""
    """Store why the detector cannot be used."""


@functools.cache
def codes() -> dict[str, Code]:
    """Return every code, in the order of the families."""
    known: dict[str, Code] = {}
    for family in FAMILIES:
        name = family.__name__.rpartition(".")[2]
        known |= {code.code: replace(code, family=name) for code in family.CODES}
    for detector in own():
        for code in detector.codes:
            known.setdefault(code.code, code)
    return known


def chosen(given: Iterable[str]) -> tuple[str, ...]:
    """Check the codes that a person wrote. Raises ``ValueError`` with a sentence."""
    for word in given:
        if word.upper() not in codes():
            near = difflib.get_close_matches(word.upper(), codes(), 1, 0.3)
            hint = f"did you mean {near[0]}?" if near else "autotrace help findings lists them"
            raise ValueError(f"there is no finding {word!r}; {hint}")
    return tuple(word.upper() for word in given)


def _detectors(kind: str) -> tuple[Callable[..., Any], ...]:
    return tuple(detector for family in FAMILIES for detector in getattr(family, kind, ()))


OF_TRAJECTORY: tuple[OfTrajectory, ...] = _detectors("OF_TRAJECTORY")
OF_GROUP: tuple[OfGroup, ...] = _detectors("OF_GROUP")
OF_STEP: tuple[OfStep, ...] = _detectors("OF_STEP")
"""List the detectors of a step; the two lists above, of a trajectory and of a group."""


@functools.cache
def own() -> tuple[OwnDetector, ...]:
    """Load the detectors of other packages, by name."""
    made = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            find = point.load()
            made.append(OwnDetector(point.name, find, _declared(find.codes)))
        except Exception as error:  # another package's import
            made.append(OwnDetector(point.name, None, (), f"{type(error).__name__}: {error}"))
    return tuple(made)


def _declared(given: Iterable[Any]) -> tuple[Code, ...]:
    """Check the codes of another package's detector. Raises ``TypeError``."""
    declared = tuple(given)
    for code in declared:
        if not isinstance(code, Code):
            raise TypeError(f"its codes hold {type(code).__name__}, not autotrace.insight.finding.Code")
    return declared


def tried(detector: Callable[..., Iterable[Found]], *given: Any) -> list[Found]:
    """Return the findings of ``detector`` until the detector raises; the error is logged once."""
    found: list[Found] = []
    try:
        found += detector(*given)
    except Exception as error:  # recorded values may have any shape
        failed(f"{detector.__module__}.{detector.__name__}", error)
    return found


_failed: set[str] = set()


def failed(name: str, error: Exception) -> None:
    """Log once that ``name`` raised."""
    if name not in _failed:
        _failed.add(name)
        _log.warning("the detector %s failed: %s: %s", name, type(error).__name__, error)


@functools.cache
def stamp() -> str:
    """Name the detectors that examine a trajectory in this installation: a profile with another stamp is made again."""
    return "+".join([str(VERSION), *(detector.name for detector in own() if detector.find is not None)])


def by_weight(marks: Iterable[Mark]) -> list[Mark]:
    """Sort marks by cost, the most costly first; marks of a detector that is not installed here come last."""
    known = codes()
    return sorted(marks, key=lambda mark: -known[mark.code].weight if mark.code in known else 0.0)
