"""The descriptor of the backend ``parquet``."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from importlib.util import find_spec
from pathlib import Path

from autotrace.run.info import RunInfo
from autotrace.sinks.backend import Backend, Destination, Health, extra
from autotrace.sinks.protocol import Sink
from autotrace.tables import place


class ParquetBackend(Backend):
    """See ``Backend``."""

    name = "parquet"
    summary = "the run's tables in another folder or a bucket"
    requires = ("fsspec",)
    install = extra("parquet")
    distributions = ("pyarrow", "fsspec")
    from_tables = True

    def make(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
        """See ``Backend``."""
        from autotrace.sinks.parquet.sink import ParquetSink

        return ParquetSink(info, run_folder, memory)

    def check(self, destination: Destination) -> None:
        """See ``Backend``."""
        place.check(os.environ.get(place.VARIABLE), find_spec)

    def health(self, destination: Destination) -> Health:
        """See ``Backend``. Asks nothing: a look at an object store may take minutes."""
        try:
            self.check(destination)
        except ValueError as error:
            return Health(False, str(error))
        given = os.environ.get(place.VARIABLE)
        return Health(True, f"{given} (environment {place.VARIABLE})" if given else "the folder parquet in --run-dir")


BACKEND = ParquetBackend()
