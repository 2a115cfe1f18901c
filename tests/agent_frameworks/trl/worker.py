"""TRL's asynchronous worker of rollouts, in the process that it spawns, with the example's tools and rewards. What
would be vLLM's server answers by rule; the trainer's side needs vLLM's transfer of weights and is not there."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "trl_grpo"))

GROUPS, ROLLOUTS = 3, 4


class Engine(BaseHTTPRequestHandler):
    """Right in two of three answers."""

    protocol_version = "HTTP/1.1"
    numbers = itertools.count()
    tokenizer: Any = None

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
        text = self.tokenizer.decode(asked)
        a, b = re.findall(r"What is (\d+) plus (\d+)\?", text)[-1]
        if "<tool_response>" in text.split("What is")[-1]:
            said = f"#### {int(a) + int(b) if next(self.numbers) % 3 else 99}"
        else:
            called = json.dumps({"name": "add", "arguments": {"a": int(a), "b": int(b)}})
            said = f"<tool_call>\n{called}\n</tool_call>"
        ids = self.tokenizer.encode(said + "<|im_end|>", add_special_tokens=False)
        choice = {"index": 0, "token_ids": ids, "logprobs": {"token_logprobs": [-0.25] * len(ids)}}
        self.reply({"choices": [choice]})

    def do_GET(self) -> None:
        self.reply({"data": []})

    def reply(self, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


def main() -> None:
    """Some groups of rollouts; prints the samples that would be trained on."""
    import tiny_model
    from accelerate.state import PartialState
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.experimental.async_grpo import async_rollout_worker

    import tools

    PartialState(cpu=True)  # as a trainer has it, for TRL's loggers
    async_rollout_worker.is_vllm_available = lambda: True
    folder = Path(tempfile.mkdtemp())
    tiny_model.make_tokenizer(folder)
    Engine.tokenizer = AutoTokenizer.from_pretrained(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sums = [(1, 1), (2, 3), (4, 0)]
    prompts = [[{"role": "user", "content": f"What is {a} plus {b}?"}] for a, b in sums]
    worker = async_rollout_worker.AsyncRolloutWorker(
        model_name="scripted",
        dataset=Dataset.from_dict({"prompt": prompts, "answer": [a + b for a, b in sums]}),
        reward_funcs=[tools.is_correct, tools.used_a_tool],
        processing_class=Engine.tokenizer,
        eos_token_ids=[Engine.tokenizer.eos_token_id],
        tools=[tools.add, tools.subtract],
        num_generations=ROLLOUTS,
        max_inflight_tasks=4,
        queue_maxsize=16,
        vllm_server_url=f"http://127.0.0.1:{server.server_address[1]}",
        max_tokens=64,
    )
    try:
        worker.start()
        for _ in range(GROUPS * ROLLOUTS):
            sample = worker.rollout_buffer.get(timeout=120)
            told = {"group": sample.group_id, "tokens": sample.input_ids.tolist(), "advantage": sample.advantage,
                    "mask": sample.completion_mask.tolist(), "metrics": sample.metrics}  # fmt: skip
            print(json.dumps(told), flush=True)
    finally:
        worker.stop()


if __name__ == "__main__":
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    main()
