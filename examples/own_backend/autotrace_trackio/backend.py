"""The descriptor: what the launcher, the shipper and ``autotrace doctor`` know of this backend. Imports no trackio."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

from autotrace.run.info import RunInfo
from autotrace.sinks.backend import Backend
from autotrace.sinks.protocol import Sink


class TrackioBackend(Backend):
    name = "trackio"
    summary = "trackio's traces, in $TRACKIO_DIR"
    requires = ("trackio",)
    install = "pip install trackio"

    def make(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
        from autotrace_trackio.sink import TrackioSink

        return TrackioSink(info, memory)


BACKEND = TrackioBackend()
