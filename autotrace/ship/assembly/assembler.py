"""Assemble records to a trajectory: join spans over processes, align clocks, rebuild token lists, close dead calls.

Processes of a machine share the monotonic clock, so a single anchor per boot puts all processes on the wall clock: a
wall clock that steps in the middle of a run moves nothing against anything, and durations are exact.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from autotrace.ship.assembly.llm_calls import join_passed_on, read_llm_calls
from autotrace.ship.assembly.message_parts import NOTE, read_tool_results, with_told_tools
from autotrace.ship.assembly.recent import Assembled
from autotrace.ship.assembly.token_sequences import TokenList, TokenSequences, digest_of
from autotrace.spool.records import CONVERSATION, MEASURED, ON_PURPOSE, Close, Header, NewTokens, Open
from autotrace.trajectory.deferred import Deferred, Packed
from autotrace.trajectory.jsonable import jsonable, text
from autotrace.trajectory.jsonable import number as number_of
from autotrace.trajectory.model import (
    DEEPEST,
    ENDED_BY_PROGRAM,
    INTERRUPTED,
    OPEN,
    TOO_MANY,
    Allowance,
    Span,
    ancestors,
    flattened,
    with_names,
)
from autotrace.trajectory.tool_calls import entitle

_log = logging.getLogger("autotrace.ship")
_STATUSES = frozenset({"OK", "ERROR", "CANCELLED", "TIMEOUT", "INTERRUPTED"})


class Callee(NamedTuple):
    """Describe the called function in readable form."""

    key: str
    name: str
    role: str


_UNKNOWN = Callee("", "?", "span")


class Origin:
    """Describe the segment that a record comes from."""

    def __init__(self, process: str, header: Header, targets: Callable[[], dict[int, Callee]], shift: int) -> None:
        self.process = process
        self.host, self.pid = text(header.host), header.pid
        self.shift = shift
        """Nanoseconds to add to this segment's times to get wall-clock time."""
        self._read = targets
        self._targets: dict[int, Callee] = {}

    def target(self, number: int) -> Callee:
        """Return the target of a number; a growing segment names more targets."""
        target = self._targets.get(number)
        if target is None:
            self._targets = self._read()
            target = self._targets.get(number, _UNKNOWN)
        return target


_64_BITS = (1 << 64) - 1


def span_id(number: int) -> str:
    """Return a span's id as sinks show the id."""
    return (number & _64_BITS).to_bytes(8, "big").hex()


class Assembly:
    """Assemble a trace: add the records in the order in which each process wrote its records, then ``finish``."""

    def __init__(self, before: Iterable[Span] = ()) -> None:
        """Take ``before``: complete calls from records that are gone."""
        self._spans: dict[int, Span] = {int(span.span_id, 16): span for span in before}
        self._known = len(self._spans)
        self._processes: dict[int, str] = {}
        """Span number -> process that wrote the span."""
        self._roots = [span.span_id for span in before if span.parent_id is None]
        self._sequences: dict[tuple[str, bytes], TokenSequences] = {}
        self._allowance = Allowance()
        self._last: dict[str, int] = {}
        self._notes: dict[str, None] = {}
        self._digests: set[str] = set()
        self._whole = (0, "")
        """Length and digest of the longest conversation, as in ``digest_of``."""
        self._lasting = True
        self._ids = 0
        """Number of token ids in the spans."""

    @property
    def grew(self) -> bool:
        """Return whether calls were added."""
        return len(self._spans) > self._known

    def lost(self, segment: str) -> None:
        """Record that a segment with records of the trace is gone."""
        self._note(f"the segment {segment} cannot be read any more")
        self._lasting = False

    def add(self, origin: Origin, record: Open | Close) -> None:
        """Take a record."""
        at = record.at + origin.shift
        if at > self._last.get(origin.process, -1):
            self._last[origin.process] = at
        if isinstance(record, Open):
            self._open(origin, record, at)
        else:
            self._close(origin, record, at)

    def _open(self, origin: Origin, record: Open, at: int) -> None:
        spans, number = self._spans, record.span
        if number in spans:
            return
        key, name, role = origin.target(record.target)
        above = record.parent
        parent_id = (spans[above].span_id if above in spans else span_id(above)) if above else None
        span = spans[number] = Span.begun(
            span_id(number), parent_id, name, role, key, at,
            _mapping(record.inputs), _mapping(record.attributes), origin.host, origin.pid,
        )  # fmt: skip
        self._processes[number] = origin.process
        if not above:
            self._roots.append(span.span_id)
        if record.prompt is not None:
            self._prompt(origin, record, record.prompt, span)

    def _prompt(self, origin: Origin, record: Open, prompt: NewTokens, span: Span) -> None:
        sequences = self._tokens(origin, record)
        span.prompt_tokens = prompt.total
        full, problem = sequences.full(record.span, prompt)
        if full is None:
            self._note(problem)
            return
        base = sequences.base(prompt)
        span.prompt_ids = self._first(full, full.length)
        if base is not None:
            span.prompt_base, span.prompt_keep = span_id(base.span), prompt.keep
        new = full.from_(span.prompt_keep)
        span.new_prompt_ids = Packed("i", new.tobytes())
        self._ids += len(new)

    def _close(self, origin: Origin, record: Close, at: int) -> None:
        span = self._spans.get(record.span)
        if span is None:
            self._note("the beginning of a call was not recorded, only its end")
            return
        if span.end_ns is not None:
            return
        span.end_ns = at if at > span.start_ns else span.start_ns
        span.status = record.status if record.status in _STATUSES else "ERROR"
        if record.output is not None:
            span.output = jsonable(record.output)
        if record.attributes:
            span.attributes.update(_mapping(record.attributes))
        if record.error is not None:
            span.error = (text(record.error[0]), text(record.error[1]), text(record.error[2]))
        for name in MEASURED:
            setattr(span, name, getattr(record, name))
        if record.first_item_at:
            span.first_item_ns = record.first_item_at + origin.shift
        if record.response is not None:
            self._response(origin, record, record.response, span)
        if record.logprobs is not None:
            span.logprobs = Packed("f", record.logprobs)
        if record.mask is not None:
            span.response_mask = list(record.mask)

    def _response(self, origin: Origin, record: Close, response: NewTokens, span: Span) -> None:
        before = span.prompt_tokens or record.skip
        full, problem = self._tokens(origin, record).full(record.span, response)
        self._note(problem)
        if record.skip and span.prompt_tokens is None and span.role in ("llm", "engine"):
            # an engine that was given text: the prompt tokens are known only once the request is over
            span.prompt_tokens = record.skip
            if full is not None:
                span.prompt_ids = self._first(full, record.skip)
                span.new_prompt_ids = span.prompt_ids
        span.response_tokens = max(0, response.total - before)
        if full is not None and self._allowed(full.length - before - len(response.new) // 4):
            ids = full.from_(before)
            span.response_ids = Packed("i", ids.tobytes())
            self._ids += 2 * len(ids)
            if ids:
                self._digests.add(digest_of(ids))
        if response.digest:
            self._whole = max(self._whole, (response.total, response.digest.hex()))

    def _first(self, full: TokenList, count: int) -> Deferred[list[int]] | None:
        return full.first(count) if self._allowed(count) else None

    def _allowed(self, repeated: int) -> bool:
        allowed = repeated <= 0 or self._allowance.take(repeated)
        if not allowed:
            self._note(TOO_MANY)
        return allowed

    def _tokens(self, origin: Origin, record: Open | Close) -> TokenSequences:
        key = (origin.process, record.trace)
        sequences = self._sequences.get(key)
        if sequences is None:
            sequences = self._sequences[key] = TokenSequences(self._allowance)
        return sequences

    def _note(self, problem: str | None) -> None:
        if problem:
            self._notes[problem] = None

    def finish(self, ended: Callable[[str], tuple[int, str] | None], final: bool) -> Assembled | None:
        """Return the assembled trace; None when no span was recorded.

        ``ended(process)`` is the wall-clock time of the last record of an ended process, and how the process ended,
        else None: open spans of an ended process are INTERRUPTED. ``final``: the trace waits no longer, so open spans
        of living processes are INTERRUPTED, too.
        """
        if not self._spans:
            return None
        interrupted = set()
        self._end_conversations(ended)
        for number, span in self._spans.items():
            if span.end_ns is not None:
                continue
            self._lasting = False
            process = self._processes[number]
            last, how = ended(process) or (None, "")
            if last is None and final:
                last = self._last[process]
                self._note("delivered while a call was still running in a living process")
            if last is not None:
                span.status, span.end_ns = INTERRUPTED, max(last, span.start_ns)
                if how in ON_PURPOSE:
                    span.attributes["outcome"] = ENDED_BY_PROGRAM
                interrupted.add(span.span_id)
        spans = join_passed_on(self._tree(list(self._spans.values())))
        for span in spans:
            if span.parent_id is None or span.role == "trajectory":
                with_names(span.attributes)
        _name_calls(spans)
        _cover_children(spans, interrupted)
        spans = self._as_said(spans)
        digests = sorted({*self._digests, self._whole[1]} - {""})
        return Assembled(spans, list(self._notes), list(self._last), digests, self._lasting, self._ids)

    def _as_said(self, spans: list[Span]) -> list[Span]:
        """Fill texts and titles from the contents, which may have any form: a fault costs only the texts of this
        trajectory."""
        try:
            read_llm_calls(spans)
            if spans[0].key == CONVERSATION:
                spans = with_told_tools(spans)
                self._note(NOTE)
            read_tool_results(spans)
            entitle(spans)
        except Exception as error:
            _log.warning("the contents of a trajectory could not be read: %s", type(error).__name__)
            self._note("its contents could not be read whole; please report it")
        return spans

    def _end_conversations(self, ended: Callable[[str], tuple[int, str] | None]) -> None:
        """End roots made from a conversation with the last call, also if the process was killed before the process
        reported the end."""
        for number, root in self._spans.items():
            if root.key != CONVERSATION or (root.end_ns is None and ended(self._processes[number]) is None):
                continue
            calls = [span for span in self._spans.values() if span is not root]
            if calls and all(span.end_ns is not None for span in calls):
                last = max(calls, key=lambda span: span.end_ns or 0)
                root.end_ns = max(root.end_ns or 0, last.end_ns or 0)
                root.status = last.status if root.status == OPEN else root.status

    def _tree(self, spans: list[Span]) -> list[Span]:
        """Sort the root first, other spans by start; a span without its parent hangs from the root."""
        spans.sort(key=lambda span: (span.start_ns, span.span_id))
        first = min((span.start_ns for span in spans if "lasted_s" not in span.attributes), default=0)
        for span in spans:
            lasted = number_of(span.attributes.get("lasted_s")) or 0.0
            if span.end_ns is not None and lasted > 0:  # the record reports a past call
                span.start_ns = max(first, span.end_ns - int(min(lasted, 1e9) * 1e9))
        spans.sort(key=lambda span: span.start_ns)
        recorded = {span.span_id for span in spans}
        root = next((span for span in spans if span.span_id in self._roots), None)
        if root is None:
            self._note("the trajectory's own call was not recorded; its first recorded part stands in for it")
            root = next((span for span in spans if span.parent_id not in recorded), spans[0])
        spans.remove(root)
        root.parent_id = None
        orphans = 0
        for span in spans:
            if span.parent_id not in recorded or span.parent_id == span.span_id:
                span.parent_id = root.span_id
                orphans += 1
        if orphans:
            self._note(f"{orphans} calls stand below the root because their callers were not recorded")
        tree = [root, *spans]
        if deep := flattened(tree):
            self._note(f"{deep} calls stand higher than they were: they are nested more than {DEEPEST} deep")
        return tree


def _name_calls(spans: Iterable[Span]) -> None:
    """Turn engine requests without an LLM call of an agent above into LLM calls (an engine used alone).

    ``spans``: parents may come after their children (clocks of two machines).
    """
    by_id = {span.span_id: span for span in spans}
    requests = {
        id
        for id, span in by_id.items()
        if span.role == "llm" or (span.role == "engine" and (span.prompt_tokens or span.response_tokens) is not None)
    }
    for id in requests:
        if not any(above.span_id in requests for above in ancestors(by_id[id], by_id)):
            by_id[id].role = "llm"


def _cover_children(spans: Iterable[Span], interrupted: set[str]) -> None:
    """Extend interrupted calls to the end of the calls inside (in other processes)."""
    if not interrupted:
        return
    by_id = {span.span_id: span for span in spans}
    for span in sorted(by_id.values(), key=lambda span: span.end_ns or 0):
        for parent in ancestors(span, by_id):
            if parent.span_id in interrupted and parent.end_ns is not None:
                parent.end_ns = max(parent.end_ns, span.end_ns or 0)


def _mapping(value: Any) -> dict[str, Any]:
    """Convert a record's mapping of names to values; store any other value under ``value``."""
    if not value:
        return {} if value is None or value == {} else {"value": jsonable(value)}
    mapping = jsonable(value)
    return mapping if isinstance(mapping, dict) else {"value": mapping}


__all__ = ["OPEN", "Assembly", "Callee", "Origin", "span_id"]
