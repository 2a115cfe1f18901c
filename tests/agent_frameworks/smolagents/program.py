"""Agents of smolagents: one that calls tools, one that writes code. Written without a thought of tracing."""

from __future__ import annotations

import sys

from smolagents import CodeAgent, Model, OpenAIModel, ToolCallingAgent, tool
from smolagents.models import ChatMessage, MessageRole


@tool
def add(a: int, b: int) -> int:
    """Add.

    Args:
        a: a number
        b: a number
    """
    return a + b


class Coder(Model):
    """A model without a server, which writes code that calls a tool."""

    def generate(self, messages: list[ChatMessage], **kwargs: object) -> ChatMessage:
        code = 'Thought: I add.\n<code>\nfinal_answer(f"It is {add(a=2, b=2)}.")\n</code>'
        return ChatMessage(role=MessageRole.ASSISTANT, content=code)


def tools(url: str) -> str:
    model = OpenAIModel("tiny", api_base=url, api_key="sk-secret")
    agent = ToolCallingAgent(tools=[add], model=model, max_steps=2, verbosity_level=0, name="caller")
    return f"{agent.run('2+2?')}"


def streamed(url: str) -> str:
    model = OpenAIModel("tiny", api_base=url, api_key="sk-secret")
    agent = ToolCallingAgent(
        tools=[add], model=model, max_steps=2, verbosity_level=0, name="speaker", stream_outputs=True
    )
    return f"{agent.run('2+2?')}"


def code(_: str) -> str:
    return str(CodeAgent(tools=[add], model=Coder(), max_steps=2, verbosity_level=0, name="coder").run("2+2?"))


if __name__ == "__main__":
    for way in (tools, streamed, code):
        print(way.__name__, way(sys.argv[1]))
