"""W&B's own SQLite trace server behind HTTP, for the genuine client and for our sink.

    SERVER_VENV/bin/python real_server.py PORT FILE.db

The server's code was last shipped inside the client's wheel (0.52.41); its HTTP layer was not, so the routes are here.
Added to what it does: the checks of ids that the ClickHouse server makes, and ClickHouse's rule that a call
sent again with the same ``started_at`` and id takes the place of the old one (SQLite would say "UNIQUE").
"""

from __future__ import annotations

import base64
import os
import sys
import types
from typing import Any

os.environ["DD_TRACE_ENABLED"] = "false"


def _without_scorers() -> None:
    """The module pulls in torch for a worker that is not used here."""
    package = "weave.trace_server.workers.evaluate_model_worker"
    module = types.ModuleType(package + ".evaluate_model_worker")
    module.__dict__.update(EvaluateModelArgs=object, EvaluateModelDispatcher=object)
    parent = types.ModuleType(package)
    parent.__path__ = []
    sys.modules |= {package: parent, module.__name__: module}


_without_scorers()

import uvicorn  # noqa: E402
from fastapi import FastAPI, HTTPException, Request  # noqa: E402
from fastapi.responses import Response  # noqa: E402
from weave.trace_server import sqlite_trace_server as sqlite  # noqa: E402
from weave.trace_server import trace_server_interface as tsi  # noqa: E402
from weave.trace_server import validation  # noqa: E402
from weave.trace_server.external_to_internal_trace_server_adapter import ExternalTraceServer, IdConverter  # noqa: E402


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return base64.b64decode(text).decode()


class Ids(IdConverter):
    """Names as W&B's users write them <-> as the server stores them."""

    def ext_to_int_project_id(self, project_id: str) -> str:
        return _encode(project_id)

    def int_to_ext_project_id(self, project_id: str) -> str:
        return _decode(project_id)

    def ext_to_int_run_id(self, run_id: str) -> str:
        project, _, run = run_id.rpartition("/")
        return f"{_encode(project)}:{run}"

    def int_to_ext_run_id(self, run_id: str) -> str:
        project, run = run_id.split(":")
        return f"{_decode(project)}/{run}"

    def ext_to_int_user_id(self, user_id: str) -> str:
        return user_id

    def int_to_ext_user_id(self, user_id: str) -> str:
        return user_id


store = sqlite.SqliteTraceServer(sys.argv[2])
store.setup_tables()
server = ExternalTraceServer(store, Ids())
app = FastAPI()
projects: set[str] = set()


@app.middleware("http")
async def _key_needed(request: Request, then: Any) -> Response:
    if request.headers.get("authorization", "").startswith("Basic ") or request.method == "GET":
        return await then(request)
    return Response('{"reason": "unauthenticated"}', status_code=401, media_type="application/json")


@app.get("/server_info")
def server_info() -> dict[str, str]:
    return {"min_required_weave_python_version": "0.0.1", "trace_server_version": "99.0.0"}


@app.post("/graphql")
async def graphql(request: Request) -> dict[str, Any]:
    asked = await request.json()
    query, variables = asked["query"], asked.get("variables") or {}
    if "viewer" in query:
        return {"data": {"viewer": {"username": "dev", "defaultEntity": {"name": "dev"}}}}
    name = variables.get("name")
    if "upsertModel" in query:
        projects.add(name)
        return {"data": {"upsertModel": {"model": {"name": name, "description": None}}}}
    return {"data": {"project": {"name": name} if name in projects else None}}


@app.post("/v2/{entity}/{project}/calls/complete")
def calls_complete(entity: str, project: str, asked: tsi.CallsUpsertCompleteReq) -> Any:
    try:
        for call in asked.batch:
            validation.call_id_validator(call.id)
            validation.trace_id_validator(call.trace_id)
            validation.parent_id_validator(call.parent_id)
            validation.display_name_validator(call.display_name)
            validation.wb_run_step_validator(call.wb_run_step)
    except (ValueError, validation.validation_util.CHValidationError) as error:
        raise HTTPException(400, str(error)) from None
    connection, cursor = sqlite.get_conn_cursor(store.db_path)
    with store.lock:
        cursor.executemany("DELETE FROM calls WHERE id = ?", [(call.id,) for call in asked.batch])
        connection.commit()
    return server.calls_complete(asked)


@app.post("/call/upsert_batch")
def upsert_batch(asked: tsi.CallCreateBatchReq) -> Any:
    # one by one: the adapter passes a batch on with the names of projects as they are, which nothing finds again
    each = [server.call_start(one.req) if one.mode == "start" else server.call_end(one.req) for one in asked.batch]
    return {"res": each}


@app.post("/call/read")
def call_read(asked: tsi.CallReadReq) -> Any:
    return server.call_read(asked)


@app.post("/calls/query_stats")
def query_stats(asked: tsi.CallsQueryStatsReq) -> Any:
    return server.calls_query_stats(asked)


@app.post("/calls/stream_query")
async def stream_query(request: Request) -> Response:
    asked = {name: value for name, value in (await request.json()).items() if name in tsi.CallsQueryReq.model_fields}
    found = server.calls_query_stream(tsi.CallsQueryReq.model_validate(asked))
    return Response("".join(call.model_dump_json() + "\n" for call in found), media_type="application/jsonl")


@app.post("/threads/stream_query")
def threads(asked: tsi.ThreadsQueryReq) -> Response:
    found = server.threads_query_stream(asked)
    return Response("".join(thread.model_dump_json() + "\n" for thread in found), media_type="application/jsonl")


@app.post("/obj/create")
async def obj_create(request: Request) -> Any:
    asked = await request.json()
    asked["obj"]["wb_user_id"] = "dev"
    return server.obj_create(tsi.ObjCreateReq.model_validate(asked))


@app.post("/obj/read")
def obj_read(asked: tsi.ObjReadReq) -> Any:
    return server.obj_read(asked)


@app.post("/objs/query")
def objs_query(asked: tsi.ObjQueryReq) -> Any:
    return server.objs_query(asked)


@app.post("/refs/read_batch")
def refs_read(asked: tsi.RefsReadBatchReq) -> Any:
    return server.refs_read_batch(asked)


@app.post("/file/create")
async def file_create(request: Request) -> Any:
    form = await request.form()
    content = await form["file"].read()
    return server.file_create(
        tsi.FileCreateReq(project_id=form["project_id"], name=form["file"].filename, content=content)
    )


@app.post("/file/content")
def file_content(asked: tsi.FileContentReadReq) -> Response:
    return Response(server.file_content_read(asked).content, media_type="application/octet-stream")


def _feedback(asked: dict[str, Any]) -> dict[str, Any]:
    """Today's client sends fields that the last public model forbids."""
    return {name: value for name, value in asked.items() if name in tsi.FeedbackCreateReq.model_fields} | {
        "wb_user_id": "dev"
    }


@app.post("/feedback/create")
async def feedback_create(request: Request) -> Any:
    return server.feedback_create(tsi.FeedbackCreateReq.model_validate(_feedback(await request.json())))


@app.post("/feedback/batch/create")
async def feedback_batch(request: Request) -> Any:
    rows = [_feedback(row) for row in (await request.json())["batch"]]
    return server.feedback_create_batch(tsi.FeedbackCreateBatchReq.model_validate({"batch": rows}))


@app.post("/feedback/query")
def feedback_query(asked: tsi.FeedbackQueryReq) -> Any:
    return server.feedback_query(asked)


@app.post("/feedback/purge")
def feedback_purge(asked: tsi.FeedbackPurgeReq) -> Any:
    return server.feedback_purge(asked)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
