"""Describe the backend ``otlp``."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

from autotrace.run.info import RunInfo
from autotrace.sinks.backend import Backend, Destination, Health
from autotrace.sinks.protocol import Sink


class OtlpBackend(Backend):
    """See ``Backend``."""

    name = "otlp"
    summary = "any OpenTelemetry receiver"
    requires = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http", "requests")

    def make(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
        """See ``Backend``."""
        from autotrace.sinks.otlp.sink import OtlpSink

        return OtlpSink(info)

    def health(self, destination: Destination) -> Health:
        """See ``Backend``."""
        from autotrace.sinks.http import probe
        from autotrace.sinks.otlp import endpoint

        return probe(endpoint(), "OTEL_EXPORTER_OTLP_ENDPOINT")


BACKEND = OtlpBackend()
