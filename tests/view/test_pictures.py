"""Pictures of a conversation: those that were kept, and why others are missing."""

from __future__ import annotations

import base64
import os
import struct
import zlib
from pathlib import Path

import pytest

from autotrace.config.plan import LONGEST_IMAGE
from autotrace.redact.images import without_images
from autotrace.spool.blobs import keep_image
from autotrace.view.pictures import picture


def png(width: int, height: int) -> bytes:
    """A picture of noise."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + os.urandom(3 * width) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def address(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def test_what_was_kept_is_shown(tmp_path: Path) -> None:
    data = png(24, 16)
    assert picture(address(data), None) == address(data)
    left = without_images(address(data), lambda image, kind: keep_image(tmp_path, image, kind))
    assert left.startswith("<image/png 24x16, 1 kB, blobs/image-")
    assert picture(left, tmp_path) == address(data)
    gone = picture(left, tmp_path / "elsewhere")
    assert gone.startswith("image/png 24x16, 1 kB, its copy image-") and gone.endswith("is not in the run folder")


def test_what_was_not_kept_says_why() -> None:
    left = without_images(address(png(240, 160)))
    assert picture(left, None) == "image/png 240x160, 115 kB, not kept: start with --images"
    large = f"<image/png 9000x9000, {LONGEST_IMAGE // 1000} kB>"
    assert "not kept: larger than a picture that --images keeps" in picture(large, None)
    assert picture("<image/jpeg 64x48, RGB>", None) == (
        "image/jpeg 64x48, RGB, not kept: an object, whose pixels are not recorded"
    )
    assert picture("", None) == "nothing of it was recorded"
    assert picture("http://a.example/1.png", None) == "http://a.example/1.png, an address that this page does not open"


@pytest.mark.parametrize(
    "name", ["../secret", "image-" + "0" * 32 + ".png/../../secret", "image-" + "0" * 31 + "/.png"]
)
def test_words_of_a_stranger_open_no_other_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "run" / "blobs").mkdir(parents=True)
    (tmp_path / "run" / "secret").write_text("secret")
    assert not picture(f"<image/png 1x1, 1 kB, blobs/{name}>", tmp_path / "run").startswith("data:")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "secret").write_text("secret")
    name = f"image-{'0' * 32}.png"
    (tmp_path / "blobs" / name).symlink_to(tmp_path / "secret")
    assert picture(f"<image/png 1x1, 1 kB, blobs/{name}>", tmp_path).endswith("is not in the run folder")
