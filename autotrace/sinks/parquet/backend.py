"""The descriptor of the backend ``parquet``."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from importlib.util import find_spec
from pathlib import Path

from autotrace.run.info import RunInfo
from autotrace.sinks.backend import Backend, Destination, Health, extra
from autotrace.sinks.parquet import location
from autotrace.sinks.protocol import Reporter, Sink
from autotrace.tables.lean import arrow_without_pandas


class ParquetBackend(Backend):
    """See ``Backend``."""

    name = "parquet"
    summary = "tables for polars, DuckDB, Ray Data"
    requires = ("pyarrow", "fsspec")
    install = extra("parquet")
    distributions = ("pyarrow", "fsspec")
    gather = 2.0

    def make(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
        """See ``Backend``."""
        arrow_without_pandas()
        from autotrace.sinks.parquet.sink import ParquetSink

        return ParquetSink(info, run_folder, memory)

    def reporter(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Reporter:
        """See ``Backend``."""
        arrow_without_pandas()
        from autotrace.sinks.parquet.metrics import MetricsWriter

        return MetricsWriter(info, run_folder, memory)

    def check(self, destination: Destination) -> None:
        """See ``Backend``."""
        location.check(os.environ.get(location.VARIABLE), find_spec)

    def health(self, destination: Destination) -> Health:
        """See ``Backend``. Asks nothing: a look at an object store may take minutes."""
        try:
            self.check(destination)
        except ValueError as error:
            return Health(False, str(error))
        given = os.environ.get(location.VARIABLE)
        return Health(
            True, f"{given} (environment {location.VARIABLE})" if given else "the folder parquet in --run-dir"
        )


BACKEND = ParquetBackend()
