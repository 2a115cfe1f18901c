"""Where trajectories go: one folder a backend, with its descriptor in ``backend.py``; ``registry`` finds them by name.

A backend's folder, and with it its library, is imported when it is used and not before.
"""

from __future__ import annotations

DEFAULT_PROJECT = "autotrace"
"""MLflow experiment, Weave project and OpenTelemetry service of a run for which no project is named."""
