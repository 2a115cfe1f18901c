"""Programs of tests run this before they start Ray: ``runpy.run_path(os.environ["RAY_WAITS"])``. Ray gives its own node
30 s to register, which is a constant; a machine with other work may need more."""

from __future__ import annotations

import time
from typing import Any

from ray._private import services

SECONDS = 300.0
_get_node: Any = getattr(services, "get_node", None)
"""Releases that have none wait elsewhere."""


def get_node(*args: Any) -> Any:
    """The node, as soon as it is there."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            return _get_node(*args)
        except RuntimeError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


if _get_node is not None:
    services.get_node = get_node
