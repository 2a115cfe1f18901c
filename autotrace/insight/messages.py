"""Messages of errors, told apart by what they have in common."""

from __future__ import annotations

import re

from autotrace.trajectory.model import Span

_TIMEOUT = re.compile(r"timed?out|deadline|timelimit", re.IGNORECASE)
"""In the name of an exception's class."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def classed(message: str) -> str:
    """A message without what differs from call to call: numbers, quoted parts, addresses."""
    short = message.strip().splitlines()[0][:200] if message.strip() else ""
    return _NUMBER.sub("#", _QUOTED.sub("'…'", _ADDRESS.sub("#", short)))[:120]


def is_timeout(span: Span) -> bool:
    """It ended because time was up."""
    return span.status == "TIMEOUT" or (
        span.error is not None and _TIMEOUT.search(span.error[0].rpartition(".")[2]) is not None
    )
