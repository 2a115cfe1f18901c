"""``--images`` keeps the images of a program's texts; a record without the option has type and size."""

from __future__ import annotations

import base64
import json
import re

from tests.places import Place
from tests.redact.test_images import png

PROGRAM = """
import base64, sys
from PIL import Image

def look(messages, raw, drawn):
    return messages

image = open(sys.argv[1], "rb").read()
uri = "data:image/png;base64," + base64.b64encode(image).decode()
message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": uri}}]}
look([message], image, Image.new("RGB", (30, 20)))
"""
SPEC = "- target: agent.look\n  role: trajectory\n"


def test_a_data_url_longer_than_a_text_may_be_is_kept_on_request(place: Place) -> None:
    image = png(400, 300)
    assert len(base64.b64encode(image)) > 65_536
    place.write("agent.py", PROGRAM)
    place.write("spec.yaml", SPEC)
    (place.cwd / "image.png").write_bytes(image)
    seen = []
    for options in ([], ["--images", "1"]):
        done = place.record(
            ["python", "agent.py", "image.png"], ["--backend", "jsonl", "--spec", "spec.yaml", *options]
        )
        assert done.returncode == 0, done.stderr
        run = max(place.runs())
        (line,) = (run / "trajectories.jsonl").read_text().splitlines()
        inputs = json.loads(line)["spans"][0]["inputs"]
        seen.append((run, inputs["messages"][0]["content"][0]["image_url"]["url"]))
        assert inputs["drawn"] == "<image 30x20, RGB>" and inputs["raw"] == "<image/png 400x300, 120 kB>"
    (bare, described), (kept, named) = seen
    assert described == "<image/png 400x300, 120 kB>" and not list(bare.glob("blobs/image-*"))
    copy = re.fullmatch(r"<image/png 400x300, 120 kB, (blobs/image-[0-9a-f]{32}\.png)>", named)
    assert copy is not None and (kept / copy[1]).read_bytes() == image
