"""Copy conversations and other nested values by a single encoding in C on the caller's thread.

Exact builtin types only are encoded. For any other type the pickler asks ``reducer_override`` before a method of the
host's, and ``record.snapshot`` copies the whole value instead. The flusher's thread reads the encoding back and applies
the limits (``record.conversations``): a record does not tell which way the values came.

A part that occurs in several places is encoded each time, without the pickler's memo. A value with shared parts may be
short to remember and endless to write out, and the pickler gives up on a value that contains itself. So no decoded
value takes more than the encoding did.

The pickler hands over output 64 KB at a time, and announces a longer text before copying the text. There a value that
is too large is given up.
"""

from __future__ import annotations

import _pickle
import sys
from typing import Any

from autotrace.config.originals import time
from autotrace.record.origin import is_hosts
from autotrace.record.snapshot import LONGEST_KEY, NODE_BYTES, SHORT, Limits, flat, snapshot, walked

FEW = 4
"""Limits messages of texts and numbers only, up to which a copy costs less than an encoding. Before an encoding, a
caller that makes a call now and then has to load the pickler's code and memory into the cache."""
SEVERAL = 2
"""Limits the items from which encoding a list of lists or dicts costs less than copying."""
LOOKED_AT = 8
"""Counts the members of a dict that are asked for their size, to guess whether the dict is nested. The guess decides
nothing else."""
FEWEST = 60
"""Limits short texts (keys, too) or lists in the first 64 KB of an encoding. An encoding with fewer holds long texts,
and copies by ``snapshot`` only refer to long texts."""
MAX_PICKLED = 1 << 20
"""Limits the bytes of an encoding."""
LONGEST_NS = 300_000
"""Limits the CPU time in ns of an encoding after the first 64 KB: lists of numbers are small and many."""
WALKS = 64
"""Limits the nested values of a target that ``snapshot`` copies after a value could not be encoded: the next values are
probably similar."""
DEEPEST = 10_000
"""Limits the interpreter's recursion up to which the pickler cannot exhaust the stack of a thread (100 bytes a level;
from Python 3.12 the pickler has a limit of its own)."""
OVERHEAD = 256
"""Counts the memory of an encoding besides the bytes."""
_SHORT_TEXT, _LIST = b"\x8c", b"]("
"""Mark the beginning of texts of less than 256 bytes and of lists of several items."""
UNFRAMED = -6
"""Holds three minus nine: at most three bytes come without the nine bytes of a frame."""


class _Declined(Exception):
    """Rejects a value that is not to be encoded. Raised inside the pickler, and nowhere else."""


class Pickled:
    """Holds a value as the pickler wrote the value: nobody can change the encoding. No encoder of records knows this
    class, so the content can only be written by way of ``load``."""

    chunks: tuple[bytes, ...] = ()
    size: int = 0
    """Counts the bytes of all chunks."""
    until: int = 0
    """Holds the CPU time of the thread at which an encoding of several chunks is given up."""

    def write(self, data: bytes) -> None:
        """Take output from the pickler: a frame, or a frame followed by the length of a text of 64 KB or more, which
        would come next."""
        length = len(data)
        frame = 9 if self.chunks else 11  # after the length; the first frame after two bytes more
        if int.from_bytes(data[frame - 8 : frame], "little") != length - frame > UNFRAMED:
            raise _Declined
        self.size += length
        if self.chunks:
            if self.size > MAX_PICKLED or time.thread_time_ns() > self.until:
                raise _Declined
        elif length > 1 << 16:
            if data.count(_SHORT_TEXT) < FEWEST and data.count(_LIST) < FEWEST:
                raise _Declined
            self.until = time.thread_time_ns() + LONGEST_NS
        self.chunks = (*self.chunks, data)

    def load(self) -> Any:
        """Return the value: dicts, lists, tuples, sets, strings, bytes and numbers."""
        return _pickle.loads(self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks))


class _Pickler(_pickle.Pickler):
    __slots__ = ()

    def reducer_override(self, value: Any) -> Any:
        """Refuse every value that is not an exact builtin value, without touching the value."""
        raise _Declined


def captured(value: Any, limits: Limits) -> Any:
    """Return a bounded copy of ``value`` that is safe to use in another thread: ``Pickled`` for a nested value, or else
    the copy of ``snapshot``."""
    kind = type(value)
    if kind is not list and kind is not dict and kind is not tuple:
        if kind is str or kind is int or kind is float or kind is bool or value is None:
            return snapshot(value, limits)
        return walked(value, kind, limits)
    if len(value) <= limits.items:
        if kind is list and 0 < len(value) <= FEW and type(value[0]) is dict:
            copied = _few(value, limits)
            if copied is not None:
                return copied
        else:
            copied = flat(value, kind)
            if copied is not None:
                limits.weight += NODE_BYTES
                return copied
        if _is_nested(value, kind, limits.items):
            if limits.walks:
                limits.walks -= 1
            else:
                pickled = _pickled(value)
                if pickled is not None:
                    limits.weight += pickled.size + OVERHEAD
                    return pickled
                limits.walks = WALKS
    return walked(value, kind, limits)


_size = str.__sizeof__


def _few(value: list[Any], limits: Limits) -> Any:
    """Copy a short exact list of exact dicts (messages) that hold texts, numbers and None only. None for any other
    list, and for a text that has to be cut."""
    copied = []
    weight = NODE_BYTES
    for item in value:
        if type(item) is not dict or len(item) > limits.items or limits.depth < 2:
            return None
        item = item.copy()
        weight += NODE_BYTES
        for key, part in item.items():
            if type(key) is not str or len(key) > LONGEST_KEY:
                return None
            kind = type(part)
            if kind is str:
                if len(part) > SHORT:
                    if len(part) > limits.string:
                        return None
                    weight += _size(part)
            elif kind is not int and kind is not float and kind is not bool and part is not None:
                return None
        copied.append(item)
    limits.weight += weight
    return copied


def _is_nested(value: Any, kind: type, limit: int) -> bool:
    """Tells whether an exact dict, list or tuple seems to hold many others. A value that will be cut anyway is not
    worth an encoding."""
    if kind is dict:
        for item in [*value.values()][:LOOKED_AT]:
            kind = type(item)
            if (kind is list or kind is dict or kind is tuple) and SEVERAL <= len(item) <= limit:
                return True
        return False
    for item in value[:1]:
        kind = type(item)
        if kind is dict or kind is list or kind is tuple:
            return (len(value) >= SEVERAL or len(item) >= SEVERAL) and len(item) <= limit
    return False


def _pickled(value: Any) -> Pickled | None:
    """Encode ``value``; None if ``value`` holds a part that is not to be encoded, or is too large."""
    if sys.getrecursionlimit() > DEEPEST:
        return None
    output = Pickled()
    try:
        pickler = _Pickler(output, 4)
        pickler.fast = True
        pickler.dump(value)
    except _Declined:
        return None
    except (_pickle.PicklingError, RuntimeError, ValueError, OverflowError, MemoryError, KeyError) as error:
        # Nested too deeply or without end, changed by another thread meanwhile, or a ``PickleBuffer``. KeyError: in
        # fast mode CPython counts each frozenset as a level that never ends, and after 50 frozensets misses one.
        if is_hosts(error):
            raise
        return None
    return output
