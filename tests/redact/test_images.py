"""A record shows an inline image as its kind and size; other texts stay as they are."""

from __future__ import annotations

import base64
import struct
import zlib
from functools import partial
from pathlib import Path

from autotrace.config.plan import Settings
from autotrace.config.scalars import shortened
from autotrace.redact.images import described, without_images
from autotrace.redact.redactor import Redactor
from autotrace.spool.blobs import keep_image


def png(width: int, height: int) -> bytes:
    """A PNG of noise that compresses badly enough to be long."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    noise = bytes((n * n * 7919 >> 3) & 255 for n in range(width * height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", noise) + chunk(b"IEND", b"")


JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(9) + b"\xff\xc0\x00\x11\x08\x01\xe0\x02\x80\x03" + bytes(2000)
IMAGE = png(64, 48)


def test_a_data_uri_inside_of_a_text() -> None:
    uri = "data:image/png;base64," + base64.b64encode(IMAGE).decode()
    shown = without_images(f"look: {uri} what is it?")
    assert shown == "look: <image/png 64x48, 3 kB> what is it?"


def test_base64_alone_and_bytes() -> None:
    assert without_images(base64.b64encode(JPEG).decode()) == "<image/jpeg 640x480, 2 kB>"
    assert described(IMAGE) == "<image/png 64x48, 3 kB>"
    assert described(b"abc") == {"…": "3 bytes"}
    assert described(IMAGE[:12]) == "<image, 12 bytes>"


def test_the_smallest_image_is_described() -> None:
    uri = "data:image/png;base64," + base64.b64encode(png(1, 1)).decode()
    assert without_images(uri) == f"<image/png 1x1, {len(png(1, 1))} bytes>"
    assert without_images(uri.replace("image/png", "text/plain")) == uri.replace("image/png", "text/plain")


def test_an_image_is_kept_once_by_digest(tmp_path: Path) -> None:
    keep = partial(keep_image, str(tmp_path))
    uri = "data:image/png;base64," + base64.b64encode(IMAGE).decode()
    shown = [without_images(text, keep) for text in (uri, f"twice {uri}", base64.urlsafe_b64encode(IMAGE).decode())]
    (copy,) = (tmp_path / "blobs").iterdir()
    assert copy.read_bytes() == IMAGE and copy.stat().st_mode & 0o777 == 0o600
    described = f"<image/png 64x48, 3 kB, blobs/{copy.name}>"
    assert shown[:2] == [described, f"twice {described}"]
    # an image that is cut off, or that no disk takes, has no copy
    assert without_images(shortened(uri, len(uri) - 9), keep) == "<image/png 64x48, 3 kB>"
    (tmp_path / "file").touch()
    assert without_images(uri, partial(keep_image, str(tmp_path / "file"))) == "<image/png 64x48, 3 kB>"


def test_texts_are_left_alone() -> None:
    for text in ("iVBORw0KGgo is how a PNG begins. " * 50, "x" * 5000, "data:image/png;base64,short"):
        assert without_images(text) == text


def test_no_record_holds_an_image() -> None:
    uri = "data:image/png;base64," + base64.b64encode(png(300, 300)).decode()
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": uri}}, {"image": IMAGE}]}
    cleaned = Redactor(Settings()).clean("messages", [message])
    assert cleaned[0]["content"] == [
        {"type": "image_url", "image_url": {"url": "<image/png 300x300, 90 kB>"}},
        {"image": "<image/png 64x48, 3 kB>"},
    ]
