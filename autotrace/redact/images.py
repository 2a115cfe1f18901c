"""Images as people read them: ``<image/png 640x480, 123 kB>`` instead of megabytes of base64.

Kind and size come from the first bytes; nothing is decoded but those. Runs on the flusher's thread.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct

from autotrace.config.scalars import cut

LONG = 400
"""Characters from which a string is looked at."""
_HEAD = 65_536
"""Characters of base64 in which a JPEG's size is looked for."""
_ENCODED = ";base64,"
_URI = re.compile(r"data:(?P<kind>[\w.+-]+/[\w.+-]+)?[^,]{0,100};base64,(?P<data>[A-Za-z0-9+/=_\-]{200,})")
_BARE = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
"""How base64 of PNG, JPEG, GIF and WebP begins."""
_WORD = re.compile(r"[A-Za-z0-9+/=\s]+")
# frames of a JPEG that hold its size (SOF0 to SOF15 without DHT, JPG and DAC)
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def may_be_image(text: str) -> bool:
    """Whether something in ``text``, or its beginning, looks like the beginning of an image."""
    return text.startswith(_BARE) or _ENCODED in text


def without_images(text: str) -> str:
    """``text`` with inline images replaced by what they are."""
    if len(text) < LONG:
        return text
    if _ENCODED in text:
        end, more = cut(text)
        shown = _URI.sub(
            lambda match: _shown(match["data"], match["kind"], more if match.end() == end else 0), text[:end]
        )
        return shown if not more or shown.endswith(">") else shown + text[end:]
    if text.startswith(_BARE):
        end, more = cut(text)
        if _WORD.fullmatch(text, 0, end) is not None:
            return _shown(text[:end], None, more)
    return text


def described(data: bytes) -> str:
    """``image/png 640x480, 123 kB``, or ``123 bytes`` for anything else."""
    kind, size = _looked_at(data[:_HEAD])
    if kind is None:
        return f"{len(data)} bytes"
    return f"{kind}{size}, {_amount(len(data))}"


def _shown(words: str, kind: str | None, more: int) -> str:
    """``more``: characters that were cut off behind ``words``."""
    head = "".join(words[:_HEAD].split()).replace("-", "+").replace("_", "/")
    try:
        media_type, size = _looked_at(base64.b64decode(head[: len(head) // 4 * 4]))
    except (binascii.Error, ValueError):
        media_type, size = None, ""
    return f"<{media_type or kind or 'data'}{size}, {_amount((len(words) + more) * 3 // 4)}>"


def _amount(count: int) -> str:
    return f"{count} bytes" if count < 1000 else f"{count // 1000} kB"


def _looked_at(head: bytes) -> tuple[str | None, str]:
    """Media type and `` WIDTHxHEIGHT`` (empty where the header does not give it)."""
    try:
        if head.startswith(b"\x89PNG\r\n\x1a\n"):
            return "image/png", " {}x{}".format(*struct.unpack(">II", head[16:24]))
        if head.startswith(b"GIF8"):
            return "image/gif", " {}x{}".format(*struct.unpack("<HH", head[6:10]))
        if head.startswith(b"\xff\xd8\xff"):
            return "image/jpeg", _jpeg(head)
        if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
            return "image/webp", ""
    except struct.error:  # cut off before its size
        return "image", ""
    return None, ""


def _jpeg(head: bytes) -> str:
    at = 2
    while at + 9 < len(head) and head[at] == 0xFF:
        marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
        if marker in _FRAMES:
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return f" {width}x{height}"
        at += 2 + length
    return ""
