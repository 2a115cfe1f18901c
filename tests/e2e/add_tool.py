"""The same tool as a ``BaseTool`` that lives per trajectory (``add_tool.yaml``), as in veRL's gsm8k example."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse
from verl.utils.rollout_trace import rollout_trace_op


class AddTool(BaseTool):
    """Adds two numbers and remembers, per instance, whether the sum was the expected one."""

    def __init__(self, config: dict, tool_schema: Any) -> None:
        super().__init__(config, tool_schema)
        self._instances: dict[str, dict[str, Any]] = {}

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Start an instance; ``create_kwargs`` comes from the sample's ``tools_kwargs``."""
        instance_id = instance_id or str(uuid4())
        self._instances[instance_id] = {"expected": kwargs["create_kwargs"]["ground_truth"], "reward": 0.0}
        return instance_id, ToolResponse()

    @rollout_trace_op
    async def execute(self, instance_id: str, parameters: dict, **kwargs: Any) -> tuple[ToolResponse, float, dict]:
        """Add ``a`` and ``b``."""
        total = str(int(parameters["a"]) + int(parameters["b"]))
        self._instances[instance_id]["reward"] = float(total == self._instances[instance_id]["expected"])
        return ToolResponse(text=total), await self.calc_reward(instance_id), {"calls": 1}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        """1.0 once the expected sum was computed."""
        return self._instances[instance_id]["reward"]

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """Forget the instance."""
        del self._instances[instance_id]
