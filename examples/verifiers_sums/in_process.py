"""A harness of verifiers whose agent runs in this process, on the client of OpenAI."""

from __future__ import annotations

import json
from typing import Any

import verifiers.v1 as vf
from openai import AsyncOpenAI

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}


class InProcess(vf.Harness[vf.HarnessConfig]):
    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, *rest: Any, **named: Any
    ) -> Any:
        data = named.get("data") or rest[-1]
        messages: list[Any] = [{"role": "user", "content": data.prompt_text}]
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client:
            for _turn in range(4):
                reply = await client.chat.completions.create(model=ctx.model, messages=messages, tools=[ADD])
                message = reply.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                for call in message.tool_calls or ():
                    given = json.loads(call.function.arguments)
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": str(given["a"] + given["b"])})
                if not message.tool_calls:
                    break
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


__all__ = ["InProcess"]
