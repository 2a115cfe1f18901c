"""An agent of one's own for veRL that talks to the model in text, as through a chat API: each turn, the whole
conversation is rendered and tokenised anew. veRL's own loop does not do that; many people's agents do.
"""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.agent_loop import register
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop


class _InText:
    """The client of the model, which is given messages instead of tokens."""

    def __init__(self, client: Any, tokenizer: Any, schemas: Any, data: Any) -> None:
        self.client, self.tokenizer, self.schemas, self.data = client, tokenizer, schemas, data

    async def generate(self, *, prompt_ids: Any, **more: Any) -> Any:
        """Render the messages and ask."""
        rendered = self.tokenizer.apply_chat_template(
            self.data.messages, tools=self.schemas, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return await self.client.generate(prompt_ids=rendered, **more)


@register("chat_agent")
class ChatAgent(ToolAgentLoop):
    """veRL's tool agent over such a client. What it trains on is still what the model said."""

    async def _handle_generating_state(self, agent_data: Any, *args: Any, **more: Any) -> Any:
        client = self.server_manager
        self.server_manager = _InText(client, self.tokenizer, self.tool_schemas, agent_data)
        try:
            return await super()._handle_generating_state(agent_data, *args, **more)
        finally:
            self.server_manager = client
