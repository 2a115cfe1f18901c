"""Agents of LangChain and LangGraph, asked in each way. Written without a thought of tracing."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import StructuredTool, ToolException
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt


def sum_of(a: int, b: int) -> int:
    return a + b


async def sum_later(a: int, b: int) -> int:
    return a + b


add = StructuredTool.from_function(sum_of, coroutine=sum_later, name="add", description="Add.")


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]


def agent(url: str, name: str = "adder") -> Any:
    model = ChatOpenAI(base_url=url, model="tiny", api_key="sk-secret", max_retries=0)
    return create_agent(model, [add], system_prompt="Be brief.", name=name)


def asked() -> dict[str, Any]:
    return {"messages": [("user", "2+2?")]}


def invoke(url: str) -> str:
    return str(agent(url).invoke(asked())["messages"][-1].content)


def stream(url: str) -> str:
    text = ""
    for mode, part in agent(url).stream(asked(), stream_mode=["messages", "values"]):
        if mode == "values":
            text = part["messages"][-1].content
    return text


async def ainvoke(url: str) -> str:
    return str((await agent(url).ainvoke(asked()))["messages"][-1].content)


async def astream(url: str) -> str:
    text = ""
    async for part in agent(url).astream(asked(), stream_mode="values"):
        text = part["messages"][-1].content
    return text


def own_graph(url: str) -> str:
    """Nodes of one's own, one of which is an agent: a graph in a graph; one streams from a model without a client."""
    fake = GenericFakeChatModel(messages=iter([AIMessage("Well, it is 4.")]))

    def plan(state: State) -> dict[str, Any]:
        return {"messages": [("user", "2+2, please?")]}

    def polish(state: State) -> dict[str, Any]:
        text = "".join(str(chunk.content) for chunk in fake.stream(state["messages"]))
        return {"messages": [AIMessage(text.replace("Well, it", "It"))]}

    graph = StateGraph(State)
    graph.add_node("plan", plan)
    graph.add_node("work", agent(url))
    graph.add_node("polish", polish)
    for before, after in ((START, "plan"), ("plan", "work"), ("work", "polish"), ("polish", END)):
        graph.add_edge(before, after)
    return str(graph.compile(name="planner").invoke(asked())["messages"][-1].content)


def refused(url: str) -> str:
    """A tool whose error the model is told."""

    def refuse(a: int, b: int) -> int:
        raise ToolException(f"cannot add {a} and {b}")

    tool = StructuredTool.from_function(refuse, name="add", description="Add.", handle_tool_error=True)
    model = ChatOpenAI(base_url=url, model="tiny", api_key="sk-secret", max_retries=0)
    return str(create_agent(model, [tool]).invoke(asked())["messages"][-1].content)


def interrupted(url: str) -> str:
    """A node that waits for a person, and goes on with what that says."""

    def ask(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(str(interrupt("Shall I?")))]}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    waiting = graph.compile(name="asker", checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    waiting.invoke(asked(), config)
    return str(waiting.invoke(Command(resume="It is 4."), config)["messages"][-1].content)


def _chain(url: str) -> Any:
    model = ChatOpenAI(base_url=url, model="tiny", api_key="sk-secret", max_retries=0)
    prompt = ChatPromptTemplate.from_messages([("system", "Be brief."), ("user", "{question}")])
    return prompt | model | StrOutputParser()


def chain(url: str) -> str:
    return str(_chain(url).invoke({"question": "2+2?"}))


def chain_stream(url: str) -> str:
    return "".join(_chain(url).stream({"question": "2+2?"}))


async def chain_later(url: str) -> str:
    return str(await _chain(url).ainvoke({"question": "2+2?"}))


async def chain_stream_later(url: str) -> str:
    return "".join([part async for part in _chain(url).astream({"question": "2+2?"})])


WAYS = (
    invoke,
    stream,
    ainvoke,
    astream,
    own_graph,
    refused,
    chain,
    chain_stream,
    chain_later,
    chain_stream_later,
    interrupted,
)


async def main(url: str) -> None:
    for way in WAYS:  # in one loop: langchain-openai keeps its client from one to the next
        answer: Any = way(url)
        print(way.__name__, await answer if asyncio.iscoroutine(answer) else answer)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
