"""What a generator or a stream yielded, put together while it runs: texts joined, chunks of a chat as its message; of
anything else the last item.

Runs on the caller's thread for each item: it reads what the items store, runs none of their code, and keeps no item.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from autotrace.record.snapshot import FIXED, SHORT, Limits, snapshot


class Yielded(Protocol):
    """What was yielded so far."""

    done: bool
    """The items said themselves that nothing more of importance comes: whoever drops the stream now misses nothing."""

    def add(self, item: Any) -> None:
        """Take the next item."""
        ...

    def value(self) -> Any:
        """Everything so far as plain values (dicts, lists, texts, numbers), which ``result`` paths read."""
        ...


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
        room = self._room
        self._room = max(0, room - len(text))
        if room < len(text):  # what stands across the cut is needed to recognise a credential there
            self.left_out += len(text) - room
            text = text[:room]
        if text:
            self._pieces.append(text)

    def joined(self) -> str | None:
        """The whole; None where there was no piece."""
        if not self._pieces and not self.left_out:
            return None
        end = f"… ({self.left_out} characters more)" if self.left_out else ""
        return "".join(self._pieces) + end


class Words:
    """A stream of texts."""

    __slots__ = ("_texts", "done")

    def __init__(self, limits: Limits) -> None:
        self.done = False
        self._texts = Texts(limits.string)

    def add(self, item: Any) -> None:
        """Join ``item`` to what was there."""
        self._texts.add(item)

    def value(self) -> Any:
        """One text."""
        return self._texts.joined()


class Items:
    """A stream of anything: its last items, copied, because the caller may change them."""

    __slots__ = ("_kept", "_limits", "done")

    def __init__(self, count: int, limits: Limits) -> None:
        self.done = False
        self._limits = Limits(limits.depth, limits.items, limits.string)
        self._kept: deque[Any] = deque(maxlen=count)

    def add(self, item: Any) -> None:
        """Keep a copy of ``item``, and let go of the oldest one."""
        kind = type(item)
        short = id(kind) in FIXED or (kind is str and len(item) <= SHORT)
        self._kept.append(item if short else snapshot(item, self._limits))

    def value(self) -> Any:
        """The copies, the last one last."""
        return [*self._kept]


class Last(Items):
    """A stream of anything, of which the last item is kept alone."""

    __slots__ = ()

    def __init__(self, limits: Limits) -> None:
        super().__init__(1, limits)

    def value(self) -> Any:
        """The copy of the last item."""
        return self._kept[-1] if self._kept else None
