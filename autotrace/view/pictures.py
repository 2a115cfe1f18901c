"""Show the pictures of a conversation that were kept, and say what the others are and why they are missing."""

from __future__ import annotations

import base64
import contextlib
import re
from pathlib import Path

from autotrace.config.plan import LONGEST_IMAGE
from autotrace.run import files, layout

_DATA = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+\Z")
_COPY = re.compile(r"image-[0-9a-f]{32}\.(png|jpeg|gif|webp)")
_LEFT_OUT = re.compile(
    r"<(?P<what>image[^<>,]*, (?:(?P<size>\d+) (?P<unit>bytes|kB)|\w+))"
    rf"(?:, {layout.BLOBS}/(?P<copy>{_COPY.pattern}))?>"
)
"""Words instead of a picture: ``<image/png 240x160, 108 kB>`` (``redact.images``), ``<image 240x160, RGB>``."""
MAX_ADDRESS = 200
"""Characters that are shown of an address."""


def picture(source: str) -> str | dict[str, str]:
    """Return a data URL if the record has the data of the picture; otherwise what is known about the picture, and why
    the picture is missing; ``{what, copy}`` if the run folder has a copy, for ``copied``. ``source``: what a message
    has of the picture."""
    if _DATA.match(source):
        return source
    if not source:
        return "nothing of it was recorded"
    if (known := _LEFT_OUT.fullmatch(source)) is None:
        return f"{source[:MAX_ADDRESS]}, an address that this page does not open"
    if known["copy"] is None:
        return f"{known['what']}, not kept: {_reason(known['size'], known['unit'])}"
    return {"what": known["what"], "copy": known["copy"]}


def copied(name: str, folder: Path) -> str:
    """Return a data URL of the copy ``name`` in the run folder ``folder``, or a sentence. A copy that many messages
    name is read, and sent, once."""
    data = b""
    if kind := _COPY.fullmatch(name):
        with contextlib.suppress(OSError):
            data = files.read(folder, layout.BLOBS, name, most=LONGEST_IMAGE)
    if not kind or not data:
        return f"its copy {name[:MAX_ADDRESS]} is not in the run folder"
    return f"data:image/{kind[1]};base64,{base64.b64encode(data).decode()}"


def _reason(size: str | None, unit: str | None) -> str:
    if size is None:
        return "an object, whose pixels are not recorded"
    amount = int(size) * (1000 if unit == "kB" else 1)
    return "larger than a picture that --images keeps" if amount > LONGEST_IMAGE * 3 // 4 else "start with --images"
