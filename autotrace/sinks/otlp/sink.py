"""Send trajectories to any OTLP receiver, through OpenTelemetry's own exporter over HTTP.

Endpoint, headers, compression, certificates and timeout are the standard ``OTEL_EXPORTER_OTLP_*`` variables. Ids come
from the recording, so a receiver that keys by span id (MLflow, most trace stores) keeps a single copy however often the
span is sent. A late fact sends the root span again, and nothing else.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import requests
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from autotrace.run.info import RunInfo
from autotrace.sinks import DEFAULT_PROJECT
from autotrace.sinks.http import retry_after
from autotrace.sinks.otlp import endpoint
from autotrace.sinks.otlp.spans import otel_span, size_of
from autotrace.sinks.protocol import Refused, Rejected, Sink, Unavailable, batches, culprits
from autotrace.trajectory.model import Span, Trajectory

REQUEST_BYTES = 4_000_000
"""Limits the bytes of a request below the smallest default limit among receivers (4 MiB, gRPC behind a gateway)."""
REQUEST_TRACES = 100
"""Limits the traces of a request, because MLflow links at most so many traces of a request to a run."""
TIMEOUT = 30.0
"""Seconds for one request, unless ``OTEL_EXPORTER_OTLP_TIMEOUT`` says otherwise."""

MOST_ANSWER = 64 << 10
"""Limits the bytes of an answer, which is empty or a sentence."""

_Item = tuple[Trajectory, ReadableSpan]


class _Answered(requests.HTTPError):
    """Ends the exporter's own retries: the shipper decides when to try again."""


class _SpanAtFault(Exception):
    """Reports that the receiver answered ``status`` to the spans."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class OtlpSink(Sink):
    """Sends to the sink ``otlp``. Makes no request before the first delivery."""

    name = "otlp"

    def __init__(self, info: RunInfo) -> None:
        # Log messages hold the receiver's answer and, for a malformed setting, the headers themselves.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._resource = _resource(info)
        self._last: requests.Response | None = None
        self._body = b""
        self.sent = 0
        self._session = requests.Session()
        self._session.headers["Accept-Encoding"] = "identity"
        self._session.hooks["response"].append(self._answered)
        self._exporter: OTLPSpanExporter | None = None
        self._accepted = False
        self._rejected = 0

    def deliver(self, trajectories: Sequence[Trajectory]) -> None:
        """Send ``trajectories``; see ``sinks.protocol``."""
        self._send_all(trajectories, lambda one: one.spans)

    def facts(self, trajectories: Sequence[Trajectory]) -> None:
        """Send the root spans again: OTLP has no other place for facts."""
        self._send_all(trajectories, lambda one: [one.root])

    def _send_all(self, trajectories: Sequence[Trajectory], of: Callable[[Trajectory], Sequence[Span]]) -> None:
        reasons: dict[str, str] = {}
        for first in range(0, len(trajectories), REQUEST_TRACES):
            some = trajectories[first : first + REQUEST_TRACES]
            new = ((one, otel_span(one, span, self._resource)) for one in some for span in of(one))
            for batch in batches(new, lambda item: size_of(item[1]), REQUEST_BYTES):
                self._store(batch, reasons)
        if reasons:
            if not self._accepted and self._rejected:
                raise Refused(f"{_receiver()} rejected everything: {next(iter(reasons.values()))}")
            raise Rejected(reasons)

    def size(self, trajectory: Trajectory) -> int:
        """Return the bytes of the trajectory's spans, about."""
        return sum(size_of(otel_span(trajectory, span, self._resource)) for span in trajectory.spans)

    def close(self) -> None:
        """Close the connections."""
        if self._exporter is not None:
            self._exporter.shutdown()  # type: ignore[no-untyped-call]
            self._exporter = None

    def _store(self, batch: list[_Item], reasons: dict[str, str]) -> None:
        for (trajectory, _), error in culprits(batch, partial(self._send, reasons), _SpanAtFault):
            self._rejected += error.status != 413
            if not self._accepted and self._rejected >= 3:
                raise Refused(f"{_receiver()} has rejected every span so far ({error.status})")
            reasons.setdefault(trajectory.trace_id, f"{_receiver()} rejected one of its spans ({error.status})")

    def _send(self, reasons: dict[str, str], batch: Sequence[_Item]) -> None:
        dropped = self._export([otel for _, otel in batch])
        self._accepted = True
        self.sent += sum(size_of(otel) for _, otel in batch)
        for trajectory, _ in batch if dropped else ():
            reasons.setdefault(trajectory.trace_id, dropped)

    def _export(self, spans: list[ReadableSpan]) -> str:
        """Return the receiver's report of dropped spans. Raises ``_SpanAtFault``, ``Unavailable`` or ``Refused``."""
        self._last = None
        if self._exporter is None:
            self._exporter = _exporter(self._session)
        try:
            done = self._exporter.export(spans) is SpanExportResult.SUCCESS
        except requests.RequestException:  # exporters before 1.40 let the error through
            done = False
        answer = self._last
        if answer is None:
            raise Unavailable(f"{_receiver()} does not answer")
        status = answer.status_code
        if done and status < 300:
            return _partial(answer, self._body, len(spans))
        if status in (400, 413, 422):
            raise _SpanAtFault(status)
        if status in (408, 425, 429) or status >= 500:
            raise Unavailable(f"{_receiver()} answered {status}", retry_after(answer.headers.get("retry-after")))
        if status in (401, 403):
            raise Refused(f"{_receiver()} answered {status}: check OTEL_EXPORTER_OTLP_HEADERS")
        raise Refused(f"{_receiver()} answered {status}: is OTEL_EXPORTER_OTLP_ENDPOINT an OTLP/HTTP receiver?")

    def _answered(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self._last = response
        if response.status_code >= 300:
            raise _Answered(response=response)
        until, body = time.monotonic() + TIMEOUT, bytearray()
        for part in response.raw.stream(1, decode_content=False):  # a longer part may take any time to arrive
            body += part
            if len(body) > MOST_ANSWER or time.monotonic() > until:
                self._last = None
                response.close()
                raise _Answered(response=response)
        self._body = bytes(body)


def _exporter(session: requests.Session) -> OTLPSpanExporter:
    timeout = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT") or os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT")
    try:
        # exporters before 1.34 read whole seconds only
        return OTLPSpanExporter(session=session, timeout=float(timeout) if timeout else TIMEOUT)
    except ValueError:
        raise Refused("one of the OTEL_EXPORTER_OTLP_* variables is malformed: timeout or compression") from None


def _resource(info: RunInfo) -> Resource:
    """Build the resource; the user's ``OTEL_RESOURCE_ATTRIBUTES`` and ``OTEL_SERVICE_NAME`` win over ours."""
    ours = {"service.name": info.project or DEFAULT_PROJECT, "service.instance.id": info.run_id}
    ours["autotrace.run_id"] = info.run_id
    if info.experiment:
        ours["autotrace.experiment_name"] = info.experiment
    theirs = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in theirs:
        del ours["service.name"]
    return Resource.create(ours)


def _receiver() -> str:
    """Return the address for messages: host only, as a path or a query may hold a key."""
    parts = urlsplit(endpoint())
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"the OTLP receiver at {parts.hostname or 'the configured address'}{port}"


def _partial(answer: requests.Response, body: bytes, sent: int) -> str:
    if not body or "json" in answer.headers.get("content-type", ""):
        return ""
    try:
        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except DecodeError:
        return ""
    if not partial.rejected_spans:
        return ""
    reason = partial.error_message[:300]
    return f"{_receiver()} dropped {partial.rejected_spans} of the {sent} spans of a request: {reason}"
