"""The part of W&B's trace server that a sink talks to, in memory, with faults to order. Standard library only.

Facts it relies on were read in and run against W&B's own server (``real_server.py``): the paths, which fields are
required, the form of ids, a batch being taken or declined as a whole, a call being replaced by (``started_at``, id).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.http_server import QuietServer

REQUIRED = ("project_id", "id", "trace_id", "op_name", "started_at", "ended_at", "attributes", "inputs", "summary")


@dataclass
class Fault:
    """What to do to requests whose path contains ``path``, the next ``times`` times (-1: always)."""

    path: str
    status: int = 0
    times: int = 1
    containing: bytes = b""
    """Only requests that hold this."""
    over_bytes: int = 0
    """Only requests longer than this."""
    after: bool = False
    """Store first, fail then: what a client cannot tell from a failure."""
    drop: bool = False
    """Close the connection instead of answering."""
    delay: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None

    def hits(self, path: str, body: bytes) -> bool:
        return self.path in path and self.times != 0 and self.containing in body and len(body) > self.over_bytes


class FakeServer(QuietServer):
    """Listens on a free port. ``calls`` holds what is stored: (project, started_at, id) -> call."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.calls: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.objects: dict[tuple[str, str, str], Any] = {}
        self.feedback: list[dict[str, Any]] = []
        self.projects: set[str] = set()
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, int, str]] = []
        """Path, bytes and authorization of each request."""
        self.gate = threading.Lock()
        self.start()

    def paths(self, part: str) -> list[str]:
        return [path for path, _, _ in self.requests if part in path]

    def fault_for(self, path: str, body: bytes) -> Fault | None:
        with self.gate:
            for fault in self.faults:
                if fault.hits(path, body):
                    fault.times -= 1
                    return fault
        return None

    def route(self, path: str, body: bytes, content_type: str) -> Any:
        if path == "/file/create":
            return {"digest": _digest(_form_file(body, content_type))}
        asked = json.loads(body)
        if path == "/graphql":
            return {"data": self._graphql(asked["query"], asked["variables"])}
        if path.endswith("/calls/complete"):
            for call in asked["batch"]:
                _check(call)
            for call in asked["batch"]:
                self.calls[call["project_id"], call["started_at"], call["id"]] = call
            return {}
        if path == "/call/upsert_batch":
            return self._upsert(asked["batch"])
        if path == "/obj/create":
            made = asked["obj"]
            if not re.fullmatch(r"[\w.-]{1,128}", made["object_id"]):
                raise ValueError("Invalid object name")
            digest = _digest(json.dumps(made["val"], sort_keys=True).encode())
            self.objects[made["project_id"], made["object_id"], digest] = made["val"]
            return {"digest": digest}
        if path == "/feedback/query":
            field_, values = asked["query"]["$expr"]["$in"]
            assert field_ == {"$getField": "id"}
            wanted = {value["$literal"] for value in values}
            return {"result": [row for row in self.feedback if row["id"] in wanted]}
        if path == "/feedback/purge":
            wanted = {_purged(each) for each in asked["query"]["$expr"].get("$or", [])}
            if not wanted:
                raise ValueError("Can only purge feedback by specifying one or more feedback ids")
            self.feedback[:] = [row for row in self.feedback if row["id"] not in wanted]
            return {}
        if path == "/feedback/create":
            self.feedback.append(asked)
            return {"id": asked["id"]}
        if path == "/feedback/batch/create":
            self.feedback.extend(asked["batch"])
            return {"res": [{"id": row["id"]} for row in asked["batch"]]}
        raise KeyError(path)

    def _graphql(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        if "viewer" in query:
            return {"viewer": {"username": "dev", "defaultEntity": {"name": "team"}}}
        project = f"{variables['entity']}/{variables['name']}"
        if "upsertModel" in query:
            self.projects.add(project)
            return {"upsertModel": {"model": {"name": variables["name"]}}}
        return {"project": {"name": variables["name"]} if project in self.projects else None}

    def _upsert(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        starts = {item["req"]["start"]["id"]: item["req"]["start"] for item in items if item["mode"] == "start"}
        for item in items:
            if item["mode"] == "end":
                end = item["req"]["end"]
                call = {**starts[end["id"]], **end}
                _check(call)
                self.calls[call["project_id"], call["started_at"], call["id"]] = call
        return {"res": [{} for _ in items]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FakeServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.requests.append((self.path, len(body), self.headers.get("authorization") or ""))
        fault = self.server.fault_for(self.path, body)
        if fault is not None:
            time.sleep(fault.delay)
        if fault is None or fault.after or not (fault.status or fault.drop):
            status, answer = self._stored(body)
            if fault is None or not (fault.status or fault.drop):
                self._answer(status, answer, {})
                return
        if fault.drop:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._answer(fault.status, fault.body or {"reason": "ordered"}, fault.headers)

    def _stored(self, body: bytes) -> tuple[int, Any]:
        try:
            with self.server.gate:
                return 200, self.server.route(self.path, body, self.headers.get("content-type") or "")
        except ValueError as error:
            return 400, {"reason": str(error)}
        except KeyError as error:
            return 404, {"detail": f"Not Found {error}"}

    def _answer(self, status: int, answer: Any, headers: dict[str, str]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def _digest(data: bytes) -> str:
    text = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
    return text.replace("-", "X").replace("_", "Y").rstrip("=")


def _check(call: dict[str, Any]) -> None:
    for name in REQUIRED:
        if name not in call:
            raise ValueError(f"missing {name}")
    for name in ("id", "trace_id", "parent_id"):
        value = call.get(name)
        if value is not None and str(uuid.UUID(value)) != value:
            raise ValueError(f"Invalid {name}")
    if not re.search(r"(Z|[+-]\d\d:\d\d)$", call["started_at"]):
        raise ValueError("no time zone")


def _form_file(body: bytes, content_type: str) -> bytes:
    mark = b"--" + content_type.split("boundary=")[1].encode()
    part = next(part for part in body.split(mark) if b"filename=" in part)
    return part.split(b"\r\n\r\n", 1)[1][:-2]


def _purged(each: dict[str, Any]) -> str:
    field_, value = each["$eq"]
    assert field_ == {"$getField": "id"}
    return str(value["$literal"])
