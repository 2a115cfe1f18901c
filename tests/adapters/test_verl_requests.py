"""The id a turn has inside the engine is said once, by the call that makes it."""

from __future__ import annotations

import uuid
from types import ModuleType
from typing import Any

from autotrace.adapters.verl import agent_loop
from autotrace.spool.records import REQUEST, Fact, Open
from tests.record.conftest import Recorder, recorder  # noqa: F401


class Client:
    """Shaped like veRL 0.9's ``LLMServerClient``."""

    def _vllm_request_id(self, request_id: str) -> str:
        return f"fresh-{request_id}"

    def generate(self, request_id: str) -> str:
        return self._vllm_request_id(request_id)


def said(recorder: Recorder) -> list[tuple[bytes, Any]]:  # noqa: F811
    return [(fact.trace, fact.key) for fact in recorder.records(Fact) if fact.name == REQUEST]


def test_the_client_of_newer_releases(recorder: Recorder) -> None:  # noqa: F811
    module = ModuleType("llm_server")
    module.LLMServerClient = type("LLMServerClient", (Client,), {"_vllm_request_id": Client._vllm_request_id})
    agent_loop.watch_client(module)
    client = module.LLMServerClient()
    assert client.generate("sticky") == "fresh-sticky" and said(recorder) == []  # nobody records this call
    assert recorder.wrap(Client.generate, key="llm", role="llm")(client, "sticky") == "fresh-sticky"
    (opened,) = recorder.records(Open)
    assert said(recorder) == [(opened.trace, {"request": "fresh-sticky", "span": opened.span})]


def test_the_module_of_older_releases(recorder: Recorder) -> None:  # noqa: F811
    module = ModuleType("agent_loop")
    module.uuid4 = uuid.uuid4
    agent_loop.watch_manager(module)
    assert module.uuid4 is uuid.uuid4, "0.9 uses it for the names of actors"
    module.AsyncLLMServerManager = type("AsyncLLMServerManager", (), {"__module__": "agent_loop"})
    agent_loop.watch_manager(module)

    def generate() -> str:
        return str(module.uuid4().hex)

    made = recorder.wrap(generate, key="llm", role="llm")()
    recorder.wrap(generate, key="tool", role="tool")()
    assert [key["request"] for _, key in said(recorder)] == [made]
