"""veRL's agent-loop workers of the releases that the table is about, made the way each release wants them."""

from __future__ import annotations

from typing import Any

import in_process


def worker(config: Any, server: in_process.ScriptedServer) -> Any:
    """A worker of the classic (V0) path, of the release that is imported."""
    try:
        from verl.workers.rollout.llm_server import LLMServerClient  # noqa: F401
    except ImportError:
        return _worker_071(config, server)
    return in_process.worker(config, server)


def _worker_071(config: Any, server: in_process.ScriptedServer) -> Any:
    """0.7.1 makes its client in the worker, from the servers."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    balancer = in_process.LoadBalancer(server)
    balancer.acquire_server = in_process.Remote(lambda request_id: "server-0")
    return AgentLoopWorker(config, [("server-0", server)], balancer, [in_process.RewardHandle(config)])
