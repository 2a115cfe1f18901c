"""OpenTelemetry: trajectories to any OTLP receiver, in the words of the GenAI semantic conventions."""

from __future__ import annotations

from autotrace.sinks.otlp.sink import OtlpSink

__all__ = ["OtlpSink"]
