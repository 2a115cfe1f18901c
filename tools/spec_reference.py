"""What is generated of the spec language: the JSON Schema for editors, from the model and the words of the reference,
and the reference's table of functions (``make pages``)."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from autotrace.record.spec_functions import FUNCTIONS
from autotrace.spec import model

_INSIDE = {"Entry": "", "Capture": "capture.", "Tokens": "tokens.", "Batch": "batch.", "Key": "of."}
"""Name of a mapping in the schema -> the beginning of its keys' names in ``model.texts``."""


def json_schema() -> str:
    """The JSON Schema of a spec, as it is shipped."""
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "autotrace spec",
        "description": "A list of functions and methods to trace.",
        **_without_null(msgspec.json.schema(model.File)),
    }
    for name, above in _INSIDE.items():
        properties = schema["$defs"][name]["properties"]
        for key, described in properties.items():
            choices = {"enum": model.CHOICES[key]} if not above and key in model.CHOICES else {}
            properties[key] = {"description": model.texts()[above + key].meaning, **described, **choices}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def markdown(text: str) -> str:
    """The reference, with the functions that a value may name."""
    rows = ["| function | value |", "|---|---|"]
    for function in FUNCTIONS.values():
        shown = ", ".join(f"{name}=..." if may_be_left_out else name for name, may_be_left_out in function.arguments)
        rows.append(f"| `{function.name}({shown})` | {function.meaning} |")
    return re.sub(r"(?m)^\| function \| value \|\n(\|.*\n)+", lambda _: "\n".join([*rows, ""]), text)


def _without_null(schema: Any) -> Any:
    """``schema`` without None: a key that is not meant is left out, ``key:`` with nothing behind it is a mistake."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _without_null(item) for key, item in schema.items() if not (key == "default" and item is None)}
    alternatives = [item for item in kept.pop("anyOf", []) if item != {"type": "null"}]
    if len(alternatives) == 1:
        return {**alternatives[0], **kept}
    return {**kept, "anyOf": alternatives} if alternatives else kept
