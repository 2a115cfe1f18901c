"""An OTLP/HTTP receiver that decodes what it is sent with OpenTelemetry's own messages, and fails on order."""

from __future__ import annotations

import gzip
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.http_server import QuietServer


class Receiver(QuietServer):
    """``spans``: (trace id, span id) -> the span as it came last, with plain attributes in ``attributes_of``."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(_Handler, port)
        self.spans: dict[tuple[str, str], Span] = {}
        self.resources: list[dict[str, Any]] = []
        self.scopes: list[dict[str, Any]] = []
        self.requests: list[tuple[str, int, dict[str, str]]] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        """Statuses to answer with, first come first served; an empty list is 200. 0: drop the connection."""
        self.after = False
        """Store before an ordered failure."""
        self.poison = b""
        """A request that holds this is answered 400."""
        self.delay = 0.0
        self.start()

    def store(self, body: bytes) -> None:
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(attributes_of(of_resource.resource))
            for of_scope in of_resource.scope_spans:
                self.scopes.append(attributes_of(of_scope.scope))
                for span in of_scope.spans:
                    self.spans[span.trace_id.hex(), span.span_id.hex()] = span


def attributes_of(owner: Any) -> dict[str, Any]:
    """Attributes of a span, event or resource as plain values."""
    return {item.key: _value(item.value) for item in owner.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        receiver = self.server
        receiver.requests.append((self.path, len(body), {name.lower(): text for name, text in self.headers.items()}))
        time.sleep(receiver.delay)
        status, headers, answer = receiver.answers.pop(0) if receiver.answers else (200, {}, b"")
        if receiver.poison and receiver.poison in body:
            status = 400
        if status == 200 or receiver.after:
            receiver.store(body)
        if status == 0:
            self.close_connection = True
            return
        answer = answer or ExportTraceServiceResponse().SerializeToString()
        self.send_response(status)
        for name, value in {
            "content-length": str(len(answer)),
            "content-type": "application/x-protobuf",
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)
