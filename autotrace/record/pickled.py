"""Copies of conversations and other nested values: one encoding in C, made on the caller's thread.

Exact builtin types only are encoded. For anything else the pickler asks ``reducer_override`` before it looks for a
method of the host's, and the whole value is copied by ``record.snapshot`` instead. The flusher's thread reads the
encoding back and applies the limits (``record.conversations``): a record does not tell which way its values came.

What stands in several places is encoded each time, without the pickler's memo: a value whose parts are shared may be
short to remember and endless to write out, and where it comes to itself the pickler gives up. So nothing that is read
back takes more than its encoding did.

The pickler hands over its output 64 KB at a time, and announces a longer text before it copies it. That is where a
value that is too large is given up.
"""

from __future__ import annotations

import _pickle
import sys
from typing import Any

from autotrace.config.originals import time
from autotrace.record.origin import is_hosts
from autotrace.record.snapshot import LONGEST_KEY, NODE_BYTES, SHORT, Limits, flat, snapshot, walked

FEW = 4
"""Messages that hold texts and numbers only, up to which a copy costs less than an encoding, before which a caller that
makes one call now and then has to load the pickler's code and memory into the cache."""
SEVERAL = 2
"""Items from which encoding a list of lists or dicts costs less than copying it."""
LOOKED_AT = 8
"""Members of a dict that are asked for their size, to guess whether it is nested. A guess: it decides nothing else."""
FEWEST = 60
"""Short texts (keys, too) or lists in the first 64 KB of an encoding: fewer are long texts, and copies of the other
kind only refer to those."""
MAX_PICKLED = 1 << 20
"""Bytes of the longest encoding."""
LONGEST_NS = 300_000
"""CPU time after the first 64 KB that an encoding may take: lists of numbers are small and many."""
WALKS = 64
"""How many of a target's nested values are copied the other way after one could not be encoded: the next ones are
probably like it."""
DEEPEST = 10_000
"""Limit of the interpreter's recursion up to which the pickler cannot exhaust the stack of a thread (100 bytes a level;
from Python 3.12 that has a limit of its own)."""
OVERHEAD = 256
"""Memory of an encoding besides its bytes."""
_SHORT_TEXT, _LIST = b"\x8c", b"]("
"""How texts of less than 256 bytes and lists of several items begin."""
UNFRAMED = -6
"""At most three bytes come without the nine of a frame."""


class _Declined(Exception):
    """The value is not to be encoded. Raised inside the pickler, by nobody else."""


class Pickled:
    """A value as the pickler wrote it: nobody can change it. No encoder of records knows this class, so what is in it
    can only be written by way of ``load``."""

    chunks: tuple[bytes, ...] = ()
    size: int = 0
    """Bytes of all chunks."""
    until: int = 0
    """CPU time of the thread at which an encoding of several chunks is given up."""

    def write(self, data: bytes) -> None:
        """What the pickler calls: with a frame, or with one and behind it the length of a text of 64 KB or more, which
        would come next."""
        length = len(data)
        frame = 9 if self.chunks else 11  # behind its length, and the first behind two bytes more
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
        """The value: dicts, lists, tuples, sets, strings, bytes and numbers."""
        return _pickle.loads(self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks))


class _Pickler(_pickle.Pickler):
    __slots__ = ()

    def reducer_override(self, value: Any) -> Any:
        """Asked about everything that is no exact builtin value, which is not touched."""
        raise _Declined


def captured(value: Any, limits: Limits) -> Any:
    """A copy of ``value`` that is bounded and safe to use in another thread: ``Pickled`` where it is nested, or what
    ``snapshot`` makes of it."""
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
    """A copy of a short exact list of exact dicts (messages) that hold texts, numbers and None only, none of them to be
    cut; else None."""
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
    """Whether an exact dict, list or tuple looks as if it held many others. What will be cut anyway is not worth it."""
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
    """``value`` encoded; None if it holds what is not to be encoded, or is too large."""
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
        # nested too deeply or without end, changed by another thread meanwhile, a ``PickleBuffer``. KeyError: in its
        # fast mode CPython counts each frozenset as a level that never ends, and after 50 of them misses one
        if is_hosts(error):
            raise
        return None
    return output
