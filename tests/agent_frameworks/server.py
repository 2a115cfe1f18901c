"""A server with the protocols of OpenAI and Anthropic, and a model without a mind: it calls the tool ``add`` once,
then says the result; where the tool is ``bash``, it calls it with each of ``COMMANDS``. The model "cut" breaks off at a
limit, as a Response says it; the model "script" makes the calls that ``script`` says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.agent_frameworks import messages, script

USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12, "prompt_tokens_details": {"cached_tokens": 3}}
ARGUMENTS = '{"a": 2, "b": 2}'
LOGPROBS = {
    "content": [{"token": f"token_id:{id}", "logprob": -0.25, "bytes": None, "top_logprobs": []} for id in range(5)]
}
TEXT = "It is 4."
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": ARGUMENTS}}


COMMANDS = ["echo 3", "echo 4; sleep 60", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo 3"]


def _called(body: dict[str, Any]) -> dict[str, Any]:
    """The tool call that comes next."""
    if body["tools"][0]["function"]["name"] != "bash":
        return CALL
    done = sum(message["role"] == "tool" for message in body["messages"])
    function = {"name": "bash", "arguments": json.dumps({"command": COMMANDS[done]})}
    return {"id": f"call_{done}", "type": "function", "function": function}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self._reply(b'{"data": []}', "application/json")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = {
            "chat/completions": _chat,
            "responses": _response,
            "embeddings": _embeddings,
            "completions": _completion,
            "messages": messages.answer,
        }[self.path.partition("?")[0].partition("/v1/")[2]](body)
        if isinstance(answer, dict):
            return self._reply(json.dumps(answer).encode(), "application/json")
        events = "".join(
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
            if event.get("type")
            else f"data: {json.dumps(event)}\n\n"
            for event in answer
        )
        return self._reply((events + "data: [DONE]\n\n").encode(), "text/event-stream")

    def _reply(self, data: bytes, kind: str) -> None:
        self.send_response(400 if b'"error": {' in data else 200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _chat(body: dict[str, Any]) -> Any:
    if body["model"] == "missing":
        return {"error": {"message": "no such model", "type": "invalid_request_error", "code": None, "param": None}}
    shell = bool(body.get("tools")) and body["tools"][0]["function"]["name"] == "bash"
    calls = script.calls(body)
    asks = bool(calls) or (bool(body.get("tools")) and (shell or body["messages"][-1]["role"] != "tool"))
    reason = "tool_calls" if asks else "stop"
    base = {"id": "chatcmpl-1", "created": 1, "model": "tiny-1"}
    if not body.get("stream"):
        text = script.SUMMARY if body["model"] == "script" else TEXT
        message = {"role": "assistant", "content": None if asks else text}
        if body.get("response_format"):
            message["content"] = '{"sum": 4}'
        choice = {"index": 0, "message": {**message, **({"tool_calls": calls or [_called(body)]} if asks else {})}}
        choices = [{**choice, "finish_reason": reason, "logprobs": LOGPROBS if body.get("logprobs") else None}]
        return {**base, "object": "chat.completion", "choices": choices, "usage": USAGE}
    function = {"name": "add", "arguments": ""}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if asks:
        deltas += [{"tool_calls": [{**CALL, "index": 0, "function": function}]}]
        deltas += [
            {"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in (ARGUMENTS[:5], ARGUMENTS[5:])
        ]
    else:
        deltas += [{"content": part} for part in ("It ", "is ", "4.")]
    chunk = {**base, "object": "chat.completion.chunk"}
    chunks = [{**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**chunk, "choices": [], "usage": USAGE})
    return chunks


def _response(body: dict[str, Any]) -> Any:
    told = isinstance(body["input"], list) and body["input"][-1].get("type") == "function_call_output"
    part = {"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}
    item: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    item["content"] = [part]
    if body.get("tools") and not told:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": ARGUMENTS}
    usage = {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12, "input_tokens_details": {"cached_tokens": 3}}
    done = {
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "tiny-1",
        "output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "usage": {**usage, "output_tokens_details": {"reasoning_tokens": 0}},
    }  # fmt: skip
    if body["model"] == "cut":
        done |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    if not body.get("stream"):
        return done
    begun = {**done, "status": "in_progress", "output": [], "usage": None}
    empty = {**item, "content": []} if item["type"] == "message" else {**item, "arguments": ""}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": empty},
    ]
    where = {"output_index": 0, "item_id": item["id"]}
    if item["type"] == "message":
        empty_part = {**part, "text": ""}
        events += [{"type": "response.content_part.added", "content_index": 0, "part": empty_part, **where}]
        events += [
            {"type": "response.output_text.delta", "content_index": 0, "delta": word, "logprobs": [], **where}
            for word in ("It ", "is ", "4.")
        ]
    else:
        events += [{"type": "response.function_call_arguments.delta", "delta": ARGUMENTS, **where}]
    events += [{"type": "response.output_item.done", "output_index": 0, "item": item}]
    events += [{"type": f"response.{done['status']}", "response": done}]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _completion(body: dict[str, Any]) -> Any:
    base = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "tiny-1"}
    if not body.get("stream"):
        return {**base, "choices": [{"index": 0, "text": TEXT, "finish_reason": "stop"}], "usage": USAGE}
    parts = [("It is", None), (" 4.", "stop")]
    return [{**base, "choices": [{"index": 0, "text": text, "finish_reason": reason}]} for text, reason in parts]


def _embeddings(body: dict[str, Any]) -> Any:
    data = [{"object": "embedding", "index": 0, "embedding": [0.5] * 64}]
    return {"object": "list", "model": "tiny-e", "data": data, "usage": {"prompt_tokens": 4, "total_tokens": 4}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news."""


@contextmanager
def serving() -> Iterator[str]:
    """The base URL of a server that runs meanwhile."""
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
