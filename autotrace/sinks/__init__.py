"""Send trajectories to backends: one folder a backend, with the descriptor in ``backend.py``; see ``registry``.

A backend's folder, and with the folder its library, is imported only for use.
"""

from __future__ import annotations

DEFAULT_PROJECT = "autotrace"
"""Name of the MLflow experiment, Weave project and OpenTelemetry service of a run without a named project."""
