"""Show control characters instead of sending control characters. All output of commands passes through this module.

Model output reaches the commands unchanged, and a terminal acts on control characters (which can rewrite earlier lines,
set the title, answer on stdin). Styles of the console bypass the module (``terminal.console``).
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

# C0 without tab and newline, DEL, C1; marks that reorder what is read; separators some terminals take for newlines.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def safe(text: object) -> str:
    """Return ``text`` with every control character written out (``\\x1b``)."""
    return UNSAFE.sub(lambda match: repr(match[0])[1:-1], str(text))


class Escaped:
    """Writes only ``safe`` text to ``stream``."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write ``text`` safely. Raises ``TypeError`` for bytes, as text streams do."""
        encoding = self.stream.encoding or "utf-8"
        self.stream.write(safe(text + "").encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of ``lines``."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def raw(stream: Any) -> TextIO:
    """Return the stream below an ``Escaped`` stream, for data that nobody sees and for safe text."""
    return stream.stream if isinstance(stream, Escaped) else stream


@contextlib.contextmanager
def escaped() -> Iterator[None]:
    """Replace standard output and error by ``Escaped`` streams for a while."""
    out, err = Escaped(raw(sys.stdout)), Escaped(raw(sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield
