"""A person answers a question below a node that calls a subgraph. LangGraph finds the subgraph in the node's code."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt


class State(TypedDict):
    n: int


def ask(state: State) -> dict[str, int]:
    return {"n": state["n"] + interrupt("how many?")}


below: Any = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=True)


def plain(state: State) -> Any:
    return below.invoke(state)


def nested(state: State) -> Any:
    return (lambda: next(below.invoke(one) for one in (state,)))()


def starred(*states: State, **others: Any) -> Any:
    return below.invoke(states[0])


def made(graph: Any) -> Any:
    def enclosed(state: State) -> Any:
        return graph.invoke(state)

    return enclosed


class Node:
    def __call__(self, state: State) -> Any:
        return below.invoke(state)

    def method(self, state: State) -> Any:
        return below.invoke(state)


enclosed = made(below)


def answered(node: Any) -> list[Any]:
    graph = StateGraph(State).add_node("outer", node).add_edge(START, "outer").compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke({"n": 1}, config)
    inner: Any = graph.get_state(config, subgraphs=True).tasks[0].state
    said = [getattr(inner, "values", None)]
    if inner is not None and hasattr(inner, "config"):
        said.append(graph.get_state(inner.config).values)
        graph.update_state(inner.config, {"n": 40})
    return [*said, graph.invoke(Command(resume=2), config)]


def main() -> None:
    """Print the answer of each node, and how many graphs langchain-core finds in a function."""
    nodes = {"plain": plain, "nested": nested, "enclosed": enclosed, "method": Node().method, "object": Node()}
    for name, node in nodes.items():
        print(name, answered(node))
    for function in (plain, enclosed, starred):
        print(function.__name__, [type(one).__name__ for one in RunnableLambda(function).deps])


if __name__ == "__main__":
    main()
