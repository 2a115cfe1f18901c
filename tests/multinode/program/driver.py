"""``driver.py ADDRESS SCENARIO [FOLDER [RUNTIME_ENV]]``: joins a running cluster and rolls out. Says ``ready`` where a
test acts, and waits for a line on stdin before it goes on."""

from __future__ import annotations

import json
import sys

import agents
import ray


def on(actor: type, node: str, *arguments: object, env: dict | None = None) -> object:
    """An actor on node1 or node2."""
    options = {"resources": {node: 0.001}, **({"runtime_env": env} if env else {})}
    return actor.options(**options).remote(*arguments)


def pause() -> None:
    """Let the test act."""
    print("ready", flush=True)
    sys.stdin.readline()


def rollouts(worker: object, sample: int, count: int = 4) -> None:
    texts = ray.get([worker.rollout.remote(1, sample, number) for number in range(count)], timeout=120)
    assert all("answered on" in text for text in texts), texts


def plain() -> None:
    """Roots on node 1 that use node 2, and the other way round."""
    rollouts(on(agents.Worker, "node1", on(agents.EngineServer, "node2"), on(agents.ToolServer, "node2")), 1)
    rollouts(on(agents.Worker, "node2", on(agents.EngineServer, "node1"), on(agents.ToolServer, "node2")), 2)


def gateways() -> None:
    """Sessions of node 1, some behind the gateway there, some behind that of node 2."""
    worker = on(agents.Worker, "node1", None, None)
    for sample, node in enumerate(("node1", "node2"), 1):
        server = on(agents.GatewayServer, node)
        address = ray.get(server.address.remote(), timeout=120)
        said = ray.get([worker.session.remote(1, sample, number, address) for number in range(4)], timeout=120)
        assert said == [f"3: answered on {node}\n"] * 4, said


def pauses() -> None:
    """``plain`` with a stop in the middle of it."""
    worker = on(agents.Worker, "node1", on(agents.EngineServer, "node2"), on(agents.ToolServer, "node1"))
    other = on(agents.Worker, "node2", on(agents.EngineServer, "node1"), on(agents.ToolServer, "node2"))
    rollouts(worker, 1)
    rollouts(other, 2)
    pause()
    rollouts(worker, 3)
    rollouts(other, 4)
    pause()
    rollouts(other, 5)


def lost_node() -> None:
    """Node 2 goes away while a tool runs there; the run goes on without it."""
    here = on(agents.EngineServer, "node1"), on(agents.ToolServer, "node1")
    worker, other = on(agents.Worker, "node1", *here), on(agents.Worker, "node2", *here)
    rollouts(other, 1)
    hanging = [worker.wait_for.remote(1, 2, 0, on(agents.HangingTool, "node2"), f"{sys.argv[3]}/marks-tool")]
    tool = on(agents.HangingTool, "node1")
    hanging.append(other.wait_for.remote(1, 2, 1, tool, "/dev/null"))
    pause()
    for call in hanging:
        try:
            ray.get(call, timeout=120)
        except (ray.exceptions.RayActorError, ray.exceptions.RayTaskError):
            print("lost", flush=True)
    ray.kill(tool)
    rollouts(worker, 3)


def lacking() -> None:
    """Workers on node 2 whose interpreter has no autotrace; several of them, and it is to be said once."""
    env = {"env_vars": {"PYTHONPATH": sys.argv[3]}}
    engines = [on(agents.EngineServer, "node2", env=env) for _ in range(3)]
    for number, engine in enumerate(engines):
        rollouts(on(agents.Worker, "node1", engine, on(agents.ToolServer, "node1")), number, 2)


if __name__ == "__main__":
    env = json.loads(sys.argv[4]) if len(sys.argv) > 4 else None
    ray.init(address=sys.argv[1], runtime_env=env)
    scenarios = {one.__name__: one for one in (plain, gateways, pauses, lost_node, lacking)}
    scenarios[sys.argv[2]]()
    print("all answers right", flush=True)
