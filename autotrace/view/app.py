"""List the routes of the server. Every route reads, except for the route that stores a label.

A search sends the first hit of each trajectory as soon as the hit is found, with the same results as ``autotrace
grep``.
"""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import autotrace
from autotrace.insight.rollouts import Rollouts
from autotrace.tables import labels
from autotrace.tables.columns import ID
from autotrace.tables.conditions import WhereError, condition, equals
from autotrace.tables.errors import Gone, NotFound, QueryError
from autotrace.tables.reader import Reader
from autotrace.tables.search import ROLES, candidates, search
from autotrace.tables.storage import is_url
from autotrace.tables.two_runs import Side, TwoRuns, compared
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Trajectory
from autotrace.view import columns, detail, one_file, pictures, timelines, tokens, tools
from autotrace.view.one_file import STATIC, bundle, text
from autotrace.view.open_runs import FIRST, OpenRun, OpenRuns

AT_ONCE = 20
"""Number of trajectories between two progress lines of a search; the run can answer other questions in between."""
MOST_HITS = 500
"""Hits after which a search stops; a reader may ask for more."""


def hits(run: OpenRun, words: str, first: int = 0) -> Iterator[bytes]:
    """Yield lines of JSON: ``{trace_id, role, turn, before, hit, after}`` for the first hit in each trajectory, and
    ``{done, of}`` as progress. The search ignores case, begins at trajectory ``first``, and stops after ``MOST_HITS``:
    the last line then says how many are ``done``."""
    pattern = re.compile(re.escape(words), re.IGNORECASE)
    rows = run.read(lambda reader: candidates(reader, reader.select(columns=ID), pattern))
    count = 0
    for start in range(first, max(len(rows), first + 1), AT_ONCE):  # without rows the last line is sent, too
        chosen = rows[start : start + AT_ONCE]
        found = run.read(lambda reader, chosen=chosen: list(_found(reader, chosen, pattern)))  # type: ignore[misc]
        yield from map(_line, found)
        yield _line({"done": start + len(chosen), "of": len(rows)})
        count += len(found)
        if count >= MOST_HITS:
            return


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(jsonable(value)) + b"\n"


def _found(reader: Reader, rows: list[Any], pattern: re.Pattern[str]) -> Iterator[dict[str, Any]]:
    for row, one in reader.each(rows):
        match = None if one is None else next(search(one, pattern, frozenset(ROLES)), None)
        if match is not None:
            yield {
                "trace_id": row.trace_id, "role": match.role, "turn": match.turn, "before": match.before,
                "hit": match.text, "after": match.after,
            }  # fmt: skip


LONGEST_NUMBER = 18
"""Maximum characters of a step in an address."""

Question = Callable[[Request, OpenRun], Any]
"""Answer a request with a ``Response``, with bytes, or with a value that becomes JSON."""


def some_columns(request: Request, run: OpenRun) -> bytes:
    """Return the columns ``names``, or the columns that a page needs first."""
    names = request.query_params.get("names")
    return run.columns(names.split(",") if names else FIRST)


def where(request: Request, run: OpenRun) -> bytes:
    """Return the trajectories for which the condition ``q`` is true."""
    wanted = condition(request.query_params.get("q", ""))
    return run.read(lambda reader: columns.packed(reader, [], wanted))


def difference(request: Request, run: OpenRun) -> dict[str, Any]:
    """Return the differences of the run ``other`` from this run, in the lines of ``autotrace diff``."""
    table, names = Rollouts(), [run.name, request.path_params["other"]]
    other = request.app.state.runs.run(names[1])

    def answer(reader: Reader, beside: Reader) -> TwoRuns:
        return compared(Side(names[0], reader, table), Side(names[1], beside, table), table)

    found = run.apart(lambda reader: other.apart(lambda beside: answer(reader, beside)))
    return {"runs": names, "lines": [*found.lines()]}


def full_text(request: Request, run: OpenRun) -> Response:
    """Search for the words ``q`` in all texts."""
    words = request.query_params.get("q", "")
    if not words:
        raise HTTPException(400, "what is searched for? q=WORDS")
    first = number if (number := request.query_params.get("from", "")).isdecimal() else "0"
    found = hits(run, words, int(first[:LONGEST_NUMBER]))
    return StreamingResponse(iterate_in_threadpool(found), media_type="application/x-ndjson")


def rollouts(request: Request, run: OpenRun) -> dict[str, Any]:
    """Return the trajectories ``ids`` side by side."""
    ids = list(dict.fromkeys(id for id in request.query_params.get("ids", "").split(",") if id))
    if not ids:
        raise HTTPException(400, "name the trajectories: ids=A,B,...")
    return run.read(lambda reader: detail.of_ids(reader, ids, request.query_params.get("base")))


def one_step(request: Request, run: OpenRun) -> dict[str, Any]:
    """Return the timeline of the rollouts of a step."""
    number = request.path_params["step"]
    if not number.removeprefix("-").isdecimal() or len(number) > LONGEST_NUMBER:
        raise HTTPException(404, f"a step is a number, not {number}")
    return run.read(lambda reader: timelines.lanes(reader, int(number)))


def of_trajectory(question: Callable[[Reader, Trajectory], Any]) -> Question:
    """Return a question that loads the trajectory named in the address."""
    return lambda request, run: run.read(lambda reader: question(reader, reader.load(request.path_params["trace"])))


def one_call(request: Request, run: OpenRun) -> Any:
    """Return the contents of a call of the trajectory."""
    name = request.path_params["span"]

    def question(_: Reader, one: Trajectory) -> dict[str, Any]:
        if name not in one.by_id:
            raise NotFound(f"this trajectory has no call {name}")
        return detail.call(one.by_id[name])

    return of_trajectory(question)(request, run)


def timeline(request: Request, run: OpenRun) -> Response:
    """Return the timeline of the trajectory as a file for Perfetto."""
    body = of_trajectory(lambda _, one: timelines.perfetto([one]))(request, run)
    return _file(body, f"{request.path_params['trace'][:12]}.perfetto.json", "application/json")


def exported(request: Request, run: OpenRun) -> Response:
    """Return the page of the trajectory alone as one file."""

    def page(reader: Reader) -> tuple[str, bytes]:
        trace_id = reader.resolve(request.path_params["trace"])
        wanted = equals(trace_id=trace_id)
        rows = reader.select(wanted, roots=True)
        return trace_id, "".join(one_file.written(reader, wanted, rows)).encode()

    trace_id, body = run.apart(page)
    return _file(body, f"{trace_id[:12]}.html", "text/plain")  # never shown here as a page


def _file(body: bytes, name: str, media_type: str) -> Response:
    return Response(body, media_type=media_type, headers={"content-disposition": f'attachment; filename="{name}"'})


def label(request: Request, run: OpenRun) -> Response:
    """Store a label; the label is part of the address, whose length is bounded."""
    trace, given = request.path_params["trace"], request.query_params
    path, trace_id = run.read(lambda reader: (reader.run.path, reader.resolve(trace)))
    try:
        labels.write(path, trace_id, given.get("label"), given.get("why"))
    except (ValueError, OSError) as error:
        raise HTTPException(403, f"the label was not kept: {error}") from None
    return Response(status_code=204)


_QUESTIONS: dict[str, Question] = {
    "": lambda _, run: run.state(),
    "/columns": some_columns,
    "/names": lambda _, run: run.read(columns.names),
    "/where": where,
    "/search": full_text,
    "/group": rollouts,
    "/findings": lambda _, run: run.findings(),
    "/steps/{step}": one_step,
    "/diff/{other}": difference,
    "/tools": lambda _, run: run.read(tools.by_step),
    "/pictures/{name}": lambda request, run: pictures.copied(request.path_params["name"], run.place.path),
    "/traces/{trace}": of_trajectory(lambda reader, one: detail.detail(one, reader.run.living)),
    "/traces/{trace}/tokens": of_trajectory(lambda reader, one: tokens.packed(one, reader.run.decode)),
    "/traces/{trace}/label": label,
    "/traces/{trace}/calls/{span}": one_call,
    "/traces/{trace}/perfetto": timeline,
    "/traces/{trace}/export": exported,
}
"""Address below the address of a run -> question about the run."""
_STATUS = {Gone: 410, NotFound: 404, WhereError: 400}
"""Errors whose message tells a person the mistake in a question -> HTTP status."""


def application(*at: str | Path) -> Starlette:
    """Return the server of the runs at paths or URLs, without ``guard``. A thread begins at once to read the newest
    run."""
    runs = OpenRuns(*at)
    threading.Thread(target=runs.prepare, name="autotrace-view-prepare", daemon=True).start()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        runs.close()

    def answering(question: Question) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            run = runs.run(request.path_params["run"])
            try:
                return response(question(request, run))
            except (HTTPException, NotFound, WhereError):
                raise
            except Exception as error:  # a stranger's run may contain anything
                if not any(is_url(str(each)) for each in at) and not run.place.path.exists():
                    raise HTTPException(410, f"the run is gone: {run.place.path} was moved or deleted") from None
                raise HTTPException(503, f"the run cannot be read now: {error}") from None

        return answer

    def of_run(path: str, question: Question) -> Route:
        methods = ["POST"] if question is label else None
        return Route(f"/api/runs/{{run}}{path}", answering(question), methods=methods)

    app = Starlette(
        lifespan=lifespan,
        exception_handlers={HTTPException: failed, QueryError: failed, Exception: failed},
        routes=[
            Route("/", lambda _: HTMLResponse(text("index.html"))),
            Route("/page.js", lambda _: Response(bundle("main.js"), media_type="text/javascript")),
            Route("/api/runs", lambda _: response({"version": autotrace.__version__, "runs": runs.listed()})),
            *(of_run(path, question) for path, question in _QUESTIONS.items()),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
    )
    app.state.runs = runs
    return app


def failed(_: Request, error: Exception) -> Response:
    """Return the response for an error."""
    if isinstance(error, HTTPException):
        return PlainTextResponse(error.detail, error.status_code)
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    return PlainTextResponse(str(error) if status != 500 else f"{type(error).__name__}: {error}", status)


def response(answer: Any) -> Response:
    """Return ``answer`` unchanged, or as JSON."""
    if isinstance(answer, Response):
        return answer
    if isinstance(answer, bytes):
        return Response(answer, media_type="application/octet-stream")
    return Response(encoded(answer), media_type="application/json")


def encoded(value: Any) -> bytes:
    """Encode ``value`` as JSON, with any text of a model."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):  # text that is not Unicode
        return msgspec.json.encode(jsonable(value))
