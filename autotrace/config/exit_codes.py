"""List the exit codes of ``autotrace-run`` and ``autotrace``; every other code is the command's own."""

from __future__ import annotations

OK = 0
FAILED = 1
"""Reports a problem that ``autotrace`` found (``check``: a required miss; ``ship``: undelivered records)."""
USAGE = 2
"""Reports a wrong option, spec or backend: the command was not started."""
BROKEN = 70
"""Asks for a new start after an unforeseen error in a shipper or relay (sysexits.h: internal error)."""
NOT_EXECUTABLE = 126
"""Reports a command that exists and cannot be executed (the shells' convention)."""
NOT_FOUND = 127
"""Reports a command that does not exist (the shells' convention)."""
