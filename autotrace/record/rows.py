"""Record each row of a call as a call of its own.

A call may be a batch, whose rows are in their own trajectories (``rows`` of a spec).

The batch itself is recorded as any call. The result is read once for each row, with the words ``row`` (the item), ``i``
(the item's number) and ``n`` (the number of items). A batch inside another batch gives each row to the trajectory of
the row that the new row continues: by number if both have as many rows, else by the object of the row, else by the
tokens at the beginning.

A call may also return the rows that a trainer creates from its trajectory, a row for each chain (``chains`` of a spec).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from autotrace.record import closing, context, faults, groups, ids, sampling, trajectory_ids
from autotrace.record.backlog import backlog
from autotrace.record.context import OpenCall, RetainingCall, Trace
from autotrace.record.fields import ABSENT, first, peek
from autotrace.record.formulas import ONCE, of_a_row
from autotrace.record.probe import Probe
from autotrace.record.token_copy import copy_tokens
from autotrace.record.weights import weigh_numbers
from autotrace.spool.records import RETURNED_ROWS, Fact

MAX_ROWS = 16_384
"""Limits the recorded rows of a call; further rows are counted."""
BEYOND = "drop:rows"
UNMATCHED = "drop:unmatched rows"

Values = dict[str, Any]


class _SeenTokens:
    """Holds lengths and hashes of a row's conversation when the last call ended, but not the tokens."""

    __slots__ = ("prompt", "prompt_hash", "response", "response_hash")

    def __init__(self, prompt: Sequence[int], response: Sequence[int]) -> None:
        self.prompt, self.prompt_hash = len(prompt), hash(tuple(prompt))
        self.response, self.response_hash = len(response), hash(tuple(response))

    def begins(self, tokens: Sequence[int]) -> bool:
        """Tells whether ``tokens`` continue the conversation."""
        end = self.prompt + self.response
        return (
            len(tokens) >= end
            and hash(tuple(tokens[: self.prompt])) == self.prompt_hash
            and hash(tuple(tokens[self.prompt : end])) == self.response_hash
        )


class BatchRows:
    """Holds the rows of an open batch."""

    __slots__ = ("_items", "_known", "_numbers", "_probe", "_said", "_values", "base", "calls")

    def __init__(self, probe: Probe, items: Sequence[Any], values: Values, base: BatchRows | None) -> None:
        self._probe = probe
        self._items = items
        self._values = {**values, "n": len(items), ONCE: {}}
        self.base = base or self
        """Holds the batch whose rows are the trajectories of these rows."""
        self.calls: list[OpenCall | None] = []
        """Lists calls by the row's number in ``base``; None: not recorded, or not a part of this call."""
        self._numbers: list[int | None] = []
        """Lists each item's number in ``base``."""
        self._known: dict[int, tuple[int, Any]] = {}
        """Map ``id()`` of the object of a row without tokens to (the row's number, the object). The held object keeps
        the id unique."""
        self._said: list[_SeenTokens | None] = []

    # -- beginning -----------------------------------------------------------------------------------------------------

    def open_trajectories(self, batch: OpenCall, count: int) -> None:
        """Open a trajectory for each row. ``count``: the number of this call of the target."""
        probe, seen = self._probe, []
        own = tuple(pair for pair in probe.paths.attributes if any(map(of_a_row, pair[1])))
        common = probe.capture.read(tuple(pair for pair in probe.paths.attributes if pair not in own), self._values)
        for number in range(len(self._items)):
            values = self._of(number)
            probe.counts.calls += 1
            attributes = {**(common or {}), **(probe.capture.read(own, values) or {})}
            attributes = groups.completed(attributes, batch.above) or {}
            uid = attributes.get("uid")
            if type(uid) is int:  # a number counts within the batch
                attributes["uid"] = f"{count}.{uid}"
            seen.append((values, attributes))
        limit: Any = probe.sampling.get("max_samples_per_step_per_worker")
        chosen = None
        if limit is not None:
            uids = [str(attributes.get("uid", attributes.get("sample_index"))) for _, attributes in seen]
            samples = [str(sampling.sample_of(attributes)) for _, attributes in seen]
            chosen = sampling.lowest(uids, samples, int(limit), probe.sampling.get("seed", 0))
        for number, (values, attributes) in enumerate(seen):
            call = None
            wanted = chosen is None or uids[number] in chosen
            if wanted and sampling.admits(probe.decide, attributes) and not backlog.full():
                prompt = copy_tokens(first(probe.paths.prompt, values))
                call = _opened(probe, batch, values, None, attributes, prompt, batch.at)
            self.calls.append(call)
            self._numbers.append(number)
            self._said.append(None)
            self._known[id(self._items[number])] = (number, self._items[number])

    def open_below(self, batch: OpenCall, above: BatchRows) -> None:
        """Open a call for each row, below the row of ``above`` that the new row continues."""
        probe, base = self._probe, self.base
        self.calls = [None] * len(base.calls)
        prompts = [copy_tokens(first(probe.paths.prompt, self._of(number))) for number in range(len(self._items))]
        self._numbers = base.match(self._items, prompts)
        for number, (row, prompt) in enumerate(zip(self._numbers, prompts, strict=True)):
            if row is None:
                continue
            if prompt is None:
                base._known[id(self._items[number])] = (row, self._items[number])
            parent = above.calls[row] or base.calls[row]
            if parent is not None and self.calls[row] is None:
                values = self._of(number)
                probe.counts.calls += 1
                attributes = probe.capture.read(probe.paths.attributes, values)
                self.calls[row] = _opened(probe, batch, values, parent, attributes, prompt, batch.at)

    def match(self, items: Sequence[Any], prompts: Sequence[Any]) -> list[int | None]:
        """Return for each item the row of this batch that the item continues, at most one item for each row."""
        if len(items) == len(self.calls):
            return list(range(len(items)))
        free = dict.fromkeys(range(len(self.calls)))
        numbers: list[int | None] = []
        for item, prompt in zip(items, prompts, strict=True):
            if prompt is not None:
                number = next((row for row in free if self._goes_on(row, prompt)), None)
            else:
                number = self._known[id(item)][0] if id(item) in self._known else None
            if number is None or number not in free:
                faults.count(UNMATCHED)
                numbers.append(None)
                continue
            del free[number]
            numbers.append(number)
        return numbers

    def _goes_on(self, row: int, prompt: Sequence[int]) -> bool:
        said = self._said[row]
        return said is not None and said.begins(prompt)

    # -- ending --------------------------------------------------------------------------------------------------------

    def end(self, call: OpenCall, values: Values, at: int) -> None:
        """Close the rows; see ``OpenRows``."""
        probe, result = self._probe, values.get("result")
        self._values = {**values, "n": len(self._items), ONCE: {}}
        for number in range(len(self._items)):
            own = self._of(number)
            if probe.paths.of or probe.paths.of_key:
                probe.counts.calls += 1
                probe.counts.ended += 1
                trajectory_ids.facts(probe, probe.paths.facts, own, at)
                continue
            row = self._numbers[number] if number < len(self._numbers) else None
            opened = None if row is None else self.calls[row]
            if opened is None or row is None:
                continue
            if probe.paths.prompt and probe.paths.response and self.base is not self:
                self._remember(row, opened.prompt, own)
            if isinstance(opened, RetainingCall):
                _close(opened, own, result, at)
        self._release()

    def _remember(self, row: int, prompt: Any, values: Values) -> None:
        if type(prompt) is not tuple:  # the prompt is written already
            prompt = copy_tokens(peek(self._probe.paths.prompt, values))
        response = copy_tokens(peek(self._probe.paths.response, values))
        if prompt is not None and response is not None:
            self.base._said[row] = _SeenTokens(prompt, response)

    def fail(self, error: BaseException) -> None:
        """Fail every row; see ``OpenRows``."""
        for call in self.calls:
            if call is not None:
                closing.fail(call, error)
        self._release()

    def _release(self) -> None:
        """Drop every object of the host."""
        self._items, self._values, self._known = (), {}, {}

    def _of(self, number: int) -> Values:
        own = self._values.copy()
        own["row"], own["i"] = self._items[number], number
        return own


def _opened(
    probe: Probe, batch: OpenCall, values: Values, parent: OpenCall | None, attributes: Any, prompt: Any, at: int
) -> RetainingCall | None:
    """Open a row that begins at ``at``, below ``parent`` or in a trajectory of its own."""
    if backlog.watchful and not backlog.accepts():
        return None
    span = ids.next_span_id()
    trace = Trace(ids.new_trace_id(), False, span, batch) if parent is None else parent.trace
    above = 0 if parent is None else parent.id
    inputs = probe.capture.row_inputs(values)
    call = RetainingCall(
        span, trace, above, probe, batch.signature, context.epoch, at, 0, None, context.ROOM, (), inputs, attributes,
        prompt,
    )  # fmt: skip
    call.weight = probe.capture.limits.take_weight() + (0 if prompt is None else weigh_numbers(prompt))
    backlog.charge(call.weight)
    backlog.append(call)
    return call


def _close(call: RetainingCall, values: Values, result: Any, at: int) -> None:
    call.arguments = values
    closing.close(call, result, at)
    call.arguments = None


class _Returned:
    """Records the rows that a call returns, when the call ends."""

    calls = ()

    def end(self, call: OpenCall, values: Values, at: int) -> None:
        """Record the rows; see ``OpenRows``."""
        if call.probe is None or call.probe.row is None:
            return
        probe = call.probe.row
        value = first(call.probe.paths.rows, values)
        items = _items(value)
        if items is None:
            call.probe.paths.rows[0].missed += value is not ABSENT  # which is counted already
            return
        backlog.put(Fact(call.trace.id, None, RETURNED_ROWS, len(value), at))
        values = {**values, "n": len(items), ONCE: {}}
        for number, item in enumerate(items):
            own = {**values, "row": item, "i": number}
            probe.counts.calls += 1
            prompt = copy_tokens(first(probe.paths.prompt, own))
            opened = _opened(probe, call, own, call, probe.capture.read(probe.paths.attributes, own), prompt, at)
            if opened is not None:
                _close(opened, own, values["result"], at)

    def fail(self, error: BaseException) -> None:
        """Record nothing; see ``OpenRows``: the call returned no rows."""


_RETURNED = _Returned()


def begin(batch: RetainingCall, arguments: Mapping[str, Any]) -> None:
    """Open the rows of ``batch``, or note that ``batch`` returns rows."""
    probe = batch.probe
    if probe is None or probe.row is None:
        return
    if probe.row.is_returned:
        batch.rows = _RETURNED
        return
    items = _items(first(probe.paths.rows, arguments))
    if items is None:
        return
    above = enclosing(batch.above)
    base = None if probe.row.is_root else above and above.base
    batch.rows = rows = BatchRows(probe.row, items, dict(arguments), base)
    if probe.row.is_root:
        rows.open_trajectories(batch, probe.counts.calls)
    elif above is not None and not probe.row.paths.of and not probe.row.paths.of_key:
        rows.open_below(batch, above)


def _items(value: Any) -> Sequence[Any] | None:
    kind = type(value)
    if kind is not list and kind is not tuple and kind is not deque:
        return None
    if len(value) > MAX_ROWS:
        faults.count(BEYOND, len(value) - MAX_ROWS)
    return list(islice(value, MAX_ROWS))


def enclosing(call: OpenCall | None) -> BatchRows | None:
    """Return the rows of the nearest batch with rows around ``call``."""
    for _ in range(groups.MAX_HOPS):
        if call is None:
            return None
        if type(call) is RetainingCall and isinstance(call.rows, BatchRows) and call.rows.calls:
            return call.rows
        call = call.above
    return None


@contextmanager
def row(number: Any) -> Iterator[None]:
    """Let calls inside the block belong to row ``number`` of the nearest batch: for the adapter of a library whose own
    calls do not name their row. Where the row does not exist nothing changes."""
    rows = enclosing(context.current_call())
    call = None
    if rows is not None and type(number) is int and 0 <= number < len(rows.calls):
        call = rows.calls[number] or rows.base.calls[number] or context.stand_in(b"", 0, recorded=False)
    with context.made_current(call):
        yield
