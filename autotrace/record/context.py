"""Which call is current, here and across processes."""

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
    """What the calls of one trace share in this process."""

    id: bytes
    elsewhere: bool = False
    """The tokens of the calls below are recorded by the process that made the call (the agent's LLM client)."""
    root: int = 0
    """Its root span; 0: another process's."""
    around: OpenCall | None = None
    """What was current where the root opened."""
    is_over: bool = False
    """The root ended here. A task, thread or executor that the trace started may live on: no call belongs to the trace
    that begins from now on."""
    tokens: TokenLog | None = None
    """Belongs to the flusher."""


ROOM = 16
"""Wrappers' frames, one inside of the other, for which the recursion limit is raised at once (``record.stack``)."""


class Swallowed(msgspec.Struct, eq=False, gc=False):
    """An exception of a watched function (``record.swallowed``). Holds nothing of the host's.

    ``error``: as in ``Ended``. ``identity``: of the exception. ``functions``: ``id()`` and name of each watched
    function that it passed through, the innermost first. ``at``: where it was raised, ``judge (rewards.py:12)``.
    ``caught``: the code that called the last of the functions. ``seconds``: after the call began.
    """

    error: tuple[str, Any, list[tuple[str, int | None, str]]]
    identity: tuple[int, str]
    functions: list[tuple[int, str]]
    at: str
    caught: str
    seconds: float
    times: int = 1

    def described(self, kind: str, message: str) -> dict[str, Any]:
        """The note as it is written. ``message`` is free of secrets."""
        names = [name for _, name in self.functions[1:]]
        note = {"error": kind, "message": message[:300], "at": self.at, "caught": self.caught, "times": self.times}
        return {**note, "seconds": self.seconds, **({"through": names} if names else {})}


class OpenCall(msgspec.Struct, eq=False, gc=False):
    """An open call, and the event that it opened. Only the process that opened a call closes it (``epoch`` changes in a
    forked child).

    A struct the garbage collector does not see: made in 90 ns instead of 350, and a full queue does not slow the host's
    collections down. So it must hold nothing of the host's but strings and numbers; see ``RetainingCall``.
    """

    id: int
    trace: Trace
    parent: int
    """0: root of its trace."""
    probe: Probe | None
    signature: Signature | None
    epoch: int
    at: int = 0
    """Monotonic ns when it opened."""
    owner: int = 0
    """``id()`` of the object the method was called on; tells a ``super()`` call from a nested one."""
    above: OpenCall | None = None
    """What was current before; becomes current again when the call is left."""
    room: int = ROOM
    """Calls that may open inside of it before the stack gets room for the frames of their wrappers."""
    args: Sequence[Any] | None = None
    """Copies of the positional arguments, until they are written; ``signature`` knows their names."""
    keywords: dict[str, Any] | None = None
    """Copies of the arguments passed by name, until they are written."""
    attributes: dict[str, Any] | None = None
    prompt: Any = None
    """Token ids (a copy); once written, the flusher's note on them."""
    weight: int = 0
    """Bytes of what it holds while it waits in the backlog."""
    recorded: bool = True
    """False: a trajectory that was not sampled; everything below it passes through."""
    items: int = 0
    first_item_at: int = 0
    yielded: Yielded | None = None
    """What a generator or stream yielded so far; copies of ours only."""
    ender: dict[str, int] | None = None
    """Of a stream that said everything: which thread ends the call, once one does."""
    swallowed: list[Swallowed] | None = None  # exceptions of watched functions, while the call goes on


class OpenRows(Protocol):
    """The rows of an open batch, or those that a call returns (``record.rows``)."""

    @property
    def calls(self) -> Sequence[OpenCall | None]:
        """By their number; None: not recorded."""

    def end(self, call: OpenCall, values: dict[str, Any], at: int) -> None:
        """``call`` returned; ``values`` has its arguments and ``result``."""

    def fail(self, error: BaseException) -> None:
        """It raised ``error``."""


class RetainingCall(OpenCall, eq=False, gc=True):
    """A call that keeps the host's objects until it ends: visible to the garbage collector, or an abandoned
    coroutine could not be collected."""

    arguments: dict[str, Any] | None = None
    """Bound arguments that some path reads when the call ends."""
    refused: Token[frozenset[str]] | None = None
    """This call chose samples of its batch (``sampling.refused``)."""
    frames: int = 0
    """Recorded calls that it is inside of, where the recursion limit was raised for them (``record.stack``)."""
    followed: bool = False
    """The target's follower knows of the call, and is asked when it ends."""
    rows: OpenRows | None = None
    """The rows of a batch."""
    rollouts: Iterator[int] | None = None
    """Numbers for the trajectories that open inside of it (``record.groups``)."""
    passed_on: dict[str, Any] | None = None
    """Attributes that these have, too; its own are gone once they are written."""
    timeline: Timeline | None = None
    """What the adapter of an engine learns about this request while it runs."""


class Ended(msgspec.Struct, eq=False, gc=False):
    """The event that a call ended. Lives in the queue only."""

    call: OpenCall
    at: int
    output: Any = None
    status: str = "OK"
    attributes: dict[str, Any] | None = None
    error: tuple[str, Any, list[tuple[str, int | None, str]]] | None = None
    """Exception type, copy of its arguments, frames."""
    response: Sequence[int] | None = None
    skip: int = 0
    """Leading tokens of ``response`` that are the prompt."""
    logprobs: Sequence[float] | None = None
    mask: Sequence[int] | None = None
    weight: int = 0
    """Bytes of what it holds while it waits in the backlog."""


epoch = 0
"""Counts forks and ends of runs; a call of another epoch belongs to the parent process, or to the run that is over."""

CLOSED = -1
"""Epoch of a call that is closed: closing it again does nothing. (The adapter of an engine may have learnt that the
request was aborted; an exception of the host's may arrive when the call was closed already.)"""

current: ContextVar[OpenCall | None] = ContextVar("autotrace_span", default=None)

of_the_parent: Callable[[], OpenCall | None] | None = None
"""Returns the call that is current where the running greenlet was made; set by the adapter of greenlet."""


def forked() -> None:
    """What is open belongs to others: this is a forked child, or the run is over."""
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
    """The current span as bytes for another process, or None when nothing is being recorded here."""
    call = current_call()
    if call is None:
        return None
    flags = _RECORDED if call.recorded else 0
    if call.trace.elsewhere or (call.probe is not None and call.probe.prompt):
        flags |= _TOKENS
    return _CARRIER.pack(_VERSION, flags, call.trace.id or bytes(16), call.id)


def restore(carrier: bytes | None) -> OpenCall | None:
    """A stand-in for the span of another process; None for anything that is not a carrier."""
    if not isinstance(carrier, bytes) or len(carrier) != _CARRIER.size:
        return None
    version, flags, trace, span = _CARRIER.unpack(carrier)
    if version != _VERSION:
        return None
    return stand_in(trace, span, recorded=bool(flags & _RECORDED), elsewhere=bool(flags & _TOKENS))


def stand_in(
    trace: bytes, span: int, recorded: bool, elsewhere: bool = False, above: OpenCall | None = None
) -> OpenCall:
    """A span that is open in another process, or (``recorded=False``) one that nobody records."""
    return OpenCall(span, Trace(trace, elsewhere), 0, None, None, 0, above=above, recorded=recorded)


@contextmanager
def attach(carrier: bytes | None) -> Iterator[None]:
    """Make the span of another process current. Anything that is not a carrier leaves the context as it is."""
    with made_current(restore(carrier)):
        yield


@contextmanager
def made_current(call: OpenCall | None) -> Iterator[None]:
    """Make ``call`` current; None leaves the context as it is. Never raises, wherever it is left."""
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
