"""Collect the yielded values of a generator or a stream while the generator runs: texts joined, chunks of a chat as a
message, and the last item of anything else.

Runs on the caller's thread for each item: reads the stored fields of an item, runs none of the item's code, and keeps
no item except texts and numbers. The wrapper itself keeps most texts and numbers (``Yielded.keeper``), because a call
for each item costs as much as all the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from autotrace.record.snapshot import FIXED, SHORT, Limits, snapshot

Keeper = tuple[int, Callable[[Any], object] | None, type | None, Callable[[Any], int] | None]
"""Tells a wrapper how to keep items: (the maximum number, the method of a list of ours, the only type, the function
that measures an item). The measure is at most ``SHORT``."""
NO_KEEPER: Keeper = (0, None, None, None)
MAX_TOKENS = 1 << 20
MOST = 64
"""Limits the items that a wrapper keeps before the next item comes to ``add``."""


class Yielded(ABC):
    """Holds the yielded values so far."""

    bound = False
    """Tells whether this is the value that a ``with`` bound: present from the beginning, however the ``with`` is
    left."""
    done = False
    """Tells whether the items announced that nothing more of importance comes: dropping the stream now
    loses nothing."""
    kept = 0
    """Counts the items that did not come to ``add``; known after ``value`` was called."""

    @abstractmethod
    def add(self, item: Any) -> Keeper:
        """Take an item; return how the next items may be kept."""

    @abstractmethod
    def value(self) -> Any:
        """Return everything so far as plain values (dicts, lists, texts, numbers), which ``result`` paths read."""


class Texts:
    """Joins pieces of text up to a limit."""

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
        self.left_out -= room  # the text across the cut is needed to recognise a credential
        if self._room:
            self._pieces.append(text[: self._room])
        self._room = 0

    def joined(self) -> str | None:
        """Return the whole text; None without any piece."""
        if not self._pieces and not self.left_out:
            return None
        end = f"… ({self.left_out} characters more)" if self.left_out else ""
        return "".join(self._pieces) + end


def numbers(value: Any, before: list[int] | None) -> list[int] | None:
    """Append a list of token ids to the ids ``before``."""
    if type(value) is not list or len(value) + len(before or ()) > MAX_TOKENS:
        return before
    if before is None:
        return [*value]
    before += value
    return before


class Words(Yielded):
    """Joins a stream of texts."""

    def __init__(self, limits: Limits) -> None:
        self._texts = Texts(limits.string)
        self._new: list[str] = []
        self._keeper: Keeper = (MOST, self._new.append, str, len)

    def add(self, item: Any) -> Keeper:
        """Append ``item`` to the text so far."""
        self._join()
        self._texts.add(item)
        return self._keeper

    def _join(self) -> None:
        if self._new:
            self.kept += len(self._new)
            self._texts.add("".join(self._new))
            self._new.clear()

    def value(self) -> Any:
        """Return the joined text."""
        self._join()
        return self._texts.joined()


class Items(Yielded):
    """Keeps the last items of any stream as copies, because the caller may change an item."""

    def __init__(self, count: int, limits: Limits) -> None:
        self._limits = Limits(limits.depth, limits.items, limits.string)
        self._last: deque[Any] = deque(maxlen=count)
        self._new: list[Any] = []
        """Holds the items that the wrapper kept."""

    def add(self, item: Any) -> Keeper:
        """Keep a copy of ``item``, and drop the oldest item; an item that cannot change needs no copy."""
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
        """Return the copies, the last item last."""
        self._fold()
        return [*self._last]


class Last(Items):
    """Keeps the last item of any stream."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(1, limits)

    def value(self) -> Any:
        """Return the copy of the last item."""
        self._fold()
        return self._last[-1] if self._last else None
