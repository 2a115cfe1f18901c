"""The tracers again, as those that record what is asked through clients of model servers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.subjects import Autotrace, MLflow, OpenTelemetry, Subject


class AutotraceClients(Autotrace):
    """With the shipped lists: what ``autotrace-run`` records of clients of model servers."""

    def shipped(self) -> tuple[Any, ...]:
        from autotrace.spec.compiler import compile_plan

        return compile_plan().targets


class OpenTelemetryClients(OpenTelemetry):
    """The contributed instrumentation of openai, with the contents of messages."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true"
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

        OpenAIInstrumentor().instrument(tracer_provider=self.provider)

    @contextlib.contextmanager
    def trajectory(self) -> Iterator[None]:
        with self.tracer.start_as_current_span("trajectory"):
            yield


class MLflowClients(MLflow):
    """``mlflow.openai.autolog()``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import mlflow.openai

        mlflow.openai.autolog()


CLIENT_SUBJECTS: dict[str, type[Subject]] = {
    "autotrace, shipped lists": AutotraceClients,
    "mlflow.openai.autolog": MLflowClients,
    "OpenTelemetry, openai": OpenTelemetryClients,
}
"""By the name they have in the tables."""
