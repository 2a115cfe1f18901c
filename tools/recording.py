"""The terminal recording of the first page: ``make recording``. Commands run in a real terminal on the demo's run; what
they print becomes an asciicast (version 2) and a GIF.

    python tools/recording.py FOLDER        # writes FOLDER/demo.cast and FOLDER/demo.gif
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

import pyte
from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 112, 33
COMMANDS = (
    "autotrace demo --run-dir runs | head -30",
    "autotrace steps runs",
    "autotrace diagnose runs --code AT-TOOL-RAISES | head -8",
    "autotrace show runs --where \"finding = 'AT-TOOL-RAISES'\" --worst | head -32",
)
A_KEY, READ = 0.03, 4.0
"""Seconds between two keys, and for reading what a command printed."""
FONT, SIZE = "DejaVuSansMono", 13
DARK, LIGHT = (24, 26, 31), (214, 216, 220)
NAMED = {"black": (24, 26, 31), "red": (232, 105, 105), "green": (120, 190, 120), "brown": (224, 178, 88),
         "blue": (110, 160, 235), "magenta": (200, 130, 210), "cyan": (96, 190, 200), "white": LIGHT}  # fmt: skip

Event = tuple[float, str]
"""Seconds since the begin, and what was printed."""


def recorded() -> list[Event]:
    """The commands, typed and run one after the other."""
    events: list[Event] = []
    now = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS:
            events.append((now, "\x1b[2J\x1b[H\x1b[1;32m$\x1b[0m "))
            for key in command:
                now += A_KEY
                events.append((now, key))
            events.append((now, "\r\n"))
            begin = time.monotonic()
            events += [(now + at - begin, text) for at, text in _printed(command, folder)]
            now += time.monotonic() - begin + READ
    return [*events, (now, "")]


def _printed(command: str, folder: str) -> Iterator[Event]:
    """What ``command`` prints in a terminal, as it comes."""
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(folder)
        os.environ |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "xterm-256color",
                       "COLUMNS": str(WIDTH), "FORCE_COLOR": "1"}  # fmt: skip
        os.execvp("bash", ["bash", "-c", command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        yield time.monotonic(), decoder.decode(data)
    os.close(terminal)
    if os.waitpid(pid, 0)[1]:
        raise SystemExit(f"{command}: failed")


def cast(events: list[Event]) -> str:
    """As an asciicast."""
    head = {"version": 2, "width": WIDTH, "height": HEIGHT, "title": "autotrace demo"}
    return "\n".join(json.dumps(line) for line in [head, *([round(at, 3), "o", text] for at, text in events)]) + "\n"


def frames(events: list[Event]) -> tuple[list[Image.Image], list[int]]:
    """Pictures of the terminal, and the milliseconds of each. Keys are shown three at a time."""
    screen = pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.Stream(screen)
    pictures, lengths, waited = [], [], 0.0
    for (at, text), (following, _) in pairwise(chain(events, [(events[-1][0] + 1, "")])):
        stream.feed(text)
        waited += following - at
        if waited >= 3 * A_KEY:
            pictures.append(_picture(screen))
            lengths.append(int(1000 * waited))
            waited = 0.0
    return pictures, lengths


def _picture(screen: pyte.Screen) -> Image.Image:
    font = ImageFont.truetype(f"{FONT}.ttf", SIZE)
    bold = ImageFont.truetype(f"{FONT}-Bold.ttf", SIZE)
    wide, high = round(font.getlength("M")), SIZE + 4
    picture = Image.new("RGB", (WIDTH * wide + 16, HEIGHT * high + 16), DARK)
    draw = ImageDraw.Draw(picture)
    for row in range(HEIGHT):
        for column in range(WIDTH):
            cell = screen.buffer[row][column]
            if cell.data.strip():
                place = 8 + column * wide, 8 + row * high
                draw.text(place, cell.data, _colour(cell.fg), bold if cell.bold else font)
    return picture.quantize(32, dither=Image.Dither.NONE)


def _colour(name: str) -> tuple[int, ...]:
    if len(name) == 6 and all(digit in "0123456789abcdef" for digit in name):
        return tuple(bytes.fromhex(name))
    return NAMED.get(name.removeprefix("bright"), LIGHT)


def main(folder: Path) -> None:
    """Write both files."""
    events = recorded()
    (folder / "demo.cast").write_text(cast(events))
    pictures, lengths = frames(events)
    pictures[0].save(
        folder / "demo.gif", save_all=True, append_images=pictures[1:], duration=lengths, loop=0, optimize=True
    )
    for name in ("demo.cast", "demo.gif"):
        print(folder / name, f"{(folder / name).stat().st_size / 1e3:.0f} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
