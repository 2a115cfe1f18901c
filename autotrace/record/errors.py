"""Describe an exception that ended a call."""

from __future__ import annotations

import asyncio
import builtins
import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from types import FunctionType, MemberDescriptorType, WrapperDescriptorType
from typing import Any

from autotrace.record import faults
from autotrace.record.object_fields import attribute_of, layout_of, member, mro_of, name_of, qualified_name
from autotrace.record.snapshot import Limits, snapshot
from autotrace.record.template import IN_PLACE

_LIMITS = Limits(2, 16)
_MAX_FRAMES = 40
_MAX_MEMBERS, _MAX_NESTED, _MAX_LINES = 16, 8, 64
"""Limit the described members of an exception group, the nesting of groups, and the lines of the whole text."""
_group: Any = vars(builtins).get("BaseExceptionGroup")
"""Holds the built-in class; absent from Python 3.10, where the package ``exceptiongroup`` has a class."""
_arguments = BaseException.__dict__["args"].__get__
_traceback = BaseException.__dict__["__traceback__"].__get__
_exit_code = SystemExit.__dict__["code"].__get__
"""Read fields of an exception without asking properties of the exception's class."""
_EXITS = frozenset({"click.exceptions.Exit", "typer.exceptions.Exit"})
"""Lists the exceptions with which a command ends itself, before click turns the exception into a ``SystemExit``."""
_CANCELLATIONS = frozenset({"trio.Cancelled", "concurrent.futures._base.CancelledError", "greenlet.GreenletExit"})
"""Lists the exceptions that cancel, besides asyncio's."""


outcomes: dict[str, str] = {}
"""Map the qualified name of an exception to an outcome (``outcomes`` of the specs). A library leaves a call that did
not fail by such an exception."""


class Failure(Exception):
    """Ends a call that failed though nothing was raised."""

    def __init__(self, kind: str, *message: str) -> None:
        """Name the ``kind`` that is recorded instead of the exception's type: neither redacted nor left out with the
        content."""
        super().__init__(*message)
        self.kind = kind


def without_frame(error: BaseException) -> tuple[type, BaseException, Any]:
    """Take the first entry (the wrapper's) off the traceback of ``error``. Return the type, the error and the
    traceback: with these three, Python 3.10 raises the error again (``template``, ``frames``)."""
    trace = getattr(_traceback(error), "tb_next", None)
    BaseException.with_traceback(error, trace)
    return type(error), error, trace


def outcome_of(error: BaseException) -> str | None:
    """Return the outcome of a call that ``error`` ended though the call did not fail. Returns None for a call that
    failed or was cancelled."""
    kind = type(error)  # ``isinstance`` may ask the error
    if issubclass(kind, SystemExit):
        code = _exit_code(error)
        return "exited" if code is None or _is_zero(code) else None
    if qualified_name(kind) in _EXITS:
        return "exited" if _is_zero(_stored(error, "exit_code")) else None
    named = (outcomes.get(qualified_name(kind)) for kind in mro_of(type(error))) if outcomes else ()
    return next(filter(None, named), None)


def _stored(error: BaseException, name: str) -> Any:
    """Return what the slot or the dictionary of ``error`` holds under ``name``."""
    slot = attribute_of(type(error), name)
    return slot.__get__(error) if type(slot) is MemberDescriptorType else member(error, name)


def _is_zero(code: Any) -> bool:
    return issubclass(type(code), int) and int.__eq__(code, 0)


class NotRecorded(Exception):
    """End a call whose beginning was queued before autotrace failed."""


def status_of(error: BaseException) -> str:
    """Return the status of a call that ``error`` ended. The status of a group is the status that all errors of the
    group have in common."""
    kind = type(error)
    if issubclass(kind, (KeyboardInterrupt, NotRecorded)):
        return "INTERRUPTED"
    if issubclass(kind, (asyncio.CancelledError, GeneratorExit)):
        return "CANCELLED"
    names = [qualified_name(each) for each in mro_of(kind)]
    if not _CANCELLATIONS.isdisjoint(names):
        return "CANCELLED"
    if (group := _members(error)) is not None:
        statuses = {status_of(each) for each in _leaves(group[1])}
        return statuses.pop() if len(statuses) == 1 else "ERROR"
    if issubclass(kind, (TimeoutError, asyncio.TimeoutError)) or name_of(kind).endswith(("Timeout", "TimeoutError")):
        return "TIMEOUT"
    return "ERROR"


def described(error: BaseException) -> tuple[str, Any, list[tuple[str, int | None, str]]]:
    """Return type, arguments and frames without keeping the traceback (a traceback would keep the host's locals
    alive)."""
    frames: list[tuple[str, int | None, str]] = []
    trace = _traceback(error)
    while trace is not None and len(frames) < _MAX_FRAMES:
        code, at = trace.tb_frame.f_code, trace.tb_lineno
        trace = trace.tb_next
        is_wrapper = code.co_filename.startswith(IN_PLACE) and trace is not None  # the original is the next frame
        if not is_wrapper or trace.tb_frame.f_code.co_name != code.co_name:
            frames.append((code.co_filename, at, code.co_name))
    kind = type(error)
    title = error.kind if type(error) is Failure else qualified_name(kind).removeprefix("builtins.")
    return title, _message(error, kind), frames


def reported(result: Any) -> tuple[str, Any, list[tuple[str, int | None, str]]]:
    """Describe a failure that the tool's result reports, as if the failure had been raised: the texts of ``content``,
    or the text of the field for errors."""
    known = (member(result, name) for name in ("content", "error", "exception_info"))
    content = next((one for one in known if type(one) in (str, list) and one), None)
    parts = content if type(content) is list else [{"text": content}]
    texts = [text for part in parts[:_MAX_FRAMES] if type(text := member(part, "text")) is str]
    return "ToolError", snapshot(("\n".join(texts),) if texts else (), _LIMITS), []


def _message(error: BaseException, kind: type[BaseException]) -> Any:
    """Return the error's arguments. An error without arguments whose class has a ``__str__`` is described by the text,
    if no code of the host's writes the text (urllib's ``HTTPError``), or else by the stored fields."""
    try:
        group = _members(error)
        if group is not None:
            return snapshot(("\n".join(islice(_lines(*group), _MAX_LINES)),), _LIMITS)
        arguments = _arguments(error)
        speaks = attribute_of(kind, "__str__")
        if arguments or speaks is BaseException.__str__:
            return snapshot(arguments, _LIMITS)
        if qualified_name(kind).startswith("pydantic_core.") and name_of(kind) == "ValidationError":
            return [_invalid(error)]
        if _is_pythons_own(speaks):
            return [speaks(error)]
        stored = dict(dict.items(layout_of(kind).stored(error)))
        return [snapshot(stored, _LIMITS)] if stored else []
    except Exception as again:
        faults.failed("message", again)
        return []


def _leaves(members: Any) -> list[BaseException]:
    """Return the first errors below a group that are not groups, each error once: a group may hold another group many
    times."""
    waiting, leaves = deque(members), []
    seen: set[int] = set()
    while waiting and len(seen) < _MAX_LINES:
        error = waiting.popleft()
        if id(error) not in seen:
            seen.add(id(error))
            group = _members(error)
            if group is None:
                leaves.append(error)
            else:
                waiting.extend(group[1][:_MAX_LINES])
    return leaves


def _members(error: BaseException) -> tuple[Any, Any] | None:
    """Return message and members of an exception group; None for any other error."""
    if _group is not None and issubclass(type(error), _group):
        return tuple(_group.__dict__[name].__get__(error) for name in ("message", "exceptions"))
    members = member(error, "_exceptions")
    return (member(error, "_message"), members) if type(members) is tuple else None


def _lines(message: Any, members: Any, depth: int = 1) -> Iterator[str]:
    """Yield the text of an exception group: a line for the group, and lines below for each member."""
    yield f"{snapshot(message, _LIMITS)} ({len(members)} sub-exception{'s' * (len(members) != 1)})"
    if depth == _MAX_NESTED:
        return
    for error in members[:_MAX_MEMBERS]:
        kind, group = type(error), _members(error)
        name = qualified_name(kind).removeprefix("builtins.")
        lines = _lines(*group, depth + 1) if group else iter([", ".join(map(str, _message(error, kind)))])
        yield f"  {name}: {next(lines)}"
        yield from (f"  {line}" for line in lines)
    if len(members) > _MAX_MEMBERS:
        yield f"  {len(members) - _MAX_MEMBERS} more"


def _invalid(error: Any) -> str:
    """Return pydantic's findings without the values: the text of the error has the ``repr`` of each value, and ``repr``
    is the host's code."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[:_MAX_FRAMES]
    lines = [f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in found]
    return "\n".join([f"{error.error_count()} validation errors for {error.title}", *lines])


def _is_pythons_own(method: Any) -> bool:
    """Tells whether a method is a method in C, or of the standard library."""
    if type(method) is not FunctionType:
        return type(method) is WrapperDescriptorType
    module = method.__module__
    return type(module) is str and module.partition(".")[0] in sys.stdlib_module_names
