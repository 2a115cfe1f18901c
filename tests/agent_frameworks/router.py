"""A server that stands in for SGLang's router, with the model of ``scripted``, and what users of slime and Miles, whose
samples have one shape, write beside it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
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
        if self.path.endswith("/chat/completions"):
            return self.reply(_completion(said.removesuffix(scripted.MARKS[-1]), about))
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


def _completion(text: str, about: dict[str, Any]) -> dict[str, Any]:
    """A chat completion, of which SGLang gives the tokens where the request says ``return_meta_info``."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "meta_info": about}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "tiny-1", "choices": [choice]}


def take(sample: Any, tokens: list[int], text: str, by_the_model: int) -> None:
    """Add to what a sample has, as the trainers' own functions do."""
    sample.tokens = sample.tokens + tokens
    sample.response += text
    sample.response_length += len(tokens)
    sample.loss_mask += [by_the_model] * len(tokens)
    sample.rollout_log_probs += [scripted.LOGPROB * by_the_model] * len(tokens)


async def score(args: Any, sample: Any, **kwargs: Any) -> Any:
    """A user's reward function; with ``--group-rm`` it is given the group."""
    if isinstance(sample, list):
        return [await score(args, one) for one in sample]
    return {"score": float(f"It is {sample.label}." in sample.response), "length": len(sample.response)}


class Data:
    """As the data source of slime and of Miles: groups of samples that are numbered through."""

    def __init__(self, kind: Callable[..., Any], rollouts: int) -> None:
        """``kind``: the trainer's own ``Sample``."""
        self.kind, self.rollouts = kind, rollouts
        self.groups, self.samples = itertools.count(), itertools.count()

    def get_samples(self, count: int) -> list[list[Any]]:
        return [self.group() for _ in range(count)]

    def group(self) -> list[Any]:
        number = next(self.groups)
        prompt = f"<|user|>What is 2 plus {number}?<|end|><|assistant|>"
        return [
            self.kind(group_index=number, index=next(self.samples), prompt=prompt, label=str(2 + number), metadata={})
            for _ in range(self.rollouts)
        ]

    def add_samples(self, samples: Any) -> None:
        pass
