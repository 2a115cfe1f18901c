"""Show an image as ``<image/png 640x480, 123 kB>`` instead of megabytes of base64.

Kind and size come from the first bytes. No other byte is decoded, unless ``--images`` keeps the image in the run
folder. Runs on the flusher's thread.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable

from autotrace.config.plan import LONGEST_IMAGE
from autotrace.config.scalars import cut

LONG = 64
"""Characters of the shortest text that may hold an image."""
Keep = Callable[[bytes, str], str | None]
"""Takes an image and the media type; returns the path of the copy in the run folder, None without a copy."""
_ANY = 200
"""Characters of the shortest base64 that is cut out whatever the kind; an image is cut out from ``_SMALL``."""
_SMALL = 40
_HEAD = 65_536
"""Characters of base64 that are searched for a JPEG's size."""
_ENCODED = ";base64,"
_URI = re.compile(r"data:(?P<kind>[\w.+-]+/[\w.+-]+)?[^,]{0,100};base64,(?P<data>[A-Za-z0-9+/=_\-]{40,})")
_BARE = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
"""Prefixes of base64 of PNG, JPEG, GIF and WebP."""
_WORD = re.compile(r"[A-Za-z0-9+/=\s]+")
# frames of a JPEG that hold its size (SOF0 to SOF15 without DHT, JPG and DAC)
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def may_be_image(text: str) -> bool:
    """Tell whether some part of ``text`` looks like the beginning of an image."""
    return text.startswith(_BARE) or _ENCODED in text


def without_images(text: str, keep: Keep | None = None) -> str:
    """Replace each inline image of ``text`` by kind, size, and the place of the copy if ``keep`` makes a copy."""
    if len(text) < LONG:
        return text
    if _ENCODED in text:
        end, more = cut(text)

        def shown(match: re.Match[str]) -> str:
            words, kind = match["data"], match["kind"] or ""
            if len(words) < _ANY and not kind.startswith("image/"):
                return match[0]
            return _shown(words, kind, more if match.end() == end else 0, keep)

        replaced = _URI.sub(shown, text[:end])
        return replaced if not more or replaced.endswith(">") else replaced + text[end:]
    if len(text) >= _ANY and text.startswith(_BARE):
        end, more = cut(text)
        if _WORD.fullmatch(text, 0, end) is not None:
            return _shown(text[:end], None, more, keep)
    return text


def described(data: bytes) -> str | dict[str, str]:
    """Describe an image as ``<image/png 640x480, 123 kB>``, and other bytes as ``{"…": "123 bytes"}``."""
    kind, size = _looked_at(data[:_HEAD])
    return {"…": f"{len(data)} bytes"} if kind is None else f"<{kind}{size}, {_amount(len(data))}>"


def _shown(words: str, kind: str | None, more: int, keep: Keep | None) -> str:
    """Describe the image in ``words``. ``more``: the number of characters that were cut off."""
    head = decoded(words[:_HEAD])
    media_type, size = _looked_at(head)
    copy = None
    if keep is not None and media_type is not None and not more and len(words) <= LONGEST_IMAGE:
        copy = keep(head if len(words) <= _HEAD else decoded(words), media_type)
    amount = _amount((len(words.rstrip("=")) + more) * 3 // 4)
    return f"<{media_type or kind or 'data'}{size}, {amount}{f', {copy}' if copy else ''}>"


def decoded(words: str) -> bytes:
    """Decode base64; empty if ``words`` is something else."""
    plain = "".join(words.split()).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain[: len(plain) - (len(plain) % 4 == 1)] + "=" * (-len(plain) % 4))
    except (binascii.Error, ValueError):
        return b""


def _amount(count: int) -> str:
    return f"{count} bytes" if count < 1000 else f"{count // 1000} kB"


def _looked_at(head: bytes) -> tuple[str | None, str]:
    """Return the media type and `` WIDTHxHEIGHT`` (empty if the header has no size)."""
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
