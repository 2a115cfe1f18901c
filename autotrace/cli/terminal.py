"""Terminal output: control characters in what a model wrote are shown, never executed.

Model output reaches these commands as it is, and a terminal acts on control characters (it can rewrite earlier lines,
set the title, answer on stdin). ``safe`` makes them visible; all is printed as ``rich.text.Text``, never as markup.
"""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotrace.config import exit_codes

# C0 without tab and newline, DEL, C1; marks that reorder what is read; separators some terminals take for newlines.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")

STATUS_STYLE = {
    "OK": "green", "OPEN": "yellow", "ERROR": "red", "TIMEOUT": "red", "INTERRUPTED": "red", "CANCELLED": "yellow",
}  # fmt: skip


def safe(text: object) -> str:
    """``text`` with every control character written out (``\\x1b``)."""
    return _UNSAFE.sub(lambda match: repr(match[0])[1:-1], str(text))


def one_line(text: object) -> str:
    """``text`` on one line, safe."""
    return safe(text).replace("\n", "\\n").replace("\t", " ")


def line(text: object, style: str = "") -> Text:
    """``text`` on one line, safe."""
    return Text(one_line(text), style=style)


def block(text: object, style: str = "", *, lines: int | None = None, width: int | None = None) -> Text:
    """``text`` with its line breaks, safe; cut to ``lines`` of ``width`` characters, saying how much was left out."""
    whole = safe(text).strip("\n")
    kept = whole.split("\n")
    if lines is not None and len(kept) > lines:
        kept = kept[:lines]
    if width is not None:
        kept = [part if len(part) <= width else part[: width - 1] + "…" for part in kept]
    shown = Text("\n".join(kept), style=style)
    hidden = len(whole) - sum(len(part) + 1 for part in kept) + 1
    if hidden > 0 and "\n".join(kept) != whole:
        shown.append(f"\n… {hidden:,} characters more (--full)", style="dim")
    return shown


def json_line(value: Any) -> str:
    """``value`` as one line of JSON for other programs; in ASCII in a terminal, which acts on what a model wrote."""
    return json.dumps(value, ensure_ascii=sys.stdout.isatty()) + "\n"


def console(*, stderr: bool = False) -> Console:
    """Where commands print. Where there is no terminal and no ``COLUMNS``, nothing is wrapped or cut, so that ``grep``
    sees whole lines."""
    output = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if width(output) is None:
        output.width = max(output.width, 200)
    return output


def width(output: Console) -> int | None:
    """Columns of the terminal, or what ``COLUMNS`` says; None: lines may be as long as they are."""
    return output.width if output.is_terminal or os.environ.get("COLUMNS", "").isdecimal() else None


def table(output: Console, shown: Table) -> None:
    """Print ``shown``; in a pipe without blanks at the ends of lines."""
    if output.is_terminal:
        output.print(shown)
        return
    with output.capture() as capture:
        output.print(shown)
    output.file.writelines(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def status_text(status: str) -> Text:
    """A span's status in its colour."""
    return Text(safe(status), style=STATUS_STYLE.get(status, ""))


def seconds(duration_ns: int | None) -> str:
    """A duration in readable units: ``12 ms``, ``3.4 s``, ``7 min 12 s``; empty for None."""
    if duration_ns is None:
        return ""
    value = duration_ns / 1e9
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(count: int) -> str:
    """Bytes in readable units: ``812 B``, ``3.4 MB``."""
    value, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} B" if unit == "B" else f"{value:.3g} {unit}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 turn``, ``2 turns``; ``many`` where the plural is not made with s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def clock(at_ns: int | None) -> str:
    """Local date and time of a wall-clock instant; empty for None."""
    return "" if at_ns is None else f"{datetime.fromtimestamp(at_ns / 1e9):%Y-%m-%d %H:%M:%S}"


def fail(message: object, code: int = exit_codes.USAGE) -> click.exceptions.Exit:
    """Print one line on stderr; raise what is returned."""
    sys.stdout.flush()
    click.echo(f"autotrace: {safe(message)}", err=True)
    return click.exceptions.Exit(code)
