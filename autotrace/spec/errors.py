"""Mistakes in spec files, described for the person who wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake: where it is, what it is, what to write instead."""

    file: str
    """As the user gave it, or ``patch_specs/NAME`` for a shipped list."""
    line: int
    """1-based; 0: the file as a whole."""
    column: int
    """1-based."""
    text: str

    def __str__(self) -> str:
        position = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{position}: {self.text}"


class SpecError(Exception):
    """Spec files with mistakes: all of them, of all files, one line each. Nothing of them is in effect."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
