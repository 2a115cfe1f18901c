"""Token ids back from a trace in MLflow, exactly as the engine read and wrote them.

An LLM span holds ``autotrace.new_prompt_ids`` and ``autotrace.response_ids``: decimal numbers with blanks between them.
The whole prompt is the first ``autotrace.prompt_keep`` tokens of the prompt + response of span
``autotrace.prompt_base``, followed by the new ones; without a base it is the new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotrace.sinks.payload import unpacked


def token_ids(spans: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[list[int], list[int]]]:
    """Span id -> (prompt, response), from span id -> attributes (values as MLflow returns them, or as text)."""
    ids_of: dict[str, tuple[list[int], list[int]]] = {}

    def of(span_id: str) -> tuple[list[int], list[int]]:
        if span_id not in ids_of:
            attributes = spans[span_id]
            ids_of[span_id] = ([], [])  # a base that refers to itself ends here
            base = attributes.get("autotrace.prompt_base")
            before: list[int] = []
            if base in spans:
                prompt, response = of(str(base))
                before = [*prompt, *response][: int(attributes["autotrace.prompt_keep"])]
            new = unpacked(str(attributes.get("autotrace.new_prompt_ids", "")))
            ids_of[span_id] = ([*before, *new], unpacked(str(attributes.get("autotrace.response_ids", ""))))
        return ids_of[span_id]

    wanted = ("autotrace.new_prompt_ids", "autotrace.response_ids")
    return {span_id: of(span_id) for span_id, attributes in spans.items() if any(name in attributes for name in wanted)}
