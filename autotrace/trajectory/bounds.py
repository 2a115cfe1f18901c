"""A trajectory costs memory and time in proportion to its records, whoever wrote them: how much its prompts may repeat,
how deep its calls may stand within calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotrace.trajectory.model import Span

DEEPEST = 100
"""Calls within calls; programs stay far below it, and all that is made of a trajectory walks up and down its tree."""
REPEATED = 32 << 20
"""Tokens of whole prompts over all turns: a thousand turns that read 32,000 each."""
TOO_MANY = "some prompts have only the tokens that are new in them: whole, they would be too many"


class Allowance:
    """How much more of one trajectory may be repeated."""

    def __init__(self, left: int = REPEATED) -> None:
        self._left = left

    def take(self, count: int) -> bool:
        """Whether ``count`` more may be; then they count."""
        if count > self._left:
            return False
        self._left -= count
        return True


def flattened(spans: Sequence[Span]) -> int:
    """See that no call of ``spans`` (the root is the first) stands deeper than ``DEEPEST``, in a circle, or below one
    that is not there; those that did hang from the call at that depth, or from the root. How many were too deep."""
    parents = {span.span_id: span for span in spans}
    depths: dict[str, int] = {spans[0].span_id: 0} if spans else {}
    moved = 0
    for first in spans:
        path: list[Span] = []
        span: Span | None = first
        on_path = set()
        while span is not None and span.span_id not in depths and span.span_id not in on_path:
            path.append(span)
            on_path.add(span.span_id)
            span = parents.get(span.parent_id or "")
        for below in reversed(path):
            above = parents.get(below.parent_id or "")
            if above is None or above.span_id not in depths:
                above = spans[0]
                below.parent_id = above.span_id if below.parent_id is not None else None
            elif depths[above.span_id] >= DEEPEST:
                below.parent_id = above.parent_id
                moved += 1
            depths[below.span_id] = min(DEEPEST, depths[above.span_id] + 1)
    return moved
