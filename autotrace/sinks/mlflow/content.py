"""The text that MLflow's store keeps of a span, made without the objects that its store class makes on the way.

MLflow looks at each span before it stores it: it adds what other tracers' attributes mean, a price where it knows the
model's, and each release writes its own form. So nothing is assumed here. The form is read off the installed release,
and the first span of every kind is compared with what MLflow would store; a kind of which MLflow makes something else
is left to MLflow.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from importlib import import_module
from json.encoder import encode_basestring
from typing import Any

from autotrace.sinks.mlflow.spans import JsonText, MlflowSpan

OURS = ("autotrace.", "mlflow.")
WORDS = frozenset({
    "agent", "cache_creation_tokens", "cache_read_tokens", "content", "diff", "events", "file_path", "full_command",
    "input", "input_tokens", "messages", "model", "name", "new_context", "output", "output_tokens", "provider",
    "response", "role", "skill_name", "span_type", "subagent_type", "system_prompt", "tool_input", "tools",
    "user_prompt",
})  # fmt: skip
"""Attributes without a dot in their name in which some release of MLflow reads another tracer's meaning."""
_MODEL = "mlflow.llm.model"
_PROBE = MlflowSpan("1" * 32, "2" * 16, "3" * 16, "probe", 1, 2, "OK", "", None, {})
_BLANKS = " \t\n\r"


def json_text(value: str | int | bool) -> str:
    """An attribute as JSON, as a tracking server would have it: text that is itself JSON for a text, an object or a
    list stands for that."""
    if isinstance(value, JsonText):
        return value
    if not isinstance(value, str):
        return json.dumps(value)
    encoded = encode_basestring(value)
    while isinstance(value, str) and value.lstrip(_BLANKS)[:1] in ('"', "[", "{"):
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            break
        encoded, value = value, inner
    return encoded


class Contents:
    """The form of the installed MLflow."""

    def __init__(self, ascii_only: bool) -> None:
        from mlflow.entities import Span

        self._ascii = ascii_only
        self.plain = False
        """MLflow 3.5: ids as they are, and no tag that says where the spans are."""
        self._from_dict: Callable[[dict[str, Any]], Any] = Span.from_dict
        self._to_dict = _stored_form()
        self._known: dict[tuple[Any, ...], bool] = {}
        self._template: dict[str, Any] = _values(_PROBE)
        self._template = self.entity(_PROBE).to_dict()
        self.plain = self._template["trace_id"].startswith("tr-")

    def _dict(self, span: MlflowSpan) -> dict[str, Any]:
        """The span as the installed MLflow's ``Span.to_dict`` has it, in its order; ``Span.from_dict`` reads it."""
        values = _values(span)
        if self.plain:
            values |= {"trace_id": f"tr-{span.trace_id}", "span_id": span.span_id, "parent_span_id": span.parent_id}
            values["status"] = {"code": span.status, "message": span.message}
        return {name: values.get(name, constant) for name, constant in self._template.items()}

    def entity(self, span: MlflowSpan) -> Any:
        """``span`` as MLflow's own ``Span``."""
        return self._from_dict(self._dict(span))

    def text(self, span: MlflowSpan) -> str | None:
        """What the column ``content`` holds; None: MLflow would store something else than was recorded."""
        content = self._dict(span)
        if not self._kept(span, content):
            return None
        return json.dumps(content, ensure_ascii=self._ascii)

    def _kept(self, span: MlflowSpan, content: dict[str, Any]) -> bool:
        """MLflow stores ``content`` as it is."""
        if _foreign(span):
            return bool(self._to_dict(self._from_dict(content)) == content)
        attributes = span.attributes
        kind = (
            span.status, span.parent_id is None, span.exception is None, attributes["mlflow.spanType"],
            attributes.get(_MODEL), str(attributes.get("mlflow.chat.tokenUsage", "")).endswith(":0}"), *attributes,
        )  # fmt: skip
        if kind not in self._known:
            self._known[kind] = bool(self._to_dict(self._from_dict(content)) == content)
        return self._known[kind]


def _foreign(span: MlflowSpan) -> bool:
    """Its attributes, or a model that its arguments name, may mean something to MLflow, which depends on the values."""
    for name in span.attributes:
        if (name in WORDS or "." in name) and not name.startswith(OURS):
            return True
    if _MODEL in span.attributes:
        return False
    return any('"model"' in str(span.attributes.get(f"mlflow.span{part}", "")) for part in ("Inputs", "Outputs"))


def _values(span: MlflowSpan) -> dict[str, Any]:
    attributes = {name: json_text(value) for name, value in span.attributes.items()}
    attributes["mlflow.traceRequestId"] = f'"tr-{span.trace_id}"'
    events: list[dict[str, Any]] = []
    if span.exception is not None:
        names = ("exception.type", "exception.message", "exception.stacktrace")
        exception = dict(zip(names, span.exception, strict=True))
        events.append({"name": "exception", "time_unix_nano": span.end_ns, "attributes": exception})
    return {
        "trace_id": _base64(span.trace_id),
        "span_id": _base64(span.span_id),
        "parent_span_id": _base64(span.parent_id) if span.parent_id else None,
        "name": span.name,
        "start_time_unix_nano": span.start_ns,
        "end_time_unix_nano": span.end_ns,
        "events": events,
        "status": {"code": f"STATUS_CODE_{span.status}", "message": span.message},
        "attributes": attributes,
    }


def _stored_form() -> Callable[[Any], Any]:
    try:
        translation: Any = import_module("mlflow.tracing.otel.translation")
    except ImportError:  # MLflow 3.5 stores what it gets
        return lambda span: span.to_dict()
    form: Callable[[Any], Any] = translation.translate_span_when_storing
    return form


def _base64(id: str) -> str:
    return base64.b64encode(bytes.fromhex(id)).decode()
