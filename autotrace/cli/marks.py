"""What findings say about one trajectory, at the turns where it is."""

from __future__ import annotations

from rich.text import Text

from autotrace.cli.terminal import line, one_line
from autotrace.insight import registry
from autotrace.insight.profile import Mark, decode
from autotrace.trajectory.model import Trajectory

AROUND = 60
"""Characters shown of each of two texts where they part."""
_FORKS = ("AT-RETOKENIZED", "AT-THINKING-STRIPPED")


def of_turns(trajectory: Trajectory) -> dict[int | None, list[Text]]:
    """Turn (None: the whole trajectory) -> lines."""
    profile = decode(trajectory.profile)
    lines: dict[int | None, list[Text]] = {}
    for mark in (*profile.marks, *profile.found) if profile is not None else ():
        turn = mark.turn if mark.turn is not None and mark.turn <= trajectory.turns else None
        lines.setdefault(turn, []).extend(_lines(trajectory, mark))
    return lines


def _lines(trajectory: Trajectory, mark: Mark) -> list[Text]:
    code = registry.codes().get(mark.code)
    at = "" if mark.token is None else f", token {mark.token:,}"
    words = f"{code.title if code else ''}{at}{': ' if mark.note else ''}{mark.note}"
    lines = [line(f"! {mark.code}  ", "bold red") + line(words, "red")]
    if mark.code in _FORKS and mark.turn is not None and (sides := _parted(trajectory, mark.turn)):
        lines += [
            line(f"  {name} ", "dim") + Text(one_line(side)) for name, side in zip(("was", "is "), sides, strict=True)
        ]
    return lines


def _parted(trajectory: Trajectory, turn: int) -> tuple[str, str] | None:
    """The texts from where the prompt of a turn leaves what was there before; None: there are no texts."""
    before, after = trajectory.llm_spans[turn - 2 : turn]
    if not before.prompt_text or before.response_text is None or not after.prompt_text:
        return None
    was, now = before.prompt_text + before.response_text, after.prompt_text
    at = next(
        (n for n, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), min(len(was), len(now))
    )
    return was[at : at + AROUND], now[at : at + AROUND]
