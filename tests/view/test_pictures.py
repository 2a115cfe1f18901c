"""Pictures of a conversation: those that were kept, and why others are missing."""

from __future__ import annotations

import base64
import contextlib
import os
import struct
import zlib
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from autotrace.config.plan import LONGEST_IMAGE
from autotrace.redact.images import without_images
from autotrace.ship.readers import of_run
from autotrace.spool.blobs import keep_image
from autotrace.tables.conditions import EVERY
from autotrace.view import one_file
from autotrace.view.app import application
from autotrace.view.pictures import copied, picture
from tests.ship.spools import Process, attributes, new_run


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
    assert picture(address(data)) == address(data)
    left = without_images(address(data), lambda image, kind: keep_image(tmp_path, image, kind))
    assert left.startswith("<image/png 24x16, 1 kB, blobs/image-")
    kept = picture(left)
    assert isinstance(kept, dict) and kept["what"] == "image/png 24x16, 1 kB"
    assert copied(kept["copy"], tmp_path) == address(data)
    assert copied(kept["copy"], tmp_path / "elsewhere") == f"its copy {kept['copy']} is not in the run folder"


def test_what_was_not_kept_says_why() -> None:
    left = without_images(address(png(240, 160)))
    assert picture(left) == "image/png 240x160, 115 kB, not kept: start with --images"
    large = f"<image/png 9000x9000, {LONGEST_IMAGE // 1000} kB>"
    assert "not kept: larger than a picture that --images keeps" in picture(large)
    assert picture("<image/jpeg 64x48, RGB>") == (
        "image/jpeg 64x48, RGB, not kept: an object, whose pixels are not recorded"
    )
    assert picture("") == "nothing of it was recorded"
    assert picture("http://a.example/1.png") == "http://a.example/1.png, an address that this page does not open"


@pytest.mark.parametrize(
    "name", ["../secret", "image-" + "0" * 32 + ".png/../../secret", "image-" + "0" * 31 + "/.png"]
)
def test_words_of_a_stranger_open_no_other_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "run" / "blobs").mkdir(parents=True)
    (tmp_path / "run" / "secret").write_text("secret")
    assert isinstance(picture(f"<image/png 1x1, 1 kB, blobs/{name}>"), str)
    assert not copied(name, tmp_path / "run").startswith("data:")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "secret").write_text("secret")
    name = f"image-{'0' * 32}.png"
    (tmp_path / "blobs" / name).symlink_to(tmp_path / "secret")
    assert copied(name, tmp_path) == f"its copy {name} is not in the run folder"


def test_a_copy_that_is_named_again_and_again_is_sent_once(tmp_path: Path) -> None:
    run, data = new_run(tmp_path), os.urandom(1 << 20)
    copy = keep_image(run, data, "image/png")
    source = {"type": "image_url", "image_url": {"url": f"<image/png 9x9, 1048 kB, {copy}>"}}
    messages = [{"role": "user", "content": [source] * 2_000}]
    process = Process(run)
    root = process.open(b"\1" * 16, "trajectory", attributes=attributes())
    turn = process.open(b"\1" * 16, "llm", root, inputs={"messages": messages})
    process.close(b"\1" * 16, turn, output={"choices": [{"message": {"role": "assistant", "content": "Noise."}}]})
    process.close(b"\1" * 16, root)
    process.exit()
    with contextlib.closing(of_run(run)) as reader:
        page = sum(map(len, one_file.written(reader, EVERY, reader.select())))
        assert len(data) < page < 4 * len(data)
    with TestClient(application(run)) as client:
        (one,) = client.get("/api/runs").json()["runs"]
        shown = client.get(f"/api/runs/{one['run']}/traces/{'01' * 16}")
        kept = [of for item in shown.json()["conversation"] for of in item.get("pictures", ())]
        assert len(kept) == 2_000 and len(shown.content) < len(data)
        answer = client.get(f"/api/runs/{one['run']}/pictures/{kept[0]['copy']}")
        assert answer.json() == address(data)
