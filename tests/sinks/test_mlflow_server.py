"""What goes to a tracking server, as it would read it."""

from __future__ import annotations

import gzip

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from rollouts import trajectory

from autotrace.sinks.mlflow.server import ServerStore, request
from autotrace.sinks.mlflow.spans import MlflowSpan, encode


def sent(uri: str, release: str) -> httpx.Request:
    """The request with the spans of a trajectory."""
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, text=release if request.url.path == "/version" else "{}")

    store = ServerStore(uri, httpx.Client(transport=httpx.MockTransport(answer)))
    store.log_spans("1", encode(trajectory()), None)
    return requests[-1]


@pytest.mark.parametrize(
    ("uri", "release", "packed"),
    [
        ("http://mlflow:5000", "3.17.2", True),
        ("https://10.0.0.5", "3.8.0", True),
        ("http://mlflow:5000", "3.5.1", False),
        ("http://127.0.0.1:5000", "3.17.2", False),
        ("http://localhost:5000", "3.17.2", False),
        ("http://[::1]:5000", "3.17.2", False),
    ],
)
def test_spans_are_packed_where_they_go_over_a_network(uri: str, release: str, packed: bool) -> None:
    request = sent(uri, release)
    assert (request.headers.get("content-encoding") == "gzip") is packed
    body = gzip.decompress(request.content) if packed else request.content
    (scope,) = ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans
    assert [span.name for span in scope.spans] == [span.name for span in encode(trajectory())]


def test_a_span_has_all_that_was_recorded() -> None:
    attributes: dict[str, str | int | bool] = {"text": "é\0", "empty": "", "yes": True, "no": False, "n": -(1 << 63)}
    span = MlflowSpan("1" * 32, "2" * 16, None, "name", 1, 2, "ERROR", "why", ("E", "m", "stack"), attributes)
    ((made,),) = (scope.spans for scope in request([span]).resource_spans[0].scope_spans)
    assert (made.trace_id.hex(), made.span_id.hex(), made.parent_span_id) == ("1" * 32, "2" * 16, b"")
    assert (made.name, made.start_time_unix_nano, made.end_time_unix_nano) == ("name", 1, 2)
    assert (made.status.code, made.status.message) == (2, "why")
    values = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in made.attributes}
    assert values == attributes and type(values["yes"]) is bool
    (event,) = made.events
    assert (event.name, event.time_unix_nano) == ("exception", 2)
    shown = {one.key: one.value.string_value for one in event.attributes}
    assert shown == {"exception.type": "E", "exception.message": "m", "exception.stacktrace": "stack"}
    child = request([span._replace(parent_id="3" * 16, exception=None)]).resource_spans[0].scope_spans[0].spans[0]
    assert isinstance(child, OtlpSpan) and child.parent_span_id.hex() == "3" * 16 and not child.events
