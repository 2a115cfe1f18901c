"""Rebuild token lists from the records: each list is the beginning of an earlier list plus new tokens. Read the
trainer's value of each token from its segment.

The counterpart of ``record.tokens``. Sequences are numbered per trace and writing process, so each pair has its own
``TokenSequences``, fed in the order of writing. A list that continues an earlier list shares memory and checksum, so a
trajectory costs its tokens once, not once a turn.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotrace.ship.store.state import State
from autotrace.spool import token_facts
from autotrace.spool.reader import Budget, opened, records_at
from autotrace.spool.records import NewTokens, TokenFacts
from autotrace.tables.call_tables import TRAINED
from autotrace.trajectory.deferred import Deferred
from autotrace.trajectory.model import TOO_MANY, Allowance, Trajectory
from autotrace.trajectory.receipt import Piece, own_pieces, whole_response

_WIDTH = 4
_LOST = "token ids are missing: the turn they continue was not recorded"
_WRONG = "token ids are missing: the rebuilt list does not match its checksum"


def digest_of(ids: Sequence[int]) -> str:
    """Return the first 8 bytes of blake2b (with a digest of 16) of a token list, as 16 hex digits: late facts name a
    response by this digest."""
    numbers = ids if isinstance(ids, array) else array("i", ids)
    return hashlib.blake2b(numbers, digest_size=16).hexdigest()[:16]


def withheld(tokens: NewTokens) -> bool:
    """Return whether only the length was recorded: another span has the content, or the content was not to be
    recorded."""
    return tokens.base < 0 and not tokens.new and tokens.total > 0


def _ints(data: bytes) -> array[int]:
    """Parse little-endian int32; trailing bytes that do not fill a number are cut off."""
    over = len(data) % _WIDTH
    return array("i", data[:-over] if over else data)


@dataclass(slots=True)
class TokenList:
    """Hold a rebuilt list: the first ``length`` of ``ids``; another list may continue ``ids`` behind that length."""

    ids: array[int]
    length: int
    hash: Any
    """Hash of the whole list; a copy continues the hash."""
    span: int

    def from_(self, begin: int) -> array[int]:
        """Return the tokens after the first ``begin`` tokens."""
        return self.ids[begin : self.length]

    def first(self, count: int) -> Deferred[list[int]]:
        """Return the first ``count`` tokens, converted to a list on access."""
        ids, count = self.ids, min(count, self.length)
        return Deferred(lambda: ids[:count].tolist())


class TokenSequences:
    """Rebuild the sequences that a process wrote for a trace."""

    def __init__(self, allowance: Allowance) -> None:
        """Take the ``allowance`` of the trace."""
        self._sequences: dict[int, TokenList] = {}
        self._allowance = allowance

    def base(self, tokens: NewTokens) -> TokenList | None:
        """Return the list that ``tokens`` continues; None for a list of its own."""
        return self._sequences.get(tokens.base)

    def full(self, span: int, tokens: NewTokens) -> tuple[TokenList | None, str | None]:
        """Return the whole list (for a response: prompt and response), or None and the reason why the list cannot be
        rebuilt (no reason if the list was withheld)."""
        if withheld(tokens):
            return None, None
        new = _ints(tokens.new)
        if tokens.base < 0:
            full = TokenList(new, len(new), hashlib.blake2b(new, digest_size=16), span)
        else:
            base = self._sequences.get(tokens.base)
            if base is None or not 0 <= tokens.keep <= base.length:
                return None, _LOST
            # a part of a list, or a second continuation of a list, is copied
            if not tokens.keep == base.length == len(base.ids) and not self._allowance.take(tokens.keep):
                return None, TOO_MANY
            full = _continued(base, tokens.keep, new, span)
        if full.length != tokens.total or (tokens.digest and full.hash.digest()[:8] != tokens.digest):
            return None, _WRONG
        if tokens.sequence >= 0:
            self._sequences[tokens.sequence] = full
        return full, None


def _continued(base: TokenList, keep: int, new: array[int], span: int) -> TokenList:
    """Return the first ``keep`` of ``base`` plus ``new``: in the memory of ``base`` if nothing else continues it."""
    ids = base.ids
    # autotrace itself writes no list that keeps a part
    hasher = base.hash.copy() if keep == base.length else hashlib.blake2b(ids[:keep], digest_size=16)
    if new:
        hasher.update(new)
        if keep != len(ids):
            ids = ids[:keep]
        ids.extend(new)
    return TokenList(ids, keep + len(new), hasher, span)


def add_columns(trajectory: Trajectory, state: State, run_folder: str | Path) -> None:
    """Fill the trainer's fields of the spans; nothing if no values were recorded, or if their segment was removed.
    Raises ``OSError`` while the segment cannot be read."""
    summary = trajectory.facts.get(token_facts.TOKEN_FACTS)
    if not isinstance(summary, dict) or not summary.get("columns"):
        return
    columns = _columns(trajectory.trace_id, state, run_folder)
    whole = whole_response(trajectory.spans)
    places = own_pieces(trajectory, whole)
    owners = {span.span_id: span for span in trajectory.spans}
    if places is None:
        if whole is None:
            return
        places = {whole.span_id: Piece(0, whole.response_tokens or 0)}
    for column, values in columns.items():
        for span_id, (start, count) in places.items():
            if part := values[start : start + count]:
                setattr(owners[span_id], TRAINED[column], part)


def _columns(trace_id: str, state: State, run_folder: str | Path) -> dict[str, list[Any]]:
    """Return the values of the last output, which the agent's call shows; the latest of several reports counts."""
    row = state.db.execute(
        "SELECT segments.name AS segment, facts.offset FROM facts JOIN segments ON segments.id = facts.segment"
        " WHERE trace_id = ? AND facts.name = ? ORDER BY CAST(output AS INTEGER) DESC, at_ns DESC LIMIT 1",
        (trace_id, token_facts.TOKEN_FACTS),
    ).fetchone()
    if row is None:
        return {}
    with suppress(FileNotFoundError), opened(run_folder, row["segment"]) as fd:
        for located in records_at(fd, [row["offset"]], Budget()):
            if isinstance(located.record, TokenFacts):
                return token_facts.columns(located.record.value)
    return {}
