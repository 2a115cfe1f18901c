"""verifiers 0.4.0: the episodes of ``examples/verifiers_sums`` with tokens, as ``write_episode`` saves them, and as
prime-rl's file monitor does (its layout, by verifiers' own ``Episode.to_record``)."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import episodes  # found by what was imported above
import verifiers.v1 as vf
from verifiers.v1.episode import Episode, GroupInfo, PolicySpan, TrainRunInfo, TrainWorkInfo
from verifiers.v1.utils.trace_store import write_episode

from tests.agent_frameworks.verifiers import program


def made() -> list[Episode[Any, Any, Any]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), program.Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        program.TOKENIZER.save_pretrained(folder)
        engine = vf.TrainClientConfig(
            base_url=f"http://127.0.0.1:{server.server_address[1]}/v1", renderer={"name": "qwen3"},
            renderer_model_name=folder,
        )  # fmt: skip
        return list(asyncio.run(episodes.run(engine)))


def main(folder: str) -> None:
    saved = Path(folder, "evaluation")
    saved.mkdir(parents=True)
    rollouts = Path(folder, "training", "rollouts", "step_3", "train")
    for number, episode in enumerate(made()[1:3]):
        for trace in episode.traces:
            trace.agent.config = trace.agent.runtime = None  # where it ran
        write_episode(saved, episode)
        episode.record_run(TrainRunInfo(id="run", work=TrainWorkInfo(step=3, policy=PolicySpan(start=2, end=3))))
        episode.group = GroupInfo(id="group")
        for node in episode.traces[0].nodes:
            node.advantages = [0.5] * sum(node.mask) if any(node.mask) else None
        for subset in ("all", "effective") if number else ("all",):
            (rollouts / subset).mkdir(parents=True, exist_ok=True)
            with (rollouts / subset / "traces.jsonl").open("a") as file:
                file.write(json.dumps(episode.to_record(), default=str) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
