"""Write to a tracking server over HTTP: ``POST /v1/traces`` for spans, MLflow's REST interface else. Imports no
MLflow."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from autotrace.redact.masking import without_password
from autotrace.sinks.answers import BOUNDED
from autotrace.sinks.http import retry_after
from autotrace.sinks.mlflow.info import SOURCE, Issue, TraceDescription
from autotrace.sinks.mlflow.sending import MAX_LINKED, MlflowTrace, StoreError, deleted, put_text
from autotrace.sinks.mlflow.spans import MlflowSpan
from autotrace.sinks.protocol import Refused, Unavailable

TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_HERE = ("127.0.0.1", "::1", "localhost")
"""Hosts that need no network: packing costs 35 us a span, and the server pays for unpacking."""
_TRUE = ("1", "true", "yes")
_ISSUES = "/api/3.0/mlflow/issues"


class ServerStore:
    """Writes to the server at ``uri``.

    Credentials: ``MLFLOW_TRACKING_USERNAME`` and ``_PASSWORD``, ``MLFLOW_TRACKING_TOKEN``, or in the URI; certificates
    as in MLflow (``MLFLOW_TRACKING_SERVER_CERT_PATH``, ``MLFLOW_TRACKING_INSECURE_TLS``).
    """

    max_traces = MAX_LINKED
    """See ``Store``."""

    def __init__(self, uri: str, client: httpx.Client | None = None) -> None:
        self.url = without_password(uri).partition("?")[0].rstrip("/")
        self._client = client or httpx.Client(
            timeout=TIMEOUT, verify=_verify(), auth=_auth(uri), headers=_headers(), event_hooks=BOUNDED
        )
        self._here = urlsplit(self.url).hostname in _HERE
        self._experiments: dict[str, str] = {}
        self._version: tuple[int, ...] | None = None

    def _release(self) -> tuple[int, ...]:
        """Return the server's release, ``(3, 17)``; ``(0,)``: unknown."""
        if self._version is None:
            match = re.match(r"(\d+)\.(\d+)", self._ask("GET", "/version").text)
            self._version = tuple(map(int, match.groups())) if match else (0,)
        return self._version

    def experiment_id(self, name: str) -> str:
        """See ``Store``. Two processes that create an experiment at once both get the same experiment."""
        if name not in self._experiments:
            self._experiments[name] = self._find(name) or self._create(name)
        return self._experiments[name]

    def _find(self, name: str) -> str | None:
        answer = self._ask("GET", "/api/2.0/mlflow/experiments/get-by-name", params={"experiment_name": name})
        if answer.status_code == 404:
            return None
        experiment = self._json(answer)["experiment"]
        if experiment.get("lifecycle_stage") == "deleted":
            raise deleted(name, experiment["experiment_id"])
        return str(experiment["experiment_id"])

    def _create(self, name: str) -> str:
        answer = self._ask("POST", "/api/2.0/mlflow/experiments/create", json={"name": name})
        if answer.status_code == 400 and (existing := self._find(name)):
            return existing
        return str(self._json(answer)["experiment_id"])

    def issue(self, experiment_id: str, issue: Issue) -> str | None:
        """See ``Store``."""
        if self._release() < (3, 11):
            return None
        wanted: dict[str, Any] = {"experiment_id": experiment_id, "max_results": 1000}
        answer = self._ask("POST", f"{_ISSUES}/search", json=wanted)
        if answer.status_code in (404, 405, 501):  # a store without issues
            return None
        if (known := self._oldest(answer, issue)) is not None:
            return known
        body = {**asdict(issue), "experiment_id": experiment_id, "status": "pending", "created_by": SOURCE}
        made = self._json(self._ask("POST", _ISSUES, json=body))["issue"]["issue_id"]
        # two processes that made the issue at once use the same issue: the first in the list
        return self._oldest(self._ask("POST", f"{_ISSUES}/search", json=wanted), issue) or str(made)

    def _oldest(self, answer: httpx.Response, issue: Issue) -> str | None:
        same = [
            (int(known.get("created_timestamp") or 0), str(known["issue_id"]))
            for known in self._json(answer).get("issues", [])
            if known.get("name") == issue.name and known.get("created_by") == SOURCE
        ]
        return min(same)[1] if same else None

    @property
    def adds_usage(self) -> bool:
        """See ``Store``."""
        return (3, 6) <= self._release() < (3, 12)

    def write(self, experiment_id: str, deliveries: Sequence[MlflowTrace], run_id: str | None) -> Sequence[MlflowTrace]:
        """See ``Store``. A server has no such way."""
        return deliveries

    def log_spans(self, experiment_id: str, spans: Sequence[MlflowSpan], run_id: str | None) -> None:
        """See ``Store``."""
        headers = {"content-type": "application/x-protobuf", "x-mlflow-experiment-id": experiment_id}
        if run_id:
            headers["x-mlflow-run-id"] = run_id
        body = request(spans).SerializeToString()
        if not self._here and self._release() >= (3, 8):  # 3.5 does not unpack
            headers["content-encoding"] = "gzip"
            body = gzip.compress(body, 1)
        answer = self._ask("POST", "/v1/traces", content=body, headers=headers)
        if answer.status_code in (404, 405, 501) and "error_code" not in answer.text:
            raise Refused(
                f"{self.url} does not accept traces ({answer.status_code}): it needs MLflow 3.5 and an SQL store"
            )
        self._check(answer)

    def start_trace(self, experiment_id: str, trace: TraceDescription) -> None:
        """See ``Store``."""
        self._put_info(trace.message(experiment_id))

    def _put_info(self, info: dict[str, Any]) -> None:
        self._check(self._ask("POST", "/api/3.0/mlflow/traces", json={"trace": {"trace_info": info}}))

    def learn(self, experiment_id: str, traces: Sequence[TraceDescription]) -> None:
        """See ``Store``."""
        for trace in traces:
            told = trace.message(experiment_id)
            answer = self._json(self._ask("GET", f"/api/3.0/mlflow/traces/{trace.trace_id}"))
            info = answer["trace"]["trace_info"]
            self._put_info(
                {**info, "tags": {**info.get("tags", {}), **told["tags"]}, "assessments": told["assessments"]}
            )

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int, at_ms: int) -> None:
        """See ``Store``."""
        listed = [{"key": name, "value": metrics[name], "timestamp": at_ms, "step": step} for name in metrics]
        body = {"run_id": run_id, "metrics": listed}
        self._check(self._ask("POST", "/api/2.0/mlflow/runs/log-batch", json=body))

    def log_text(self, run_id: str, path: str, text: str) -> None:
        """See ``Store``. If the server does not proxy artifacts, MLflow's client writes the artifacts."""
        run = self._json(self._ask("GET", "/api/2.0/mlflow/runs/get", params={"run_id": run_id}))
        uri = str(run["run"]["info"]["artifact_uri"])
        parts = urlsplit(uri)
        if parts.scheme != "mlflow-artifacts":
            put_text(uri, path, text)
            return
        place = quote(f"{parts.path.strip('/')}/{path}")
        self._check(self._ask("PUT", f"/api/2.0/mlflow-artifacts/artifacts/{place}", content=text.encode()))

    def page(self, experiment_id: str, trace_id: str) -> str | None:
        """See ``Store``."""
        return f"{self.url}/#/experiments/{experiment_id}/traces?selectedEvaluationId={quote(trace_id)}"

    def _ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            answer = self._client.request(method, self.url + path, **request)
        except httpx.TimeoutException as error:
            raise Unavailable(f"MLflow at {self.url} does not answer") from error
        except httpx.TransportError as error:
            raise Unavailable(f"MLflow at {self.url} cannot be reached ({type(error).__name__})") from error
        code = answer.status_code
        if code in (401, 403):
            raise Refused(self._forbidden(answer))
        if code in (408, 425, 429, 502, 503, 504):
            raise Unavailable(
                f"MLflow at {self.url} asked to wait (HTTP {code})", retry_after(answer.headers.get("retry-after"))
            )
        return answer

    def _forbidden(self, answer: httpx.Response) -> str:
        if "host header" in answer.text.lower():
            host = urlsplit(self.url).netloc
            return f"MLflow at {self.url} does not serve this name; start it with --allowed-hosts '{host}'"
        return (
            f"MLflow at {self.url} rejected the credentials (HTTP {answer.status_code}); set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, and run autotrace ship"
        )

    def _json(self, answer: httpx.Response) -> Any:
        self._check(answer)
        try:
            return answer.json()
        except ValueError as error:
            raise Refused(f"{self.url} is not an MLflow server: its answer is not JSON") from error

    def _check(self, answer: httpx.Response) -> None:
        if not answer.is_success:
            self._experiments.clear()  # the experiment may be gone
            raise StoreError(f"HTTP {answer.status_code}: {_message(answer)}", passing=answer.status_code >= 500)

    def close(self) -> None:
        """See ``Store``."""
        self._client.close()


def _message(answer: httpx.Response) -> str:
    try:
        body = answer.json()
        return str(body.get("message") or body.get("detail") or body)[:300]
    except (ValueError, AttributeError):
        return answer.text[:300]


def _auth(uri: str) -> httpx.Auth | None:
    parts = urlsplit(uri)
    name = parts.username or os.environ.get("MLFLOW_TRACKING_USERNAME")
    password = parts.password or os.environ.get("MLFLOW_TRACKING_PASSWORD")
    return httpx.BasicAuth(name, password) if name and password else None


def _headers() -> dict[str, str]:
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    headers = {"user-agent": "autotrace"}
    if token and not os.environ.get("MLFLOW_TRACKING_USERNAME"):
        headers["authorization"] = f"Bearer {token}"
    workspace = os.environ.get("MLFLOW_WORKSPACE")
    if workspace:
        headers["x-mlflow-workspace"] = workspace
    return headers


def _verify() -> Any:
    if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in _TRUE:
        return False
    path = os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH") or os.environ.get("REQUESTS_CA_BUNDLE")
    if not path:
        return True
    import ssl

    return ssl.create_default_context(cafile=path)


_CODES = {"OK": Status.STATUS_CODE_OK, "ERROR": Status.STATUS_CODE_ERROR, "UNSET": Status.STATUS_CODE_UNSET}


def request(spans: Iterable[MlflowSpan]) -> ExportTraceServiceRequest:
    """Build the request for ``spans`` in the form that the server takes."""
    made = ExportTraceServiceRequest()
    add = made.resource_spans.add().scope_spans.add().spans.add
    for span in spans:
        _fill(add(), span)
    return made


def _fill(otlp_span: OtlpSpan, span: MlflowSpan) -> None:
    """Fill a message in place: building messages first and joining the messages later takes twice as long."""
    otlp_span.trace_id = bytes.fromhex(span.trace_id)
    otlp_span.span_id = bytes.fromhex(span.span_id)
    otlp_span.parent_span_id = bytes.fromhex(span.parent_id or "")
    otlp_span.name = span.name
    otlp_span.start_time_unix_nano = span.start_ns
    otlp_span.end_time_unix_nano = span.end_ns
    otlp_span.status.code = _CODES[span.status]
    otlp_span.status.message = span.message
    add = otlp_span.attributes.add
    for name, value in span.attributes.items():
        if isinstance(value, str):
            add(key=name).value.string_value = value
        elif isinstance(value, bool):
            add(key=name).value.bool_value = value
        else:
            add(key=name).value.int_value = value
    if span.exception is not None:
        event = otlp_span.events.add(name="exception", time_unix_nano=span.end_ns)
        for name, value in zip(("type", "message", "stacktrace"), span.exception, strict=True):
            event.attributes.add(key=f"exception.{name}").value.string_value = value
