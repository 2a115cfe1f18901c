"""What W&B's client needs of a trace server in order to run, in a process of its own; keeps nothing but counts.

``python -m benchmarks.weave_sink`` prints its address and serves until it is killed. Standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_counts = {"calls": 0, "bytes": 0, "requests": 0}
_gate = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """Answers as ``calls/complete``, ``call/upsert_batch``, ``obj/create``, ``file/create`` and GraphQL do."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/counts":
            self._answer(_counts)
        else:
            self._answer({"min_required_weave_python_version": "0.0.1", "trace_server_version": "99.0.0"})

    do_PUT = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        with _gate:
            _counts["requests"] += 1
        self._answer(self._route(body))

    def _route(self, body: bytes) -> Any:
        path = self.path
        if path.endswith("/calls/complete"):
            with _gate:
                _counts["calls"] += body.count(b'"trace_id"')
                _counts["bytes"] += len(body)
            return {}
        if path == "/call/upsert_batch":
            with _gate:
                _counts["bytes"] += len(body)
            starts = [item for item in json.loads(body)["batch"] if item["mode"] == "start"]
            return {"res": [{"id": str(uuid.uuid4()), "trace_id": str(uuid.uuid4())} for _ in starts]}
        if path in ("/file/create", "/files/create"):
            return {"digest": _digest(body)}
        asked = json.loads(body) if body else {}
        if path == "/graphql":
            return {"data": _graphql(asked["query"], asked.get("variables") or {})}
        if path == "/obj/create":
            return {"digest": _digest(body), "object_id": asked["obj"]["object_id"]}
        if path == "/service/projects_info":
            return {"projects": [{"external_project_id": name, "internal_project_id": name}
                                 for name in asked["project_ids"]]}  # fmt: skip
        return {}

    def _answer(self, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _graphql(query: str, variables: dict[str, Any]) -> dict[str, Any]:
    if "viewer" in query:
        return {"viewer": {"username": "dev", "defaultEntity": {"name": "dev"}}}
    if "upsertModel" in query:
        return {"upsertModel": {"model": {"name": variables.get("name"), "description": None}}}
    return {"project": {"name": variables.get("name")}} if re.search(r"project\(", query) else {}


def _digest(body: bytes) -> str:
    text = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
    return text.replace("-", "X").replace("_", "Y").rstrip("=")


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
