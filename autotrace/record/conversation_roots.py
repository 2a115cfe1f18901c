"""Group model calls outside any recorded call into conversations with a root each, in a process for which no spec names
a root. Calls whose messages continue each other are one trajectory. Runs on the flusher's thread.

A call continues an earlier call if the messages begin with all messages and then the answer of the earlier call, or if
the call repeats the request after an error. The root is a span of its own. Calls name the root as calls of other tasks
name their trajectory (``records.OF``), and the shipper puts the calls below the root.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any

import msgspec

from autotrace.config.originals import time
from autotrace.record import ids
from autotrace.record.context import Ended, OpenCall
from autotrace.record.orphans import NAMES, SYSTEM
from autotrace.spool.records import CONVERSATION, OF, REQUEST, Close, Fact, Open, Record

QUIET, LOOK_EVERY = 30.0, 1.0
"""Holds the seconds without a call after which a conversation ends, and the seconds between two looks for such
conversations. A later call still belongs to the conversation."""
MOST = 2_048
"""Limits the calls that may be continued: the latest calls."""
MOST_OPEN = 16_384
"""Limits the calls whose end is awaited. The end of a call is not queued when too much waits to be written."""
ANSWER, BEGINNING = 8_192, 64
"""Counts the bytes of an answer that are kept, and the characters by which a text is recognised in those bytes."""
_IDS = ("previous_response_id", "tool_call_id", "tool_use_id", "call_id")
_NOT_SAID = frozenset(
    {"role", "type", "cache_control", "status", "index", "object", "annotations", "signature", "name"}
)
"""Lists fields of a message that clients change, or that differ between an answer and the message that repeats the
answer."""
_OTHERS = ("user", "tool", "function")
"""Lists the roles that no model has, beside ``SYSTEM``."""


class _Conversation(msgspec.Struct, eq=False):
    trace: bytes
    span: int
    at: int
    """Holds the time when the last call ended."""
    open: int = 0
    status: str = "OK"


class _Turn(msgspec.Struct, eq=False):
    """Holds a call of a conversation."""

    of: _Conversation
    asked: int
    """Counts the messages."""
    cut: bool
    """Tells whether the call had more messages, which were not recorded."""
    digest: bytes
    """Holds a digest of all messages."""
    answer: bytes = b""
    failed: bool = False
    continued: bool = False


class ConversationRoots:
    """Groups the calls of a process below roots. ``add`` takes records; ``target`` numbers a target by key, name, role
    and module."""

    def __init__(self, add: Callable[[Record], None], target: Callable[[str, str, str, str], int]) -> None:
        self._add = add
        self._target = target
        self._open: dict[int, _Turn] = {}
        """Map a span id to the call, until the call ends."""
        self._ended: dict[bytes, list[_Turn]] = {}
        """Map a digest to the calls that may be continued."""
        self._order: deque[_Turn] = deque()
        self._living: dict[bytes, _Conversation] = {}
        self._looked = 0

    def begun(self, call: OpenCall, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a call: return the attributes that put the call below its root."""
        messages, cut = _messages(inputs)
        digests = list(accumulate(map(_digest, messages), lambda before, one: _hash(before + one)))
        before = self._before(messages, digests, cut) or self._answered(_named(inputs, messages))
        conversation = self._begin(call.at, digests) if before is None else before.of
        if before is not None:
            before.continued = True
        conversation.open += 1
        self._open[call.id] = _Turn(conversation, len(messages), cut, digests[-1] if digests else b"")
        if len(self._open) > MOST_OPEN:
            self._open.pop(next(iter(self._open))).of.open -= 1
        return {OF: conversation.trace.hex()}

    def ended(self, event: Ended, output: Any) -> None:
        """End a call with ``output``, which may be written."""
        turn = self._open.pop(event.call.id, None)
        if turn is None:
            return
        turn.answer, turn.failed = _packed(output)[:ANSWER], event.status in ("ERROR", "TIMEOUT")
        conversation = turn.of
        conversation.open -= 1
        conversation.at, conversation.status = event.at, event.status
        if not turn.asked:
            return
        self._ended.setdefault(turn.digest, []).append(turn)
        self._order.append(turn)
        if len(self._order) > MOST:
            oldest = self._order.popleft()
            alike = self._ended[oldest.digest]
            alike.remove(oldest)
            if not alike:
                del self._ended[oldest.digest]

    def settle(self, last: bool = False) -> None:
        """End the conversations that were quiet for a while; ``last``: all conversations."""
        now = time.monotonic_ns()
        if now - self._looked < LOOK_EVERY * 1e9 and not last:
            return
        self._looked = now
        quiet = [one for one in self._living.values() if not one.open and now - one.at > QUIET * 1e9]
        for one in [*self._living.values()] if last else quiet:
            del self._living[one.trace]
            self._add(Close(one.span, one.trace, one.at if not one.open else now, one.status))

    def _begin(self, at: int, digests: Sequence[bytes]) -> _Conversation:
        """Open a root. Roots that begin with the same messages have the same ``prompt_digest``."""
        made = _Conversation(ids.new_trace_id(), ids.next_span_id(), at)
        self._living[made.trace] = made
        attributes = {"prompt_digest": digests[-1].hex()[:12]} if digests else None
        target = self._target(CONVERSATION, CONVERSATION, "trajectory", "")
        self._add(Open(made.span, made.trace, 0, target, at, attributes=attributes))
        self._add(Fact(made.trace, {"request": made.trace.hex(), "span": made.span}, REQUEST, None, at))
        return made

    def _before(self, messages: Sequence[bytes], digests: Sequence[bytes], cut: bool) -> _Turn | None:
        """Find the call that these messages continue: the longest match, if possible a call that nobody continues
        yet."""
        for count in range(len(digests), 0, -1):
            fits = [turn for turn in self._ended.get(digests[count - 1], ()) if _goes_on(turn, messages[count:], cut)]
            if fits:
                return min(fits, key=lambda turn: turn.continued)
        return None

    def _answered(self, id: Any) -> _Turn | None:
        """Return the last call whose answer has this id."""
        if not isinstance(id, str) or not id:
            return None
        return next((turn for turn in reversed(self._order) if id.encode() in turn.answer), None)


def _named(inputs: Mapping[str, Any], messages: Sequence[bytes]) -> Any:
    """Return the id by which a call names the previous call instead of repeating the messages: the id of the answer, or
    of a tool call in the answer."""
    first = msgspec.msgpack.decode(messages[0]) if messages else None
    content = first.get("content") if isinstance(first, dict) else None
    parts = [inputs, first, *(content if isinstance(content, list) else ())]
    return next((part[name] for part in parts if isinstance(part, dict) for name in _IDS if part.get(name)), None)


def _goes_on(turn: _Turn, messages: Sequence[bytes], cut: bool) -> bool:
    """Tells whether ``messages`` may follow the messages of ``turn``; ``cut``: more messages exist."""
    if turn.failed or not messages:
        return (turn.failed or (turn.cut and cut)) and not turn.continued
    if _role(messages[0]) in _OTHERS:
        return False
    texts = _texts(msgspec.msgpack.decode(messages[0]))
    said = [text[:BEGINNING].encode("utf-8", "replace") in turn.answer for text in texts]
    return all(said) if len(turn.answer) < ANSWER else any(said)


def _messages(inputs: Mapping[str, Any]) -> tuple[list[bytes], bool]:
    """Return (the encoded messages of a call, whether the call had more messages than are recorded). System prompts are
    left out, because a system prompt may hold the time of day."""
    given = next((inputs[name] for name in NAMES if inputs.get(name)), None)
    if isinstance(given, str):
        return [_packed(given)], False
    if not isinstance(given, (list, tuple)):  # an iterator of messages was not recorded
        return [], False
    messages = [*map(_packed, given)]
    last = msgspec.msgpack.decode(messages[-1])
    cut = isinstance(last, dict) and last.keys() == {"…"}  # the note of ``record.snapshot`` for the rest
    return [one for one in messages[: len(messages) - cut] if _role(one) not in SYSTEM], cut


def _role(message: bytes) -> Any:
    said = msgspec.msgpack.decode(message)
    return said.get("role") if isinstance(said, dict) else "user"


def _packed(value: Any) -> bytes:
    return bytes(value) if type(value) is msgspec.Raw else msgspec.msgpack.encode(value)


def _digest(message: bytes) -> bytes:
    parts = (str(_role(message)), *_texts(msgspec.msgpack.decode(message)))
    return _hash("\0".join(parts).encode("utf-8", "replace"))


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of a message in any form."""
    if isinstance(value, str):
        if value := value.strip():
            yield value
    elif isinstance(value, dict):
        yield from _texts([part for name, part in value.items() if name not in _NOT_SAID])
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
