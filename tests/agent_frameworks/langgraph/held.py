"""Tools of LangChain, nodes and edges of LangGraph, as their documentation makes them."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.runnables import RunnableLambda, chain
from langchain_core.tools import StructuredTool, tool
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool("look_up", return_direct=True)
async def search(query: str) -> list[str]:
    """Searches."""
    return [query]


def plain(x: int) -> int:
    """Doubles."""
    return x * 2


TOOLS = {one.name: one for one in (add, search, StructuredTool.from_function(plain))}


@chain
def linked(x: int) -> int:
    return x + 1


def piped(x: int) -> int:
    return x + 2


class State(TypedDict):
    x: int


def node(state: State) -> State:
    return {"x": state["x"] + 1}


def edge(state: State) -> str:
    return END if state["x"] > 2 else "node"


GRAPH: Any = StateGraph(State)
GRAPH.add_node("node", node)
GRAPH.add_edge(START, "node")
GRAPH.add_conditional_edges("node", edge)
COMPILED = GRAPH.compile()


@task
def step(x: int) -> int:
    return x + 3


@entrypoint()
def flow(x: int) -> int:
    return int(step(x).result())


HELD = {
    "add": lambda: (TOOLS["add"].invoke({"a": 2, "b": 3}), add.args),
    "search": lambda: search.ainvoke({"query": "x"}),
    "plain": lambda: TOOLS["plain"].invoke({"x": 2}),
    "linked": lambda: linked.invoke(1),
    "piped": lambda: (RunnableLambda(piped) | piped).invoke(1),
    "node": lambda: COMPILED.invoke({"x": 0}),
    "edge": lambda: COMPILED.invoke({"x": 1}),
    "step": lambda: flow.invoke(1),
    "flow": lambda: flow.invoke(2),
}
