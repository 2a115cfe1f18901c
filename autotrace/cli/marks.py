"""What findings say about one trajectory, at the turns where it is."""

from __future__ import annotations

from rich.text import Text

from autotrace.cli.terminal import line, one_line
from autotrace.insight.profile import Mark
from autotrace.insight.words import of_turns as said_of_turns
from autotrace.trajectory.divergence import shared
from autotrace.trajectory.model import Trajectory

AROUND = 60
"""Characters shown of each of two texts where they part."""
FEW_IDS = 12
_FORKS = ("AT-RETOKENIZED", "AT-THINKING-STRIPPED")


def of_turns(trajectory: Trajectory) -> dict[int | None, list[Text]]:
    """Turn (None: the whole trajectory) -> lines."""
    lines: dict[int | None, list[Text]] = {}
    for turn, mark, words in said_of_turns(trajectory):
        lines.setdefault(turn, []).extend(_lines(trajectory, mark, words))
    return lines


def _lines(trajectory: Trajectory, mark: Mark, words: str) -> list[Text]:
    lines = [line(f"! {mark.code}  ", "bold red") + line(words, "red")]
    if mark.code in _FORKS and mark.turn is not None and (sides := _parted(trajectory, mark.turn)):
        lines += [
            line(f"  {name} ", "dim") + Text(one_line(side)) for name, side in zip(("was", "is "), sides, strict=True)
        ]
    return lines


def _parted(trajectory: Trajectory, turn: int) -> tuple[str, str] | None:
    """What stands from where the prompt of a turn leaves what was there before: texts, else token ids; None: neither
    is known."""
    before, after = trajectory.llm_spans[turn - 2 : turn]
    if before.prompt_text and before.response_text is not None and after.prompt_text:
        was, now = before.prompt_text + before.response_text, after.prompt_text
        at = shared(was, now)
        return was[at : at + AROUND], now[at : at + AROUND]
    if before.prompt_ids is None or before.response_ids is None or after.prompt_ids is None:
        return None
    had, has = before.prompt_ids + before.response_ids, after.prompt_ids
    at = shared(had, has)
    one, other = (" ".join(map(str, ids[at : at + FEW_IDS])) for ids in (had, has))
    return one, other
