"""Track the call that is current, here and across processes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from autotrace.record.origin import is_hosts

if TYPE_CHECKING:
    from autotrace.record.arguments import Signature
    from autotrace.record.probe import Probe
    from autotrace.record.timeline import Timeline
    from autotrace.record.token_prefixes import TokenLog
    from autotrace.record.yielded import Yielded

_CARRIER = struct.Struct("<BB16sQ")
_VERSION = 1
_RECORDED, _TOKENS = 1, 2


class Trace(msgspec.Struct, eq=False, gc=False):
    """Holds the state that the calls of a trace share in this process."""

    id: bytes
    elsewhere: bool = False
    """Tells whether the process that made the call (the agent's LLM client) records the tokens of the calls below."""
    root: int = 0
    """Holds the id of the root span; 0: the root belongs to another process."""
    around: OpenCall | None = None
    """Holds the call that was current where the root opened."""
    is_over: bool = False
    """Tells whether the root ended here. A task, thread or executor that the trace started may live on: no call belongs
    to the trace that begins from now on."""
    tokens: TokenLog | None = None
    """Holds the tokens so far; belongs to the flusher."""


ROOM = 16
"""Counts the nested frames of wrappers for which the recursion limit is raised at once (``record.stack``)."""


class Swallowed(msgspec.Struct, eq=False, gc=False):
    """Holds an exception of a watched function (``record.swallowed``), but no object of the host's.

    ``error``: as in ``Ended``. ``identity``: identifies the exception. ``functions``: ``id()`` and name of each watched
    function that the exception passed through, the innermost first. ``at``: the place that raised, ``judge
    (rewards.py:12)``. ``caught``: the code that called the last of the functions. ``seconds``: after the call began.
    """

    error: tuple[str, Any, list[tuple[str, int | None, str]]]
    identity: tuple[int, str]
    functions: list[tuple[int, str]]
    at: str
    caught: str
    seconds: float
    times: int = 1

    def described(self, kind: str, message: str) -> dict[str, Any]:
        """Return the note in written form. ``message`` is free of secrets."""
        names = [name for _, name in self.functions[1:]]
        note = {"error": kind, "message": message[:300], "at": self.at, "caught": self.caught, "times": self.times}
        return {**note, "seconds": self.seconds, **({"through": names} if names else {})}


class OpenCall(msgspec.Struct, eq=False, gc=False):
    """Holds an open call; the struct is also the event that the call opened. Only the process that opened a call closes
    the call (``epoch`` changes in a forked child).

    The garbage collector does not see the struct: creation takes 90 ns instead of 350, and a full queue does not slow
    the host's collections down. So the struct must hold no object of the host's except strings and numbers; see
    ``RetainingCall``.
    """

    id: int
    trace: Trace
    parent: int
    """Holds the id of the span above; 0: root of the trace."""
    probe: Probe | None
    signature: Signature | None
    epoch: int
    at: int = 0
    """Holds the monotonic time in ns when the call opened."""
    owner: int = 0
    """Holds ``id()`` of the object that the method was called on; tells a ``super()`` call from a nested call."""
    above: OpenCall | None = None
    """Holds the previous call, which becomes current again when this call is left."""
    room: int = ROOM
    """Counts the calls that may still open inside before the stack gets room for the frames of the wrappers."""
    args: Sequence[Any] | None = None
    """Holds copies of the positional arguments until the copies are written; ``signature`` knows the names."""
    keywords: dict[str, Any] | None = None
    """Holds copies of the arguments passed by name until the copies are written."""
    attributes: dict[str, Any] | None = None
    prompt: Any = None
    """Holds a copy of the token ids; after the write, the flusher's note on the tokens."""
    weight: int = 0
    """Counts the bytes that the call holds while waiting in the backlog."""
    recorded: bool = True
    """Tells whether the call is recorded. False: the trajectory was not sampled; every call below passes through."""
    items: int = 0
    first_item_at: int = 0
    yielded: Yielded | None = None
    """Collects what a generator or stream yielded so far; holds only copies of ours."""
    ender: dict[str, int] | None = None
    """Names the thread that ends the call of a complete stream, once a thread does."""
    swallowed: list[Swallowed] | None = None  # exceptions of watched functions, while the call goes on


class OpenRows(Protocol):
    """Holds the rows of an open batch, or the rows that a call returns (``record.rows``)."""

    @property
    def calls(self) -> Sequence[OpenCall | None]:
        """List the calls by row number; None: the row is not recorded."""

    def end(self, call: OpenCall, values: dict[str, Any], at: int) -> None:
        """Close the rows after ``call`` returned; ``values`` has the arguments and ``result``."""

    def fail(self, error: BaseException) -> None:
        """Close the rows after the call raised ``error``."""


class RetainingCall(OpenCall, eq=False, gc=True):
    """Keeps objects of the host until the call ends. The garbage collector sees the struct; otherwise an abandoned
    coroutine could not be collected."""

    arguments: dict[str, Any] | None = None
    """Holds the bound arguments that some path reads when the call ends."""
    refused: Token[frozenset[str]] | None = None
    """Holds the token of the samples that this call chose from its batch (``sampling.refused``)."""
    frames: int = 0
    """Counts the recorded calls around this call for which the recursion limit was raised (``record.stack``)."""
    followed: bool = False
    """Tells whether the target's follower knows the call and is asked when the call ends."""
    rows: OpenRows | None = None
    """Holds the rows of a batch."""
    rollouts: Iterator[int] | None = None
    """Numbers the trajectories that open inside (``record.groups``)."""
    passed_on: dict[str, Any] | None = None
    """Holds attributes that the trajectories inside have, too. The call's own attributes are gone once written."""
    timeline: Timeline | None = None
    """Holds what the adapter of an engine learns about this request while the request runs."""


class Ended(msgspec.Struct, eq=False, gc=False):
    """Records that a call ended. Lives in the queue only."""

    call: OpenCall
    at: int
    output: Any = None
    status: str = "OK"
    attributes: dict[str, Any] | None = None
    error: tuple[str, Any, list[tuple[str, int | None, str]]] | None = None
    """Holds the exception's type, a copy of the exception's arguments, and the frames."""
    response: Sequence[int] | None = None
    skip: int = 0
    """Counts the leading tokens of ``response`` that are the prompt."""
    logprobs: Sequence[float] | None = None
    mask: Sequence[int] | None = None
    weight: int = 0
    """Counts the bytes that the event holds while waiting in the backlog."""


epoch = 0
"""Counts forks and ends of runs. A call of another epoch belongs to the parent process, or to the run that is over."""

CLOSED = -1
"""Marks a closed call as its epoch: closing the call again does nothing. (The adapter of an engine may have learnt that
the request was aborted; an exception of the host's may arrive when the call was closed already.)"""

current: ContextVar[OpenCall | None] = ContextVar("autotrace_span", default=None)

of_the_parent: Callable[[], OpenCall | None] | None = None
"""Returns the call that is current where the running greenlet was created; set by the adapter of greenlet."""


def forked() -> None:
    """Start a new epoch. Open calls belong to others: this process is a forked child, or the run is over."""
    global epoch
    epoch += 1


def standing(call: OpenCall | None) -> OpenCall | None:
    """Return the call that is current where ``call`` was made current. Another call is current there if the trace is
    over (``Trace.is_over``), or if the ``with`` of a context manager was left in another task or thread."""
    while call is not None:
        if call.trace.is_over:
            call = call.trace.around
        elif call.recorded or (call.probe is None and call.epoch != CLOSED):
            break
        else:
            call = call.above
    return call


def current_call() -> OpenCall | None:
    """Return the call that is current here; see ``standing``."""
    call = standing(current.get())
    return of_the_parent() if call is None and of_the_parent is not None else call


def current_carrier() -> bytes | None:
    """Return the current span as bytes for another process, or None if nothing is recorded here."""
    call = current_call()
    if call is None:
        return None
    flags = _RECORDED if call.recorded else 0
    if call.trace.elsewhere or (call.probe is not None and call.probe.paths.prompt):
        flags |= _TOKENS
    return _CARRIER.pack(_VERSION, flags, call.trace.id or bytes(16), call.id)


def restore(carrier: bytes | None) -> OpenCall | None:
    """Return a stand-in for the span of another process; None for anything that is not a carrier."""
    if not isinstance(carrier, bytes) or len(carrier) != _CARRIER.size:
        return None
    version, flags, trace, span = _CARRIER.unpack(carrier)
    if version != _VERSION:
        return None
    return stand_in(trace, span, recorded=bool(flags & _RECORDED), elsewhere=bool(flags & _TOKENS))


def stand_in(
    trace: bytes, span: int, recorded: bool, elsewhere: bool = False, above: OpenCall | None = None
) -> OpenCall:
    """Return a span that is open in another process, or (``recorded=False``) a span that nobody records."""
    return OpenCall(span, Trace(trace, elsewhere), 0, None, None, 0, above=above, recorded=recorded)


@contextmanager
def attach(carrier: bytes | None) -> Iterator[None]:
    """Make the span of another process current. Any other value than a carrier leaves the context unchanged."""
    with made_current(restore(carrier)):
        yield


@contextmanager
def made_current(call: OpenCall | None) -> Iterator[None]:
    """Make ``call`` current; None leaves the context unchanged. Never raises, wherever the block is left."""
    if call is None:
        yield
        return
    token = current.set(call)
    try:
        yield
    finally:
        try:
            current.reset(token)
        except (LookupError, ValueError) as error:  # left in another context than entered: nothing to restore there
            if is_hosts(error):
                raise
