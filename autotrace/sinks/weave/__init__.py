"""W&B Weave over plain HTTP; the ``weave`` package is not needed."""

from __future__ import annotations

from autotrace.sinks.weave.sink import WeaveSink

__all__ = ["WeaveSink"]
