"""What tools returned, as text where it is nothing else: content blocks of MCP and messages of LangChain say it with
much around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autotrace.trajectory.model import Span


def read_tool_results(spans: Iterable[Span]) -> None:
    """Put the text of a tool's result in the place of the message or the blocks that hold it."""
    for span in spans:
        if span.role == "tool" and isinstance(span.output, dict):
            text = _text(span.output)
            if text is not None:
                span.output = text


def _text(output: Mapping[str, Any]) -> str | None:
    """The text; None where there is anything beside it that nobody else says."""
    content = output.get("content")
    if output.get("type") == "tool" and isinstance(content, str):
        return content if not output.get("artifact") else None
    if not isinstance(content, list) or not content:
        return None
    if any(not isinstance(block, dict) or block.get("type") != "text" for block in content):
        return None
    texts = [block.get("text") for block in content]
    if not all(isinstance(text, str) for text in texts):
        return None
    return "\n".join(text for text in texts if isinstance(text, str))
