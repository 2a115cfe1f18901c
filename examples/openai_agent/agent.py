"""An agent on the client of openai: streamed answers, a tool, two rollouts of each question.

    autotrace-run --spec examples/openai_agent/traced.yaml python examples/openai_agent/agent.py
    autotrace ls --tree

Asks the stand-in of `model.py`, which needs no key; with OPENAI_BASE_URL and OPENAI_API_KEY set, a real model (MODEL).
"""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import model
import openai

TOWNS = {"Aachen": 17, "Bonn": 19, "Celle": 16}
PARAMETERS = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
TOOLS: Any = [{"type": "function", "function": {"name": "temperature", "parameters": PARAMETERS}}]


@dataclass
class Question:
    id: int
    town: str


@dataclass
class Solved:
    text: str
    reward: float


class Agent:
    def __init__(self, client: openai.OpenAI) -> None:
        self.client = client

    def solve(self, question: Question, attempt: int, step: int = 0) -> Solved:
        messages: list[Any] = [{"role": "user", "content": f"How warm is it in {question.town}?"}]
        for _ in range(4):
            reply = self.ask(messages)
            messages.append(reply)
            if not reply.get("tool_calls"):
                right = str(TOWNS[question.town]) in reply["content"]
                return Solved(reply["content"], float(right))
            for call in reply["tool_calls"]:
                result = self.call_tool(call["function"]["name"], json.loads(call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return Solved("", 0.0)

    def ask(self, messages: list[Any]) -> dict[str, Any]:
        with self.client.chat.completions.stream(
            model=os.environ.get("MODEL", "stand-in"), messages=messages, tools=TOOLS, temperature=1.0
        ) as stream:
            message = stream.get_final_completion().choices[0].message
        return message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)

    def call_tool(self, name: str, arguments: dict[str, str]) -> str:
        return f"{TOWNS[arguments['town']]} degrees"


if __name__ == "__main__":
    with nullcontext() if "OPENAI_BASE_URL" in os.environ else model.serving() as url:
        agent = Agent(openai.OpenAI(base_url=url, api_key="none" if url else None))
        for number, town in enumerate(TOWNS):
            for attempt in range(2):
                print(town, agent.solve(Question(number, town), attempt))
