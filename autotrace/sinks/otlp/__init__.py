"""Send trajectories to any OTLP receiver, with the names of the GenAI semantic conventions."""

from __future__ import annotations

import os

DEFAULT_ENDPOINT = "http://localhost:4318"


def endpoint() -> str:
    """Return the receiver's address, as OpenTelemetry's own exporter finds the address."""
    configured = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    return configured or DEFAULT_ENDPOINT
