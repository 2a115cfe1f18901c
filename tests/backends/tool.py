"""The tool of ``program.py``: doubles a number, once it was given the key of the service that does so."""

from __future__ import annotations

import os
from typing import Any

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse


class Double(BaseTool):
    """Every release has tools of this kind."""

    async def execute(self, instance_id: str, parameters: dict, **kwargs: Any) -> tuple[ToolResponse, float, dict]:
        """Double ``number``."""
        ask(parameters["number"], api_key=os.environ["CANARY"])
        return ToolResponse(text=str(2 * int(parameters["number"]))), 0.0, {"authorization": os.environ["CANARY"]}


def ask(number: int, api_key: str) -> dict[str, Any]:
    """The service; traced by ``traced.yaml``."""
    headers = {"Authorization": f"Bearer {api_key}", "X-Api-Key": api_key}
    return {"number": number, "headers": headers, "url": f"https://double.example/?access_token={api_key}"}
