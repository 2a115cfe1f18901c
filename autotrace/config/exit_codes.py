"""Exit codes of ``autotrace-run`` and ``autotrace``; everything else is the command's own."""

from __future__ import annotations

OK = 0
FAILED = 1
"""``autotrace`` found something wrong (``check``: a required miss; ``ship``: something is left)."""
USAGE = 2
"""Wrong option, spec or backend: the command was not started."""
BROKEN = 70
"""A shipper or relay came upon something unforeseen and is to be started again (sysexits.h: internal error)."""
NOT_EXECUTABLE = 126
"""The command exists and cannot be executed (the shells' convention)."""
NOT_FOUND = 127
"""There is no such command (the shells' convention)."""
