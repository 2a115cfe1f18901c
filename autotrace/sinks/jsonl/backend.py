"""Describe the backend ``jsonl``."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

from autotrace.run.info import RunInfo
from autotrace.sinks.backend import Backend
from autotrace.sinks.protocol import Sink


class JsonlBackend(Backend):
    """See ``Backend``."""

    name = "jsonl"
    summary = "a file in the run folder"

    def make(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
        """See ``Backend``."""
        from autotrace.sinks.jsonl.sink import JsonlSink

        return JsonlSink(run_folder, memory)


BACKEND = JsonlBackend()
