"""Handle model calls outside any recorded call. Where no spec names a root, the calls get a root from their
conversation (``conversation_roots``). Elsewhere the calls of clients (``inside`` of a spec) are not recorded. A report
says so once a process and target, with the functions that a spec could name."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from hashlib import blake2b
from types import CodeType, FrameType
from typing import Any

from autotrace.record import faults
from autotrace.record.backlog import backlog
from autotrace.record.snapshot import Limits, snapshot
from autotrace.run.losses import OUTSIDE_OF
from autotrace.run.process import program
from autotrace.spool.records import CALLED_BY, OUTSIDE

MOST = 5
"""Limits the functions that are named."""
MAX_DEPTH = 1_000
_FIRST = Limits(4, 16, 4096)
NAMES = ("messages", "input", "prompt", "contents")
"""Lists the arguments that hold a conversation."""
SYSTEM = ("system", "developer")
"""Lists the roles of prompts that may hold the time of day."""
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep
_LIBRARIES = (_OWN, _STANDARD, f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_MAINS = ("__main__", "__mp_main__")


_roots: tuple[int, tuple[str, ...] | None] = (0, None)
"""Holds (number of targets, libraries for which the shipped specs name roots); None: the user names a root."""


def rooted(probes: Mapping[str, Any]) -> bool:
    """Tells whether a call outside any recorded call gets a root from its conversation, because no spec names a root
    here."""
    global _roots
    if _roots[0] != len(probes):
        named = [probe for probe in [*probes.values()] if probe.is_root or (probe.row and probe.row.is_root)]
        libraries = {probe.key.replace(":", ".").partition(".")[0] for probe in named}
        _roots = len(probes), tuple(libraries) if all(probe.is_shipped for probe in named) else None
    return _roots[1] is not None and not any(library in sys.modules for library in _roots[1])


def asked(arguments: Mapping[str, Any]) -> str:
    """Return the digest that such a call is sampled by: the beginning of the conversation, which later calls repeat."""
    given = next((arguments[name] for name in NAMES if name in arguments), None)
    if isinstance(given, (list, tuple)):
        given = next((one for one in given if not (isinstance(one, dict) and dict.get(one, "role") in SYSTEM)), None)
    copied = snapshot(given, _FIRST)  # no code of the host's runs
    data = os.urandom(8) if given is None else str(copied).encode("utf-8", "replace")
    return blake2b(data, digest_size=8).hexdigest()


def met(probe: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count a call of ``probe``'s target outside any recorded call, and report the callers of the first such call."""
    if probe.follower is not None and not probe.follower.admits(args, kwargs):
        return
    faults.count(OUTSIDE_OF + probe.key.replace(":", ".").partition(".")[0])
    if not probe.has_met_outside:
        probe.has_met_outside = True
        backlog.wake()
        backlog.report(probe.key, CALLED_BY.join(_callers()), OUTSIDE, "")


def is_running(modules: tuple[str, ...]) -> bool:
    """Tells whether a function of a module whose name begins with a name of ``modules`` is running in this thread."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MAX_DEPTH):
        if frame is None:
            break
        name = frame.f_globals.get("__name__")
        if type(name) is str and name.startswith(modules):
            return True
        frame = frame.f_back
    return False


def _callers() -> list[str]:
    """Return the user's functions that are running in this thread, outermost first, as a spec names functions."""
    names: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MAX_DEPTH):
        if frame is None:
            break
        name = None if _is_a_librarys(frame.f_code) else _name_of(frame)
        if name is not None and name not in names:
            names.append(name)
        frame = frame.f_back
    return names[::-1][:MOST]


def _is_a_librarys(code: CodeType) -> bool:
    file = code.co_filename
    return file.startswith("<") or any(part in file for part in _LIBRARIES)


def _name_of(frame: FrameType) -> str | None:
    """Return ``module.Class.function``; None for a function that a spec cannot name."""
    module = frame.f_globals.get("__name__")
    if module in _MAINS:
        kind, word = program(sys.orig_argv)
        file = os.path.basename(frame.f_code.co_filename)
        module = word if kind == "m" else file[:-3] if file.endswith(".py") else None
    name = getattr(frame.f_code, "co_qualname", None) or _qualname(frame)
    return f"{module}.{name}" if type(module) is str and module and "<" not in name else None


def _qualname(frame: FrameType) -> str:
    """Compute the qualified name that Python 3.10 lacks: the class of a method is the class of the first argument."""
    code = frame.f_code
    first = code.co_varnames[:1] if code.co_argcount else ()
    if first not in (("self",), ("cls",)):
        return code.co_name
    value = frame.f_locals.get(first[0])
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__qualname__}.{code.co_name}"
