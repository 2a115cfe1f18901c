"""Store a token once per trajectory: each turn repeats the whole prefix, so only new tokens are written.

A trace keeps the length and hash of each prompt and of each prompt + response, not the tokens themselves (24 bytes a
turn instead of the trajectory). Runs on the flusher's thread; the caller made the list copies.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from autotrace.config.originals import time
from autotrace.spool.records import NewTokens

_WIDTH = 4
_PIECE = 8_192
"""Counts the numbers packed in one go: about 50 us."""
MAX_CHECKPOINTS = 16
"""Limits the latest prefixes remembered per trace: enough for several agents taking turns in one trajectory."""


def packed(numbers: Sequence[int]) -> bytes:
    """Return ``numbers`` as little-endian int32. Raises ``TypeError`` or ``OverflowError`` for anything but token
    ids."""
    if len(numbers) <= _PIECE:
        return _packed(numbers)
    pieces = []
    for at in range(0, len(numbers), _PIECE):
        pieces.append(_packed(numbers[at : at + _PIECE]))
        time.sleep(0)  # array() keeps the interpreter to itself: let the host's event loop in
    return b"".join(pieces)


def _packed(numbers: Sequence[int]) -> bytes:
    try:
        ids = array("I", numbers)  # three times as fast as "i", and the same bytes up to 2**31
    except OverflowError:
        ids = array("i", numbers)
    if ids.itemsize != _WIDTH:  # pragma: no cover - on no platform of ours
        raise OverflowError("int is not 4 bytes wide here")
    return ids.tobytes()


class WrittenPrompt(msgspec.Struct, eq=False, gc=False):
    """Holds an open span's prompt as length and hash until the response arrives."""

    epoch: int
    sequence: int
    total: int
    hash: Any


class Checkpoint(msgspec.Struct, order=True, frozen=True, gc=False):
    """Holds a written list as length and digest. Thousands of checkpoints live for as long as their trajectories, so
    the garbage collector must not see a checkpoint."""

    length: int
    """Counts tokens."""
    digest: bytes
    """Holds a 16-byte hash."""
    sequence: int


class TokenLog:
    """Holds the sequences of a trace, as written by this process."""

    __slots__ = ("checkpoints", "epoch", "sequences")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.sequences = 0
        self.checkpoints: list[Checkpoint] = []
        """Lists prefixes in order of writing."""

    def forget(self, epoch: int) -> None:
        """Discard all checkpoints before ``epoch``: later records cannot refer to the earlier tokens."""
        self.epoch = epoch
        self.checkpoints.clear()

    def prompt(self, ids: Sequence[int], withheld: bool) -> tuple[NewTokens, WrittenPrompt]:
        """Return the record of a prompt: the longest prefix that was written already, and the remaining tokens."""
        data = packed(ids)
        hasher = hashlib.blake2b(digest_size=16)
        base, keep = -1, 0
        at = 0
        for checkpoint in sorted(self.checkpoints):
            if checkpoint.length > len(ids):
                break
            hasher.update(data[at : checkpoint.length * _WIDTH])
            at = checkpoint.length * _WIDTH
            if hasher.digest() == checkpoint.digest:
                base, keep = checkpoint.sequence, checkpoint.length
        hasher.update(data[at:])
        return self._written(hasher, data[keep * _WIDTH :], base, keep, len(ids), withheld)

    def response(self, prompt: WrittenPrompt | None, ids: Sequence[int], withheld: bool) -> NewTokens:
        """Return the record of a response: prompt + response; the prompt was written already."""
        data = packed(ids)
        if prompt is None:
            hasher, base, keep = hashlib.blake2b(digest_size=16), -1, 0
        else:
            hasher, base, keep = prompt.hash.copy(), prompt.sequence, prompt.total
        hasher.update(data)
        total = keep + len(ids)
        digest = hasher.digest()
        for checkpoint in self.checkpoints:
            if checkpoint.length == total and checkpoint.digest == digest:
                # The engine's span of the same call wrote the response already.
                base, keep, data = checkpoint.sequence, total, b""
        return self._written(hasher, data, base, keep, total, withheld)[0]

    def _written(
        self, hasher: Any, new: bytes, base: int, keep: int, total: int, withheld: bool
    ) -> tuple[NewTokens, WrittenPrompt]:
        digest = hasher.digest()
        if withheld:
            return NewTokens(-1, 0, b"", total, digest[:8], -1), WrittenPrompt(self.epoch, -1, total, hasher)
        sequence = self.sequences
        self.sequences += 1
        self.checkpoints.append(Checkpoint(total, digest, sequence))
        del self.checkpoints[:-MAX_CHECKPOINTS]
        return NewTokens(base, keep, new, total, digest[:8], sequence), WrittenPrompt(
            self.epoch, sequence, total, hasher
        )
