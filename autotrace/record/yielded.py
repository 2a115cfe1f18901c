"""What a generator or a stream yielded, put together while it runs: texts joined, chunks of a chat as its message; of
anything else the last item.

Runs on the caller's thread for each item: it reads what the items store, runs none of their code, and keeps no item
but texts and numbers. Of those, most are kept by the wrapper itself (``Yielded.keeper``), because a call for each item
costs as much as all the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from autotrace.record.snapshot import FIXED, SHORT, Limits, snapshot

Keeper = tuple[int, Callable[[Any], object] | None, type | None, Callable[[Any], int] | None]
"""How a wrapper keeps items by itself: how many at most, by which method of a list of ours, of which type only, and
what tells the size of one, which is to be at most ``SHORT``."""
NO_KEEPER: Keeper = (0, None, None, None)
MAX_TOKENS = 1 << 20
MOST = 64
"""Items that a wrapper keeps before the next one comes to us."""


class Yielded(ABC):
    """What was yielded so far."""

    bound = False
    """It is what a ``with`` bound: there from its beginning, however it is left."""
    done = False
    """The items said themselves that nothing more of importance comes: whoever drops the stream now misses nothing."""
    kept = 0
    """Items that did not come to ``add``; known once ``value`` was asked for."""

    @abstractmethod
    def add(self, item: Any) -> Keeper:
        """Take an item; how the next ones may be kept."""

    @abstractmethod
    def value(self) -> Any:
        """Everything so far as plain values (dicts, lists, texts, numbers), which ``result`` paths read."""


class Texts:
    """Pieces of text, joined up to a limit."""

    __slots__ = ("_pieces", "_room", "left_out")

    def __init__(self, limit: int) -> None:
        self._pieces: list[str] = []
        self._room = limit
        self.left_out = 0

    def add(self, text: Any) -> None:
        """Take a piece; anything but an exact text is passed over."""
        if type(text) is not str or not text:
            return
        room = self._room - len(text)
        if room >= 0:
            self._room = room
            self._pieces.append(text)
            return
        self.left_out -= room  # what stands across the cut is needed to recognise a credential there
        if self._room:
            self._pieces.append(text[: self._room])
        self._room = 0

    def joined(self) -> str | None:
        """The whole; None where there was no piece."""
        if not self._pieces and not self.left_out:
            return None
        end = f"… ({self.left_out} characters more)" if self.left_out else ""
        return "".join(self._pieces) + end


def numbers(value: Any, before: list[int] | None) -> list[int] | None:
    """A list of token ids after those ``before``."""
    if type(value) is not list or len(value) + len(before or ()) > MAX_TOKENS:
        return before
    if before is None:
        return [*value]
    before += value
    return before


class Words(Yielded):
    """A stream of texts."""

    def __init__(self, limits: Limits) -> None:
        self._texts = Texts(limits.string)
        self._new: list[str] = []
        self._keeper: Keeper = (MOST, self._new.append, str, len)

    def add(self, item: Any) -> Keeper:
        """Join ``item`` to what was there."""
        self._join()
        self._texts.add(item)
        return self._keeper

    def _join(self) -> None:
        if self._new:
            self.kept += len(self._new)
            self._texts.add("".join(self._new))
            self._new.clear()

    def value(self) -> Any:
        """One text."""
        self._join()
        return self._texts.joined()


class Items(Yielded):
    """A stream of anything: its last items, copied, because the caller may change them."""

    def __init__(self, count: int, limits: Limits) -> None:
        self._limits = Limits(limits.depth, limits.items, limits.string)
        self._last: deque[Any] = deque(maxlen=count)
        self._new: list[Any] = []
        """What the wrapper kept."""

    def add(self, item: Any) -> Keeper:
        """Keep a copy of ``item``, and let go of the oldest one; of what cannot change, no copy is needed."""
        if self._new:
            self._fold()
        kind = type(item)
        if kind is str:
            self._last.append(item if len(item) <= SHORT else snapshot(item, self._limits))
            return MOST, self._new.append, kind, len
        if id(kind) in FIXED:
            self._last.append(item)
            return MOST, self._new.append, kind, bool
        self._last.append(snapshot(item, self._limits))
        return NO_KEEPER

    def _fold(self) -> None:
        self.kept += len(self._new)
        self._last.extend(self._new)
        self._new.clear()

    def value(self) -> Any:
        """The copies, the last one last."""
        self._fold()
        return [*self._last]


class Last(Items):
    """A stream of anything, of which the last item is kept alone."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(1, limits)

    def value(self) -> Any:
        """The copy of the last item."""
        self._fold()
        return self._last[-1] if self._last else None
