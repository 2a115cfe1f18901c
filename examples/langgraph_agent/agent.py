"""An agent of LangGraph: a graph of one's own around LangChain's agent with a tool. Nothing to write for autotrace.

    pip install langchain langchain-openai langgraph
    autotrace-run --backend jsonl python examples/langgraph_agent/agent.py
    autotrace ls --tree

Asks the stand-in of `examples/openai_agent`, which needs no key; with OPENAI_BASE_URL and OPENAI_API_KEY set, a real
model (MODEL).
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

sys.path.insert(0, str(Path(__file__).parents[1] / "openai_agent"))
import model

TOWNS = {"Aachen": 17, "Bonn": 19, "Celle": 16}


class State(TypedDict):
    town: str
    messages: Annotated[list[Any], add_messages]


@tool
def temperature(town: str) -> str:
    """How warm it is in a town."""
    return f"{TOWNS[town]} degrees"


def question(state: State) -> dict[str, Any]:
    """The town as a question."""
    return {"messages": [("user", f"How warm is it in {state['town']}?")]}


def graph(url: str | None) -> Any:
    """The question, and the agent that answers it."""
    name = os.environ.get("MODEL", "stand-in")
    chat = ChatOpenAI(base_url=url, api_key="none" if url else None, model=name, streaming=True)
    nodes = StateGraph(State)
    nodes.add_node("question", question)
    nodes.add_node("answer", create_agent(chat, [temperature], name="forecaster"))
    nodes.add_edge(START, "question")
    nodes.add_edge("question", "answer")
    nodes.add_edge("answer", END)
    return nodes.compile(name="weather")


if __name__ == "__main__":
    with nullcontext() if "OPENAI_BASE_URL" in os.environ else model.serving() as url:
        weather = graph(url)
        for town in TOWNS:
            print(town, weather.invoke({"town": town, "messages": []})["messages"][-1].content)
