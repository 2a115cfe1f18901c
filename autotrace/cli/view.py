"""Serve the page on which people read rollouts, or write the page as one file: ``autotrace view``."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

import click

from autotrace.cli import runs, terminal
from autotrace.config.installation import install
from autotrace.export.format import ExportError, Staging
from autotrace.run import files
from autotrace.ship.readers import opened
from autotrace.tables.conditions import equals
from autotrace.tables.reader import Reader
from autotrace.tables.storage import is_url

PORT = 8642
"""Port that is tried first."""
BACKLOG = 32
"""Limits the connections that wait; all waiting connections are accepted before the first answer."""
SWITCH = 0.0005
"""Seconds before a thread that reads a run lets others go on: an answer takes ten turns, by default of 5 ms each."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals of Ctrl-C, ``kill``, and a closed terminal: each leaves no file behind."""


@click.command(short_help="Read rollouts in the browser: tokens, forks, timelines, curves.")
@runs.argument
@runs.options
@click.option("--trace", metavar="TRACE", help="Open, or export, only this trajectory.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", help=f"Port; default: {PORT}, or a free one.")
@click.option("--no-browser", is_flag=True, help="Print the link and open no browser.")
@click.option("--export", "page", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the page with its trajectories as one HTML file; no server.")  # fmt: skip
@click.option("--perfetto", "timeline", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the timelines as one file for ui.perfetto.dev; no server.")  # fmt: skip
def view(
    named: tuple[str, ...], selection: runs.Selection, trace: str | None, host: str, port: int | None, no_browser: bool,
    page: Path | None, timeline: Path | None,
) -> None:  # fmt: skip
    """Read the rollouts of a run, or of all runs of a folder, in the browser. Only labels are written.

    Several runs, which may be in several folders, share a page, which begins with the difference of the first two.

    RUN may also be a file that autotrace export --format jsonl wrote, or the folder of Parquet files of a run.

    --step, --where and so on choose the trajectories that --export and --perfetto write; default: the whole run.
    """
    if page is not None or timeline is not None:
        with contextlib.closing(runs.reader_of_one(named)) as reader:
            _write(reader, selection, trace, page, timeline)
        return
    if selection:
        raise click.UsageError("--step, --where, ... are for --export and --perfetto; on the page there is a filter")
    at: list[str | Path] = []
    newest = []
    for run in named or (None,):
        newest.append(runs.runs_at(run)[-1])
        at.append(run if run is not None and (is_url(run) or os.path.exists(run)) else newest[-1].path)
    page_of = ""
    if len(newest) > 1 and trace is None:
        from autotrace.view.open_runs import OpenRuns

        first, *others = (quote(OpenRuns(*at).named(one), safe="") for one in newest)
        page_of = f"#/run/{first}/diff?with={quote(','.join(others), safe='')}"
    if trace is not None:
        runs.only(named)
        from autotrace.view.open_runs import address

        with contextlib.closing(opened(newest[0])) as reader:
            page_of = f"#/run/{quote(address(newest[0]), safe='')}/trace/{reader.resolve(trace)}"
    _serve(at, host, port, page_of, no_browser)


def _serve(at: Sequence[str | Path], host: str, port: int | None, page_of: str, no_browser: bool) -> None:
    try:
        import uvicorn

        from autotrace.view.app import application
        from autotrace.view.guard import HEAD, Guard
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio"):
            raise
        raise terminal.fail(f"autotrace view needs {error.name}, which is not installed: {install('view')}") from None
    sys.setswitchinterval(SWITCH)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # asyncio would log a neighbour's connections without end
    listening = _socket(host, port)
    where = listening.getsockname()[0] if host == "localhost" else host  # a neighbour may listen on its other address
    shown = f"[{where}]" if ":" in where else where
    base = f"http://{shown}:{listening.getsockname()[1]}/"

    def opened() -> None:
        click.echo(f"the link was opened; for another browser: {base}?open={guard.code()}{page_of}", err=True)

    guard = Guard(application(*at), host, opened)
    link = f"{base}?open={guard.code()}{page_of}"
    server = uvicorn.Server(
        uvicorn.Config(
            guard, loop="asyncio", http=guard.connection(), ws="none", h11_max_incomplete_event_size=HEAD,
            backlog=BACKLOG, log_level="error", access_log=False, timeout_graceful_shutdown=1,
        )
    )  # fmt: skip
    opening = False

    def asked_to_end(*_: object) -> None:
        nonlocal opening
        server.should_exit = True
        if opening:
            opening = False
            raise KeyboardInterrupt

    for number in ENDING:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup's
            signal.signal(number, asked_to_end)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as ending:
        page = None if no_browser else _leading_to(link, ending)
        opening = True  # a browser in the terminal lasts until it is left; nothing else is interrupted half way
        click.echo(f"autotrace view: {link}\nCtrl-C ends it", err=True)
        if page is not None and not server.should_exit:
            with contextlib.suppress(Exception):  # there is none on this machine
                webbrowser.open(page)
        opening = False
        server.run(sockets=[listening])
    sys.stderr.flush()
    os._exit(0)  # the interpreter would wait for threads that read a run


def _leading_to(link: str, ending: contextlib.ExitStack) -> str | None:
    """Return the address of a file that leads a browser to ``link``, until ``ending``.

    Anybody can read a browser's command line, but nobody else can read this file. None if no file can be written.
    """
    try:
        folder = ending.enter_context(tempfile.TemporaryDirectory(prefix="autotrace-view-"))
        page = Path(folder, "open.html")
        files.replace(page, f'<meta http-equiv="refresh" content="0;url={escape(link)}">'.encode())
    except OSError:
        return None
    return page.as_uri()


def _socket(host: str, port: int | None) -> socket.socket:
    """Open a listening socket. Without a requested port, a free port replaces a taken default port."""
    tried = (PORT, 0) if port is None else (port,)
    for number in tried:
        try:
            family, kind, _, _, where = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
            listening = socket.socket(family, kind)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(where)
            listening.listen(BACKLOG)
            return listening
        except OSError as error:
            problem = error
    raise terminal.fail(f"cannot listen on {host}, port {tried[0]}: {problem.strerror}; choose another with --port")


def _write(
    reader: Reader, selection: runs.Selection, trace: str | None, page: Path | None, timeline: Path | None
) -> None:
    """Write the requested files."""
    from autotrace.view import one_file, timelines

    wanted = selection.condition if trace is None else equals(trace_id=reader.resolve(trace))
    rows = reader.select(wanted)
    if not rows:
        raise terminal.fail("no trajectory matches; autotrace ls shows what there is")
    what = terminal.counted(len(rows), "trajectory")
    if page is not None:
        _whole(page, what, (part.encode() for part in one_file.written(reader, wanted, rows)))
    if timeline is not None:
        each = reader.each(terminal.shown(rows, "trajectories"), texts=False)
        _whole(timeline, what, [timelines.perfetto(one for _, one in each if one is not None)])


def _whole(path: Path, what: str, parts: Iterable[bytes]) -> None:
    """Write ``path``, which appears when the content is whole, and print that ``what`` is inside."""
    try:
        with Staging(path.parent) as staging:
            for part in parts:
                staging.append(path.name, part)
    except (OSError, ExportError) as error:
        raise terminal.fail(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    click.echo(f"{what} -> {terminal.safe(path)} ({terminal.size(path.stat().st_size)})")
