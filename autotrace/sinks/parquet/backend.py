"""Describe the backend ``parquet``."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from autotrace.config import environment as env
from autotrace.redact.masking import masked_uri
from autotrace.run.info import RunInfo
from autotrace.sinks.backend import Backend, Destination, Health
from autotrace.sinks.protocol import Sink
from autotrace.tables.storage import DEFAULT


class ParquetBackend(Backend):
    """See ``Backend``."""

    name = "parquet"
    summary = "the run's tables in another folder or a bucket"
    distributions = ("pyarrow", "fsspec")
    from_tables = True

    def make(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
        """See ``Backend``."""
        from autotrace.sinks.parquet.sink import ParquetSink

        return ParquetSink(info, run_folder, memory)

    def health(self, destination: Destination) -> Health:
        """See ``Backend``. Asks nothing: a look at an object store may take minutes."""
        return Health(True, masked_uri(os.environ.get(env.TABLES, "")) or f"the folder {DEFAULT} in --run-dir")


BACKEND = ParquetBackend()
