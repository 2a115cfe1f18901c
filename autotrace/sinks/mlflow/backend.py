"""Describe the backend ``mlflow``."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from autotrace.redact.masking import masked_uri
from autotrace.run.info import RunInfo
from autotrace.sinks.backend import Backend, Destination, Health
from autotrace.sinks.mlflow import uri as uris
from autotrace.sinks.protocol import Sink


class MlflowBackend(Backend):
    """See ``Backend``."""

    name = "mlflow"
    summary = "an SQL store or a tracking server"
    requires = ("mlflow", "httpx")
    distributions = ("mlflow",)
    run_bind = "mlflow"

    def make(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
        """See ``Backend``."""
        from autotrace.sinks.mlflow.sink import MlflowSink

        return MlflowSink(info, run_folder, memory)

    def warm_up(self, info: RunInfo) -> None:
        """Import MLflow, which takes seconds; see ``Backend``. A server needs no import."""
        if not (info.tracking_uri or "").startswith(("http://", "https://")):
            uris.store_class()

    def absolute_uri(self, uri: str) -> str:
        """Return ``sqlite:///file.db`` with an absolute path, so that ``autotrace ship`` finds the file from any
        folder."""
        return uris.absolute(uri)

    def check(self, destination: Destination) -> None:
        """See ``Backend``."""
        try:
            if destination.tracking_uri is not None:
                uris.check_uri(destination.tracking_uri)
        except ValueError as error:
            raise ValueError(f"{destination.uri_origin}: {error}") from None

    def prepare(self, destination: Destination) -> None:
        """Create a fresh SQLite store now: processes that create a store together damage the store for good (8 of 8
        tries)."""
        uri = destination.tracking_uri
        path = None if uri is None else uris.sqlite_path(uri)
        if uri is None or path is None or (os.path.exists(path) and os.path.getsize(path)):
            return
        try:
            uris.initialise(uri)
        except Exception as error:
            raise ValueError(f"MLflow cannot create {masked_uri(uri)}: {error}") from error

    def health(self, destination: Destination) -> Health:
        """See ``Backend``."""
        uri = destination.tracking_uri
        if uri is None:
            return Health(True, "no tracking URI: veRL's own logger's, else mlflow.db in --run-dir")
        if uri.startswith(("http://", "https://")):
            from autotrace.sinks.http import probe

            return probe(uri.rstrip("/") + "/health", destination.uri_origin)
        shown = f"{masked_uri(uri)} ({destination.uri_origin})"
        path = uris.sqlite_path(uris.absolute(uri))
        if path is None:
            return Health(True, f"{shown}, not asked (a database)")
        try:
            uris.check_uri(uri)
        except ValueError as error:
            return Health(False, str(error))
        return Health(True, shown + ("" if os.path.exists(path) else ", will be created"))


BACKEND = MlflowBackend()
