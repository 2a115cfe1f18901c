"""The tool of ``search.py`` in veRL's own agent loop, against a service that is slow, wrong and right in turn.

autotrace-run --spec examples/http_tool/traced.yaml python examples/http_tool/main.py
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "verl_loop"), str(HERE)]
import in_process  # noqa: E402

BOOKS = {"moon": ["From the Earth to the Moon", "The First Men in the Moon"], "sea": ["The Sea-Wolf"]}


class Service(BaseHTTPRequestHandler):
    """Knows some books; is slow about the moon and breaks on the sun."""

    def do_POST(self) -> None:
        """Answer one search."""
        query = json.loads(self.rfile.read(int(self.headers["content-length"])))["query"]
        if query == "moon":
            time.sleep(1.0)
        with contextlib.suppress(ConnectionError):  # the tool does not wait for the moon
            self.send_response(500 if query == "sun" else 200)
            self.end_headers()
            self.wfile.write(json.dumps({"titles": BOOKS.get(query, [])}).encode())

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def script(conversation: str, turn: int) -> str:
    """Search for the topic of the question; after the first answer of the tool, answer."""
    topic = next(word for word in ("moon", "sea", "sun") if f"the {word}?" in conversation)
    if turn == 0:
        return f'<tool_call>{{"name": "search", "arguments": {{"query": "{topic}"}}}}</tool_call>'
    return "#### " + str(len(BOOKS.get(topic, [])))


def tool_config(folder: Path, url: str) -> Path:
    """The tool YAML that veRL reads (JSON is YAML)."""
    query = {"type": "string", "description": "a word"}
    parameters = {"type": "object", "properties": {"query": query}, "required": ["query"]}
    function = {"name": "search", "description": "Search for books.", "parameters": parameters}
    tool = {
        "class_name": "search.SearchTool",
        "config": {"type": "native", "url": url, "seconds": 0.5},
        "tool_schema": {"type": "function", "function": function},
    }
    path = folder / "tools.yaml"
    path.write_text(json.dumps({"tools": [tool]}))
    return path


async def main(folder: Path, url: str) -> None:
    """Three questions: the service is in time for one, too late for one, and broken for one."""
    tokenizer = in_process.make_model(folder)
    config = in_process.configuration(
        folder,
        [
            f"actor_rollout_ref.rollout.multi_turn.tool_config_path={tool_config(folder, url)}",
            f"reward.custom_reward_function.path={HERE.parent / 'verl_loop' / 'reward.py'}",
            "reward.custom_reward_function.name=compute_score",
            "trainer.project_name=autotrace-examples",
            "trainer.experiment_name=http-tool",
        ],
    )
    agents = in_process.worker(config, in_process.ScriptedServer(tokenizer, script))
    prompts = [
        {"question": f"How many books are about the {word}?", "answer": len(BOOKS.get(word, [])), "uid": word}
        for word in ("moon", "sea", "sun")
    ]
    output = await in_process.rollout(agents, prompts, n=1, step=1)
    print("scores", output.batch["rm_scores"].sum(dim=1).tolist())


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as model:
        asyncio.run(main(Path(model), f"http://127.0.0.1:{server.server_address[1]}/"))
    server.shutdown()
