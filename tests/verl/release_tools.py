"""A tool of the kind that every release of veRL since 0.5 knows."""

from __future__ import annotations

from typing import Any

from verl.tools.base_tool import BaseTool

try:
    from verl.tools.schemas import ToolResponse
except ImportError:  # 0.5: the text itself

    def ToolResponse(text: str) -> str:  # type: ignore[no-redef]
        return text


SCHEMA = {
    "type": "function",
    "function": {
        "name": "double",
        "description": "Double a number.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer", "description": "any number"}},
            "required": ["number"],
        },
    },
}


class Double(BaseTool):
    """Doubles a number. veRL's decorator is left out on purpose: many authors do."""

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> tuple[Any, float, dict]:
        """Double it."""
        return ToolResponse(text=str(2 * int(parameters["number"]))), 0.0, {}
