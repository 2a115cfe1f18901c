"""The backends by name. A backend's module, and with it its library, is imported when it is used and not before."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from importlib import import_module
from pathlib import Path

from autotrace.run.info import RunInfo
from autotrace.sinks.protocol import Sink

DEFAULT_PROJECT = "autotrace"
"""MLflow experiment, Weave project and OpenTelemetry service of a run for which nobody names a project."""

Factory = Callable[[RunInfo, Path, MutableMapping[str, str]], Sink]


def _mlflow(info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
    sink: Sink = import_module("autotrace.sinks.mlflow.sink").MlflowSink(info, run_folder, memory)
    return sink


def _jsonl(info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
    sink: Sink = import_module("autotrace.sinks.jsonl").JsonlSink(info, run_folder, memory)
    return sink


def _weave(info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
    sink: Sink = import_module("autotrace.sinks.weave").WeaveSink(info, memory)
    return sink


def _otlp(info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
    sink: Sink = import_module("autotrace.sinks.otlp").OtlpSink(info)
    return sink


FACTORIES: dict[str, Factory] = {"mlflow": _mlflow, "weave": _weave, "otlp": _otlp, "jsonl": _jsonl}
"""Name on the command line -> how to make the sink."""


def make(name: str, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
    """The sink called ``name``.

    ``memory`` keeps text by name for the next process of the same run; ``place`` (where the traces go) and
    ``open_with`` (the command that shows them) in it are for people.

    Raises ``ValueError`` for an unknown name and ``ImportError`` when its library is missing.
    """
    factory = FACTORIES.get(name)
    if factory is None:
        raise ValueError(f"there is no backend {name!r}; choose from {', '.join(FACTORIES)}")
    return factory(info, run_folder, memory)
