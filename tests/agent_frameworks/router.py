"""A server that stands in for SGLang's router, for trainers that ask it over HTTP: the model of ``scripted``."""

from __future__ import annotations

import itertools
import json
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.agent_frameworks import scripted

TOKENIZER = scripted.tokenizer()


class Router(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    numbers = itertools.count()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "input_ids" not in asked:
            return self.reply({})
        text = TOKENIZER.decode(asked["input_ids"])
        right = next(self.numbers) % 2 == 0 if "result" in text else True
        said = scripted.answer(text, right) + scripted.MARKS[-1]
        ids = TOKENIZER.encode(said, add_special_tokens=False)
        logprobs = [[scripted.LOGPROB, token, None] for token in ids]
        about = {"output_token_logprobs": logprobs, "finish_reason": {"type": "stop"}, "weight_version": "3",
                 "prompt_tokens": len(asked["input_ids"]), "completion_tokens": len(ids)}  # fmt: skip
        return self.reply({"text": said, "meta_info": about})

    def do_GET(self) -> None:
        self.reply({"workers": [], "urls": []})

    def reply(self, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass
