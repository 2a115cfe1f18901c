"""Which backends: the user's own choice, else what veRL's own configuration says, else the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotrace.run.info import RunInfo
from autotrace.sinks import registry

KEY = "actor_rollout_ref.rollout.trace"
"""Where veRL's configuration has its trace settings, unless ``Bind("verl_trace")`` names another ``key``."""


def chosen(info: RunInfo, settings: Mapping[str, Any]) -> str | None:
    """The backend that veRL's trace settings (``Bind("verl_trace")``) name; None where the user chose one, or where
    no backend has that name."""
    backend = settings.get("backend")
    return str(backend) if backend in registry.names() and info.origins.get("backends") == "default" else None


def remember(info: RunInfo, backend: str, settings: Mapping[str, Any]) -> None:
    """``backend`` is the run's only one from now on, because veRL's ``settings`` say so."""
    info.backends = [backend]
    info.origins = {**info.origins, "backends": origin(settings, "backend")}


def origin(settings: Mapping[str, Any], name: str) -> str:
    """Where a setting of veRL's came from, as ``autotrace status`` shows it."""
    return f"veRL's {settings.get('key', KEY)}.{name}"
