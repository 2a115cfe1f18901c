"""A veRL tool that asks an HTTP service, as most tools of agents do: timeouts, errors and all.

Named in a tool YAML as ``search.SearchTool`` and traced without any list: autotrace covers every subclass of veRL's
``BaseTool``. The request itself shows one level below, for one line in ``traced.yaml``.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse


def fetch(url: str, query: str, seconds: float) -> list[str]:
    """Titles that the service at ``url`` knows for ``query``. Raises ``TimeoutError`` and ``urllib.error.URLError``."""
    request = urllib.request.Request(url, data=json.dumps({"query": query}).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=seconds) as answer:
        return list(json.load(answer)["titles"])


class SearchTool(BaseTool):
    """Searches; what goes wrong is told to the model, which may try again."""

    async def execute(self, instance_id: str, parameters: dict, **kwargs: Any) -> tuple[ToolResponse, float, dict]:
        """Ask the service for ``parameters["query"]``."""
        try:
            url, seconds = self.config["url"], self.config["seconds"]
            titles = await asyncio.to_thread(fetch, url, parameters["query"], seconds)
        except (TimeoutError, urllib.error.URLError) as error:
            return ToolResponse(text=f"The search failed: {type(error).__name__}"), -0.1, {"failed": 1}
        return ToolResponse(text="; ".join(titles) or "Nothing was found."), 0.0, {"found": len(titles)}
