"""``autotrace.open``: opens runs for scripts and notebooks, and renders a trajectory as ``autotrace show`` does."""

from __future__ import annotations

from autotrace.ship.readers import open
from autotrace.trajectory.model import Trajectory


def as_html(trajectory: Trajectory) -> str:
    """Render ``trajectory`` for a notebook."""
    from autotrace.cli import show  # click and rich, which a script does not need

    return show.as_html(trajectory)


Trajectory.renderer = as_html
__all__ = ["open"]
