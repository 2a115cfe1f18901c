"""The episodes of ``examples/verifiers_sums``: as an evaluation asks, the model server of the tests, and as a trainer
does, tokens of a stand-in for vLLM's ``/inference/v1/generate``."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))
sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "verifiers_sums"))

import episodes
import verifiers.v1 as vf

from tests.agent_frameworks import scripted

MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
TOKENIZER = scripted.tokenizer(MARKS, TAGS)


class Engine(BaseHTTPRequestHandler):
    """Right in two of three answers."""

    protocol_version = "HTTP/1.1"
    numbers = itertools.count()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["token_ids"]
        text = TOKENIZER.decode(asked)
        result = re.search(r"<tool_response>\s*(\d+)\s*</tool_response>", text)
        if result is None:
            a, b = re.findall(r"What is (\d+) plus (\d+)\?", text)[-1]
            called = json.dumps({"name": "add", "arguments": {"a": int(a), "b": int(b)}})
            said = f"<tool_call>\n{called}\n</tool_call>"
        else:
            said = f"It is {result[1] if next(self.numbers) % 3 else 99}."
        ids = TOKENIZER.encode(said + MARKS[-1], add_special_tokens=False)
        logprobs = [{"token": f"token_id:{token}", "logprob": scripted.LOGPROB} for token in ids]
        choice = {"index": 0, "token_ids": ids, "finish_reason": "stop", "logprobs": {"content": logprobs}}
        self.reply({"request_id": "request", "prompt_token_ids": asked, "choices": [choice]})

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


def trained(episode: vf.Episode) -> dict[str, Any]:
    """What a trainer takes of it."""
    (trace,) = episode.traces
    return {
        "id": trace.id,
        "tokens": [token for node in trace.nodes for token in node.token_ids],
        "mask": [int(taken) for node in trace.nodes for taken in node.mask],
        "turns": sum(any(node.mask) for node in trace.nodes),
    }


def main(url: str) -> None:
    asyncio.run(episodes.run(episodes.asking(url)))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = tempfile.mkdtemp()
    TOKENIZER.save_pretrained(folder)
    engine = vf.TrainClientConfig(
        base_url=f"http://127.0.0.1:{server.server_address[1]}/v1",
        renderer={"name": "qwen3"},
        renderer_model_name=folder,
    )
    for episode in asyncio.run(episodes.run(engine)):
        print(json.dumps(trained(episode)))


if __name__ == "__main__":
    main(sys.argv[1])
