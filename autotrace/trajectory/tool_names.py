"""Which tool a call of the role ``tool`` is a call of, as people know it: ``search``, not ``Agent.call_tool``."""

from __future__ import annotations

from typing import Any

from autotrace.trajectory.jsonable import text
from autotrace.trajectory.model import Span

ATTRIBUTE = "tool_name"
OBJECT_NAME = "object_name"
"""Attribute with the ``name`` that the object of a tool's method has (``record.probe``)."""
MAX_NAME = 200
"""Characters."""
_ARGUMENTS = ("tool_call", "tool_name", "function_name", "tool")
"""Arguments that name the tool, or whose ``name`` does."""
BESIDE_NAME = frozenset({"args", "arguments", "input", "kwargs", "parameters", "params", "tool_args", "tool_input"})
"""Beside one of these, an argument ``name`` is the tool's, not one that the tool was given."""


def tool_name(span: Span) -> str:
    """The attribute ``tool_name``, else an argument, else the name of the object, else what was called."""
    return named_tool(span) or word(span.attributes.get(OBJECT_NAME)) or text(span.name)


def named_tool(span: Span) -> str | None:
    """The name by which the call asks for the tool: the attribute ``tool_name``, else an argument."""
    return word(span.attributes.get(ATTRIBUTE)) or _argument(span)


def _argument(span: Span) -> str | None:
    for argument in _ARGUMENTS:
        value = span.inputs.get(argument)
        if value is not None and (name := _named(value)) is not None:
            return name
    if "tool" in span.name.rpartition(".")[2].lower() or BESIDE_NAME & span.inputs.keys():
        return word(span.inputs.get("name"))
    return None


def _named(value: Any) -> str | None:
    """``"search"``, ``{"name": "search"}`` or ``{"function": {"name": "search"}}``."""
    if isinstance(value, dict):
        inner = value.get("function")
        return word(value.get("name")) or (_named(inner) if isinstance(inner, (str, dict)) else None)
    return word(value)


def word(value: Any) -> str | None:
    """A text in one line, None for anything else."""
    return " ".join(text(value).split())[:MAX_NAME] or None if isinstance(value, str) else None
