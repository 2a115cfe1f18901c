"""Texts into the artifact store of a run, wherever that is."""

from __future__ import annotations

import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from autotrace.run import files
from autotrace.sinks.mlflow.store import StoreError


def put_text(artifact_uri: str, path: str, text: str) -> None:
    """Store ``text`` at ``path`` below ``artifact_uri`` (a folder, an object store), with MLflow's own client of it.
    Raises ``StoreError``."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    place = PurePosixPath(path)
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, place.name)
            files.replace(file, text.encode(errors="replace"))
            repository: Any = get_artifact_repository(artifact_uri)  # comes without types
            repository.log_artifact(str(file), str(place.parent))
    except Exception as error:  # each kind of store raises what its library does
        raise StoreError(f"{type(error).__name__}: {error}"[:300]) from error
