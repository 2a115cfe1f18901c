"""The run that a trainer's own logger has open: what autotrace delivers is linked to it."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

from autotrace.record import statements
from autotrace.redact.masking import without_password


def publish_runs(loggers: Collection[str], project: Any, experiment: Any) -> None:
    """``Bind("mlflow")`` and ``Bind("wandb")`` for the runs that are open in this process now. Asks no server."""
    mlflow = sys.modules.get("mlflow")
    run = mlflow.active_run() if mlflow is not None and "mlflow" in loggers else None
    if mlflow is not None and run is not None:
        statements.bind(
            "mlflow",
            {
                "run_id": run.info.run_id,
                "experiment_id": run.info.experiment_id,
                "experiment_name": project,
                "run_name": run.info.run_name or experiment,
                "tracking_uri": without_password(mlflow.get_tracking_uri()),
            },
        )
    run = getattr(sys.modules.get("wandb"), "run", None) if "wandb" in loggers else None
    if run is not None:
        statements.bind("wandb", {"entity": run.entity, "project": run.project, "run_id": run.id})
