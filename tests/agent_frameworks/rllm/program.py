"""rLLM's AgentFlowEngine and model gateway on a CPU, with the harness of ``uni_agent`` behind the gateway and rLLM's
own rows for veRL. The engine is a stand-in: an HTTP server that answers as vLLM's does with ``return_token_ids``.
``RLLM``: a checkout of rllm."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from tests.agent_frameworks.uni_agent import parts
from tests.agent_frameworks.uni_agent.program import MODEL, QUIET, make_model

FLOWS = ("linear", "streamed", "subagents", "compaction", "best_of", "rewrite", "crash", "hang", "raises", "long")
ROLLOUTS = 2
CONTEXT = 9_200
"""Tokens: ``long`` comes to its end."""
LONGEST = 8
"""Seconds for the harness: ``hang`` takes all of them."""
CALL = re.compile(r"<tool_call>(.*?)</tool_call>")


class Engine:
    """A model that says what its script says, tokens and log-probabilities with it."""

    def __init__(self) -> None:
        from transformers import AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(MODEL)
        self.script = parts.Engine.__new__(parts.Engine)
        self.script.random = random.Random(7)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """A chat completion."""
        template, encode = self.tokenizer.apply_chat_template, self.tokenizer.encode
        messages = [{**message, "tool_calls": _read(message.get("tool_calls") or [])} for message in body["messages"]]
        prompt = template(messages, tools=body.get("tools"), add_generation_prompt=True, tokenize=False)
        said = self.script.say(prompt)
        asked = encode(prompt, add_special_tokens=False)
        ids = encode(f"{said}<|im_end|>", add_special_tokens=False)
        cut = len(asked) + len(ids) > CONTEXT
        if cut:
            ids = ids[: max(0, CONTEXT - len(asked))]
            said = self.tokenizer.decode(ids)
        calls = [
            {"id": f"call_{number}", "type": "function",
             "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])}}
            for number, call in enumerate(map(json.loads, CALL.findall(said)))
        ]  # fmt: skip
        choice = {
            "index": 0, "finish_reason": "length" if cut else "tool_calls" if calls else "stop", "token_ids": ids,
            "message": {"role": "assistant", "content": CALL.sub("", said), **({"tool_calls": calls} if calls else {})},
            "logprobs": {"content": [{"token": "x", "logprob": -0.1} for _ in ids]},
        }  # fmt: skip
        return {
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice],
            "prompt_token_ids": asked,
        }  # fmt: skip


def _read(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls whose arguments are objects again, as the template writes them."""
    functions = [call["function"] for call in calls]
    return [{"function": {**each, "arguments": json.loads(each["arguments"])}} for each in functions]


def pieces(answer: dict[str, Any]) -> Iterator[str]:
    """The same as a stream: two chunks, of which the second has half of the tokens and how it ended."""
    (choice,) = answer["choices"]
    half = len(choice["token_ids"]) // 2
    for ids, more in (
        (slice(None, half), {"delta": choice["message"]}),
        (slice(half, None), {"delta": {}, "finish_reason": choice["finish_reason"]}),
    ):
        told = {"token_ids": choice["token_ids"][ids], "logprobs": {"content": choice["logprobs"]["content"][ids]}}
        yield f"data: {json.dumps({**answer, 'choices': [{'index': 0, **told, **more}]})}\n\n"
    yield "data: [DONE]\n\n"


def serve(port: int) -> None:
    """The engine's server, in a thread."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route

    engine = Engine()

    async def chat(request: Request) -> Response:
        await asyncio.sleep(0.03)
        body = await request.json()
        answer = engine.answer(body)
        return (
            StreamingResponse(pieces(answer), media_type="text/event-stream")
            if body["stream"]
            else JSONResponse(answer)
        )

    async def health(_: Request) -> Response:
        return Response()

    routes = [Route("/health", health), Route("/v1/chat/completions", chat, methods=["POST"])]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=port, log_level="warning"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)


class Harness:
    """An agent flow that starts a program, and knows no more of it than its output."""

    name = "harness"

    async def arun(self, task: Any, config: Any) -> Any:
        from rllm.types import Episode, Trajectory

        flow = task.metadata["flow"]
        if flow == "raises":
            raise RuntimeError("the sandbox could not be started")
        environ = {"HARNESS_BASE_URL": config.base_url, "HARNESS_FLOW": flow, "HARNESS_TASK": task.instruction}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", os.path.join(parts.HERE, "harness.py"),
            env={**os.environ, **environ}, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said = b""
        try:
            said, _ = await asyncio.wait_for(process.communicate(), LONGEST)
        except asyncio.TimeoutError:
            process.kill()
        return Episode(trajectories=[Trajectory(name="main", output=said.decode().strip())])


class Score:
    """Right is who said 3."""

    def evaluate(self, task: Any, episode: Any) -> Any:
        from rllm.eval.types import EvalOutput

        steps = [step for trajectory in episode.trajectories for step in trajectory.steps]
        right = any("answer is 3" in (step.model_response or "") for step in steps)
        return EvalOutput(reward=float(right), is_correct=right)


async def roll_out(gateway: Any) -> None:
    """One step; of each episode a line with its rows for veRL."""
    from rllm.engine.agentflow_engine import AgentFlowEngine
    from rllm.trainer.verl import transform
    from rllm.types import Task

    engine = AgentFlowEngine(Harness(), Score(), gateway, "policy", retry_limit=1, raise_on_error=False)
    engine.set_training_step(3)
    tasks = [
        Task(id=f"t-{flow}", instruction="count the files", metadata={"flow": flow})
        for flow in FLOWS
        for _ in range(ROLLOUTS)
    ]
    for episode in await engine.execute_tasks(tasks, [task.id for task in tasks]):
        rows = transform.AccumulatedData()
        for trajectory in episode.trajectories:
            transform._process_trajectory(trajectory, episode.task_id, rows)
        steps = [step.model_output for trajectory in episode.trajectories for step in trajectory.steps]
        print(json.dumps({
            "uid": episode.task_id, "rollout_n": int(episode.rollout_idx),
            "rewards": [trajectory.reward for trajectory in episode.trajectories],
            "turns": [[step.prompt_ids, step.completion_ids] for step in steps],
            "trained": sum(int(mask.sum()) for mask in rows.traj_mask), "rows": len(rows.responses),
        }), flush=True)  # fmt: skip


def main() -> None:
    """Play all flows."""
    os.environ.update(QUIET)
    checkout = os.environ["RLLM"]  # whose gateway is newer than the one on the index
    sys.path[1:1] = [checkout, os.path.join(checkout, "rllm-model-gateway", "src")]
    make_model()
    from rllm.gateway.manager import EvalGatewayManager, _find_free_port

    class Gateway(EvalGatewayManager):
        """Of an engine that runs already, with the token ids that training asks for."""

        add_logprobs = True
        add_return_token_ids = True

    port = _find_free_port()
    serve(port)
    gateway = Gateway(f"http://127.0.0.1:{port}", "policy")
    gateway.start()
    try:
        asyncio.run(roll_out(gateway))
    finally:
        gateway.stop()


if __name__ == "__main__":
    main()
