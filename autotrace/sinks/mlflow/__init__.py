"""MLflow, 3.5 or newer: an SQL store directly, or a tracking server. MLflow's own tracer is not used.

Importing this package imports nothing of MLflow; ``sink`` is the sink.
"""

from __future__ import annotations

from autotrace.sinks.mlflow.uri import check_uri, initialise, ui_command

__all__ = ["check_uri", "initialise", "ui_command"]
