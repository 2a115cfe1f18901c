"""An agent that handles a secret in every way people do; all of it is traced."""

from __future__ import annotations

import json
import logging
import os

KEY = os.environ["CANARY"]


def run(question: str) -> str:
    """The root: asks the model, calls the tools."""
    generate([{"role": "user", "content": f"Call search with {json.dumps({'api_key': KEY, 'query': question})}"}])
    search(question, api_key=KEY)
    fetch(os.environ["SEARCH_URL"], headers={"Authorization": f"Bearer {KEY}", "X-Api-Key": KEY, "Accept": "*/*"})
    fetch(f"https://search.example/v1?q=apples&api_key={KEY}", headers={})
    call_tool({"name": "search", "arguments": json.dumps({"query": question, "access_token": KEY})})
    call_tool({"name": "shell", "arguments": {"env": {"MY_SECRET": KEY}, "argv": ["ls"]}})
    try:
        fetch(os.environ["SEARCH_URL"], headers={}, fail=True)
    except ConnectionError as error:
        logging.getLogger("agent").debug("failed: %s", type(error).__name__)
    return "done"


def generate(messages: list) -> str:
    """The model."""
    return "calling"


def search(query: str, api_key: str) -> dict:
    """A tool that echoes what it was given."""
    return {"query": query, "password": api_key, "hits": 3}


def fetch(url: str, headers: dict, fail: bool = False) -> str:
    """Another; its error names the address."""
    if fail:
        raise ConnectionError(f"cannot reach {url}")
    return f"<a href='{url}'>"


def call_tool(tool_call: dict) -> str:
    """What an agent framework calls."""
    return json.dumps({"echo": tool_call})
