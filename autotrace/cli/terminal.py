"""Print for people: texts for a terminal, readable units, and a progress line on stderr for a long command.

All output is ``rich.text.Text``, never markup, and is made safe on the way out (``escaping``).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click
from rich import filesize
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from autotrace.cli.escaping import UNSAFE, raw
from autotrace.cli.escaping import safe as safe
from autotrace.config import exit_codes
from autotrace.trajectory.span_text import counted as counted

STATUS_STYLE = {
    "OK": "green", "OPEN": "yellow", "ERROR": "red", "TIMEOUT": "red", "INTERRUPTED": "red", "CANCELLED": "yellow",
}  # fmt: skip


def one_line(text: object) -> str:
    """Put ``text`` on one line, safe."""
    return safe(text).replace("\n", "\\n").replace("\t", " ")


def line(text: object, style: str = "") -> Text:
    """Put ``text`` on one styled line, safe."""
    return Text(one_line(text), style=style)


def block(text: object, style: str = "", *, lines: int | None = None, width: int | None = None) -> Text:
    """Return ``text`` with line breaks, safe; cut to ``lines`` of ``width`` characters, with the number of characters
    left out."""
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
    """Return ``value`` as one line of JSON for other programs; JSON escapes replace characters that a terminal acts
    on."""
    return UNSAFE.sub(_as_json, json.dumps(value, ensure_ascii=False)) + "\n"


def _as_json(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if match[0] > "\x7f" else f"\\u{ord(match[0]):04x}"


class SafeConsole(Console):
    """Sends no control character except in the console's own styles."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as ``Console`` does."""
        for segment in super().render(renderable, options):
            unsafe = not segment.control and UNSAFE.search(segment.text)
            yield Segment(safe(segment.text), segment.style) if unsafe else segment


def console(*, stderr: bool = False) -> Console:
    """Build the console of commands. Without a terminal and without ``COLUMNS``, nothing is wrapped or cut, so that
    ``grep`` sees whole lines."""
    file = raw(sys.stderr if stderr else sys.stdout)
    output = SafeConsole(file=file, stderr=stderr, highlight=False, markup=False, emoji=False)
    if width(output) is None:
        output.width = max(output.width, 200)
    return output


def width(output: Console) -> int | None:
    """Return the columns of the terminal, or of ``COLUMNS``; None: lines may be as long as needed."""
    return output.width if output.is_terminal or os.environ.get("COLUMNS", "").isdecimal() else None


_TRAILING = re.compile(r"(?: |\x1b\[[0-9;]*m)+\n\Z")
"""Blanks, and marks of styles between them, at the end of a line."""


def table(output: Console, shown: Table) -> None:
    """Print ``shown`` without blanks at the ends of lines."""
    with output.capture() as capture:
        output.print(shown)
    lines = capture.get().splitlines(keepends=True)
    output.file.writelines(_TRAILING.sub(lambda match: match[0].replace(" ", ""), line) for line in lines)


def status_text(status: str) -> Text:
    """Return a span's status in colour."""
    return Text(safe(status), style=STATUS_STYLE.get(status, ""))


def seconds(duration_ns: int | None) -> str:
    """Format a duration in readable units: ``12 ms``, ``3.4 s``, ``7 min 12 s``; empty for None."""
    if duration_ns is None:
        return ""
    value = duration_ns / 1e9
    if value < 1:
        return f"{round(value * 1e3, 5):.3g} ms"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


size = filesize.decimal
"""Formats bytes in readable units: ``812 bytes``, ``3.4 MB``."""


def clock(at_ns: int | None) -> str:
    """Format a wall-clock instant as local date and time; empty for None."""
    return "" if at_ns is None else f"{datetime.fromtimestamp(at_ns / 1e9):%Y-%m-%d %H:%M:%S}"


def fail(message: object, code: int = exit_codes.USAGE) -> click.exceptions.Exit:
    """Print one line on stderr; return the exception to raise."""
    sys.stdout.flush()
    click.echo(f"autotrace: {safe(message)}", err=True)
    return click.exceptions.Exit(code)


def json_option(text: str) -> Callable[[Any], Any]:
    """Return the option ``--json`` of a command; ``text`` describes the output, and the units follow."""
    return click.option("--json", "as_json", is_flag=True, help=f"{text} {UNITS}")


UNITS = "Units end a name: _s seconds, _ns nanoseconds (start and end: since 1970), _bytes; shares are 0 to 1."
Item = TypeVar("Item")

QUIET_FOR = 1.0
"""Seconds before the line appears."""


def shown(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yield ``items`` and count each item when the next is requested; ``what`` names the items: ``trajectories``."""
    if not sys.stderr.isatty():
        yield from items
        return
    began = time.monotonic()
    with contextlib.ExitStack() as line:
        count = None
        for done, item in enumerate(items):
            if count is None and time.monotonic() - began > QUIET_FOR:
                count = line.enter_context(counting(what))
            if count is not None:
                count(done, len(items))
            yield item
        if count is not None:
            count(len(items), len(items))


@contextlib.contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that takes how many of how many are ``what``; None where nobody would see the count."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress

    with progress.Progress(
        progress.TextColumn(f"{{task.completed:,.0f}} of {{task.total:,.0f}} {what}"),
        progress.BarColumn(),
        progress.TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)
