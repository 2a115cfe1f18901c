"""Conversations of the OpenHands SDK that end in each way, ask sub-agents, run tools side by side, and summarise what
was. Written without a thought of tracing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # asks nobody for prices
os.environ["OPENHANDS_SUPPRESS_BANNER"] = "1"
os.environ["HOME"] = os.getcwd()  # the shell reads nobody's settings

from openhands.sdk import LLM, Agent, Conversation, LLMSummarizingCondenser, Tool, register_agent, register_tool
from openhands.sdk.event.conversation_error import ConversationErrorEvent
from openhands.sdk.tool import Action, Observation, ToolDefinition, ToolExecutor
from openhands.tools.task import TaskToolSet
from openhands.tools.terminal import TerminalTool


class DivideAction(Action):
    a: int
    b: int


class DivideObservation(Observation):
    pass


class Divide(ToolExecutor[DivideAction, DivideObservation]):
    def __call__(self, action: DivideAction, conversation: Any = None) -> DivideObservation:
        if action.b == 0:
            raise ValueError("there is no quotient")
        if action.a % action.b:
            return DivideObservation.from_text("It leaves a rest.", is_error=True)
        return DivideObservation.from_text(str(action.a // action.b))


class DivideTool(ToolDefinition[DivideAction, DivideObservation]):
    @classmethod
    def create(cls, conv_state: Any = None, **_: Any) -> Sequence[DivideTool]:
        kinds = {"action_type": DivideAction, "observation_type": DivideObservation}
        return [cls(description="Divides.", executor=Divide(), **kinds)]


register_tool("divide", DivideTool)
SHELL = Tool(name=TerminalTool.name, params={"terminal_type": "subprocess"})
TOOLS = [Tool(name="divide"), SHELL, Tool(name=TaskToolSet.name)]
register_agent("divider", lambda llm: Agent(llm=llm, tools=TOOLS[:1]), "Divides.")

DONE = [["finish", {"message": "It is 3."}]]


def divided(a: int, b: int) -> list[Any]:
    return ["divide", {"a": a, "b": b}]


SCRIPTS: dict[str, Any] = {
    "finishes": [[["terminal", {"command": "echo 3"}]], [divided(6, 2)], DONE],
    "too long": [[divided(6, 1)], [divided(6, 2)], [divided(6, 3)]],
    "stuck": [[divided(6, 2)]] * 9,
    "fails": [
        [["terminal", {"command": "sleep 60", "timeout": 1}]],
        [divided(6, 0)],
        [divided(6, 4)],
        [["multiply", {"a": 6}]],
        [["divide", {"a": "six", "b": 2}]],
        DONE,
    ],
    "side by side": [[divided(6, 1), divided(6, 2), divided(6, 3)], DONE],
    "awaited": [[divided(6, 1), divided(6, 2), divided(6, 3)], DONE],
    "sub-agent": [[["task", {"prompt": json.dumps([[divided(6, 2)], DONE]), "subagent_type": "divider"}]], DONE],
    "summarised": [*([divided(6 * n, 2)] for n in range(1, 8)), DONE],
    "no model": [DONE],
}
"""What the model does: for each turn, the calls that it makes."""


def solve(url: str, way: str) -> dict[str, Any]:
    name = "openai/missing" if way == "no model" else "openai/script"
    llm = LLM(model=name, base_url=url, api_key="sk-secret", usage_id="agent", num_retries=0)
    condenser = None
    if way == "summarised":
        summarises = llm.model_copy(update={"usage_id": "condenser"})
        condenser = LLMSummarizingCondenser(llm=summarises, max_size=12, keep_first=2)
    agent = Agent(llm=llm, tools=TOOLS, condenser=condenser, tool_concurrency_limit=3)
    limit = 2 if way == "too long" else 30
    conversation = Conversation(agent, workspace=os.getcwd(), max_iteration_per_run=limit, visualizer=None)
    conversation.send_message(json.dumps(SCRIPTS[way]))
    raised = None
    try:
        if way == "awaited":
            asyncio.run(conversation.arun())
        else:
            conversation.run()
    except Exception as error:
        raised = type(error).__name__
    events = list(conversation.state.events)
    conversation.close()
    return {
        "way": way,
        "status": conversation.state.execution_status.value,
        "raised": raised,
        "codes": [event.code for event in events if isinstance(event, ConversationErrorEvent)],
        "events": [type(event).__name__ for event in events],
    }


if __name__ == "__main__":
    for way in SCRIPTS:
        print(json.dumps(solve(sys.argv[1], way)))
