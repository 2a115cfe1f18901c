"""``--content text``: a trajectory without the token ids that its texts were made of."""

from __future__ import annotations

from typing import Any

from autotrace.trajectory.model import Trajectory

_WITHHELD = "token ids, not delivered (--content text)"


def without_token_ids(trajectory: Trajectory) -> None:
    """Take the token ids out of ``trajectory``; their numbers stay (``prompt_tokens``, ``response_tokens``).

    Also out of captured values, where lists of integers under a name that ends in ``ids`` are taken for such.
    """
    for span in trajectory.spans:
        if span.prompt_tokens is None and (prompt := span.prompt_ids) is not None:
            span.prompt_tokens = len(prompt)
        if span.response_ids is not None and span.response_tokens is None:
            span.response_tokens = len(span.response_ids)
        span.prompt_ids = span.new_prompt_ids = span.response_ids = span.prompt_base = None
        span.prompt_keep = 0
        span.inputs, span.output, span.attributes = _walk(span.inputs), _walk(span.output), _walk(span.attributes)


def _walk(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: f"{len(item)} {_WITHHELD}" if _ids(name, item) else _walk(item) for name, item in value.items()}
    return [_walk(item) for item in value] if isinstance(value, (list, tuple)) else value


def _ids(name: Any, value: Any) -> bool:
    if not (isinstance(name, str) and name.lower().endswith("ids") and isinstance(value, (list, tuple)) and value):
        return False
    rows = value if isinstance(value[0], (list, tuple)) else [value]
    return all(isinstance(row, (list, tuple)) and all(type(item) is int for item in row) for row in rows)
