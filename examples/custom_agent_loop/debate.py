"""An agent of one's own for veRL: two drafts at once, a critic that picks one, then the answer.

Given to veRL by ``agent_loop_config_path`` (see ``agent_loops.yaml``). It is traced without any list: autotrace covers
``run`` of every subclass of veRL's ``AgentLoopBase``, and the LLM calls it makes.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput


def pick(drafts: list[str]) -> int:
    """The critic: prefers the draft that says less. ``traced.yaml`` names it, so it shows in the trajectory."""
    return min(range(len(drafts)), key=lambda index: len(drafts[index]))


class DebateLoop(AgentLoopBase):
    """Asks the model for two drafts, picks one, and has it finished."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """One trajectory; what is trained on is the picked draft and its end."""
        messages = list(kwargs["raw_prompt"])
        prompt_ids = await self.ct_build_initial_tokens(messages)
        drafts = await asyncio.gather(*(self._generate(prompt_ids, sampling_params) for _ in range(2)))
        texts = [self.tokenizer.decode(draft, skip_special_tokens=True) for draft in drafts]
        chosen = drafts[pick(texts)]
        request = self.tokenizer.encode("\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n")
        end = await self._generate([*prompt_ids, *chosen, *request], sampling_params)
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=[*chosen, *request, *end],
            response_mask=[1] * len(chosen) + [0] * len(request) + [1] * len(end),
            num_turns=3,
            metrics={},
            extra_fields={"turn_scores": [], "tool_rewards": []},
        )

    async def _generate(self, prompt_ids: list[int], sampling_params: dict[str, Any]) -> list[int]:
        output = await self.server_manager.generate(
            request_id=uuid4().hex, prompt_ids=prompt_ids, sampling_params=dict(sampling_params)
        )
        return list(output.token_ids)
