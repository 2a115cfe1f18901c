"""openai: raw responses that were not read."""

from __future__ import annotations

from autotrace.adapters import later_answers


def install() -> None:
    """Have calls end with what their raw responses say. Idempotent."""
    later_answers.wait_for("openai", later_answers.RAW)
