"""Trees that pages show, beside those that the commands print."""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs"
_LINE = re.compile(r"^(?P<before>.*?)[├└]── (?P<shown>.*)$")


def shape(printed: str) -> list[tuple[int, str]]:
    """Depth and name of each line of a tree; times, counts and ids, which differ from run to run, are left out."""
    lines = [match for line in printed.splitlines() if (match := _LINE.match(line))]
    names = [re.sub(r"^[0-9a-f]{12}$", "ID", match["shown"].split("  ")[0]) for match in lines]
    return [(len(match["before"]) // 4, name) for match, name in zip(lines, names, strict=True)]


def on_page(page: str, command: str) -> list[tuple[int, str]]:
    """The tree that ``page`` shows after ``command``."""
    text = (PAGES / page).read_text()
    assert command in text, f"docs/{page} says how to run it"
    return shape(text.split(command, 1)[1].split("```")[1])


def assert_shows(printed: str, expected: list[tuple[int, str]]) -> None:
    """``printed`` has that tree, or that part of a tree, somewhere."""
    lines = shape(printed)
    parts = (lines[start : start + len(expected)] for start in range(len(lines)))
    assert expected and any(_from_its_root(part) == _from_its_root(expected) for part in parts), printed


def _from_its_root(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(depth - lines[0][0], name) for depth, name in lines]
