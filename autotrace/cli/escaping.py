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

UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""Match C0 without tab and newline, DEL, C1; marks that reorder what is read; separators that some terminals take for
newlines; characters without width, which make different names look alike, or hide text."""
_JOINER, _VARIANT = re.compile("[\u200c\u200d]"), re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Match characters without width that belong between, or behind, two characters of emoji and of some scripts."""


def safe(text: object) -> str:
    """Return ``text`` with every unsafe character written out (``\\x1b``). A joiner stays between two characters that
    are not ASCII, and a single selector of a variant stays behind such a character."""
    return UNSAFE.sub(_shown, str(text))


def _shown(match: re.Match[str]) -> str:
    one, text, at = match[0], match.string, match.start()
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    is_behind = before > "~" and (not UNSAFE.match(before) or bool(_VARIANT.match(before) and _JOINER.match(one)))
    is_keycap = before in "0123456789#*" and after == "\u20e3"
    is_joiner = bool(_JOINER.match(one)) and after > "~" and not UNSAFE.match(after)
    if (is_keycap and one == "\ufe0f") or (is_behind and (is_joiner or _VARIANT.match(one))):
        return one
    return one.encode("unicode_escape").decode()


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
