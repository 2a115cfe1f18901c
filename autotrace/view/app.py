"""The routes of the server. All of them read, except for the one that keeps a label.

A search sends the first hit of each trajectory when it is found. It finds what ``autotrace grep`` finds."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import autotrace
from autotrace.tables import labels
from autotrace.tables.conditions import WhereError, condition
from autotrace.tables.errors import Gone, NotFound, QueryError
from autotrace.tables.reader import Reader
from autotrace.tables.search import ROLES, candidates, search
from autotrace.trajectory.jsonable import jsonable
from autotrace.trajectory.model import Trajectory
from autotrace.view import columns, detail, perfetto, steps, tokens
from autotrace.view.one_file import STATIC, bundle, text
from autotrace.view.open_runs import OpenRun, OpenRuns

AT_ONCE = 20
"""Trajectories between two words about how far the search is; the run can be asked other things in between."""


def hits(run: OpenRun, words: str) -> Iterator[bytes]:
    """Lines of JSON: ``{trace_id, role, turn, before, hit, after}`` for the first place in each trajectory, and
    ``{done, of}``. ``words`` are found in any case."""
    pattern = re.compile(re.escape(words), re.IGNORECASE)
    rows = run.read(lambda reader: candidates(reader, reader.select(columns=("trace_id",)), pattern))
    for start in range(0, len(rows), AT_ONCE):
        chosen = rows[start : start + AT_ONCE]
        yield from map(_line, run.read(lambda reader, chosen=chosen: list(_found(reader, chosen, pattern))))  # type: ignore[misc]
        yield _line({"done": start + len(chosen), "of": len(rows)})
    if not rows:
        yield _line({"done": 0, "of": 0})


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
"""Characters of a step in an address."""

_STATUS = {Gone: 410, NotFound: 404, WhereError: 400}
"""What is said of these is for who asked."""

T = TypeVar("T")


def application(folder: Path) -> Starlette:
    """The server of the runs in ``folder``, without ``guard``. A thread begins at once to read the newest."""
    runs = OpenRuns(folder)
    threading.Thread(target=runs.prepare, name="autotrace-view-prepare", daemon=True).start()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        runs.close()

    def run_of(request: Request) -> OpenRun:
        return runs.run(request.path_params["run"])

    def asked(request: Request, question: Callable[[Reader], T]) -> T:
        return of_run(request, lambda run: run.read(question))

    def of_run(request: Request, question: Callable[[OpenRun], T]) -> T:
        """The answer, or what a person is told instead."""
        run = run_of(request)
        try:
            return question(run)
        except NotFound:
            raise
        except Exception as error:  # a run of somebody else may hold anything
            if not run.place.path.exists():
                raise HTTPException(410, f"the run is gone: {run.place.path} was moved or deleted") from None
            raise HTTPException(503, f"the run cannot be read now: {error}") from None

    def of_trajectory(request: Request, question: Callable[[Reader, Trajectory], T]) -> T:
        trace = request.path_params["trace"]
        return asked(request, lambda reader: question(reader, reader.load(trace)))

    def list_runs(_: Request) -> Response:
        return as_json({"version": autotrace.__version__, "runs": runs.listed()})

    def state(request: Request) -> Response:
        return as_json(of_run(request, OpenRun.state))

    def some_columns(request: Request) -> Response:
        names = request.query_params.get("names", "").split(",")
        return octets(of_run(request, lambda run: run.columns(names)))

    def names(request: Request) -> Response:
        return as_json(asked(request, columns.names))

    def where(request: Request) -> Response:
        """The trajectories for which the condition ``q`` is true."""
        wanted = condition(request.query_params.get("q", ""))
        return octets(asked(request, lambda reader: columns.packed(reader, [], wanted)))

    def trajectory(request: Request) -> Response:
        return as_json(of_trajectory(request, lambda _, one: detail.detail(one)))

    def token_arrays(request: Request) -> Response:
        body = of_trajectory(request, lambda reader, one: tokens.packed(one, reader.run.decode))
        return octets(body)

    def one_call(request: Request) -> Response:
        def question(_: Reader, one: Trajectory) -> dict[str, Any]:
            span = next((span for span in one.spans if span.span_id == request.path_params["span"]), None)
            if span is None:
                raise NotFound(f"this trajectory has no call {request.path_params['span']}")
            return detail.call(span)

        return as_json(of_trajectory(request, question))

    def timeline(request: Request) -> Response:
        body = of_trajectory(request, lambda _, one: perfetto.encoded([one]))
        name = f"{request.path_params['trace'][:12]}.perfetto.json"
        return Response(
            body, media_type="application/json", headers={"content-disposition": f'attachment; filename="{name}"'}
        )

    def rollouts(request: Request) -> Response:
        ids = list(dict.fromkeys(id for id in request.query_params.get("ids", "").split(",") if id))
        base = request.query_params.get("base")
        if not ids:
            raise HTTPException(400, "name the trajectories: ids=A,B,...")
        return as_json(asked(request, lambda reader: detail.of_ids(reader, ids, base)))

    def label(request: Request) -> Response:
        """Keep a label; it is part of the address, whose length is bounded."""
        trace, given = request.path_params["trace"], request.query_params
        path, trace_id = asked(request, lambda reader: (reader.run.path, reader.resolve(trace)))
        try:
            labels.write(path, trace_id, given.get("label"), given.get("why"))
        except (ValueError, OSError) as error:
            raise HTTPException(403, f"the label was not kept: {error}") from None
        return Response(status_code=204)

    def findings(request: Request) -> Response:
        return as_json(of_run(request, OpenRun.findings))

    def one_step(request: Request) -> Response:
        number = request.path_params["step"]
        if not number.removeprefix("-").isdecimal() or len(number) > LONGEST_NUMBER:
            raise HTTPException(404, f"a step is a number, not {number}")
        return as_json(asked(request, lambda reader: steps.lanes(reader, int(number))))

    def full_text(request: Request) -> Response:
        words = request.query_params.get("q", "")
        if not words:
            raise HTTPException(400, "what is searched for? q=WORDS")
        found = hits(run_of(request), words)
        return StreamingResponse(iterate_in_threadpool(found), media_type="application/x-ndjson")

    def index(_: Request) -> Response:
        return HTMLResponse(text("index.html"))

    def script(_: Request) -> Response:
        return Response(bundle("main.js"), media_type="text/javascript")

    def failed(_: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return PlainTextResponse(error.detail, error.status_code)
        for kind, status in _STATUS.items():
            if isinstance(error, kind):
                return PlainTextResponse(str(error), status)
        return PlainTextResponse(f"{type(error).__name__}: {error}", 500)

    return Starlette(
        lifespan=lifespan,
        exception_handlers={HTTPException: failed, QueryError: failed, Exception: failed},
        routes=[
            Route("/", index),
            Route("/page.js", script),
            Route("/api/runs", list_runs),
            Route("/api/runs/{run}", state),
            Route("/api/runs/{run}/columns", some_columns),
            Route("/api/runs/{run}/names", names),
            Route("/api/runs/{run}/where", where),
            Route("/api/runs/{run}/search", full_text),
            Route("/api/runs/{run}/group", rollouts),
            Route("/api/runs/{run}/findings", findings),
            Route("/api/runs/{run}/steps/{step}", one_step),
            Route("/api/runs/{run}/traces/{trace}", trajectory),
            Route("/api/runs/{run}/traces/{trace}/tokens", token_arrays),
            Route("/api/runs/{run}/traces/{trace}/label", label, methods=["POST"]),
            Route("/api/runs/{run}/traces/{trace}/calls/{span}", one_call),
            Route("/api/runs/{run}/traces/{trace}/perfetto", timeline),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
    )


def octets(body: bytes) -> Response:
    """``body`` as it is."""
    return Response(body, media_type="application/octet-stream")


def as_json(value: Any) -> Response:
    """``value`` as the body."""
    return Response(encoded(value), media_type="application/json")


def encoded(value: Any) -> bytes:
    """``value`` in JSON, whatever a model wrote in it."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):  # text that is no Unicode
        return msgspec.json.encode(jsonable(value))
