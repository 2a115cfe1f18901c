"""Which backends: what a person told autotrace, else what veRL's own configuration says, else the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotrace.run.info import RunInfo
from autotrace.sinks import registry

KEY = "actor_rollout_ref.rollout.trace"
"""Where veRL's configuration has its trace settings, unless ``Bind("verl_trace")`` names another ``key``."""


def heed(info: RunInfo, settings: Mapping[str, Any]) -> bool:
    """Let veRL's trace settings (``Bind("verl_trace")``) choose the backend where nobody else did; True: they did.

    ``info.backends`` stays the same list: whoever holds it sees the choice.
    """
    wanted = settings.get("backend")
    if wanted not in registry.names() or info.origins.get("backends") != "default":
        return False
    info.backends[:] = [str(wanted)]
    info.origins["backends"] = origin(settings, "backend")
    return True


def origin(settings: Mapping[str, Any], name: str) -> str:
    """Where a setting of veRL's came from, as ``autotrace status`` shows it."""
    return f"veRL's {settings.get('key', KEY)}.{name}"
