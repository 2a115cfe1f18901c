"""Programs of this folder under ``autotrace-run``, with a real engine: what they saw, and what was recorded of them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotrace.insight.settings import TrainerSettings
from autotrace.ship.readers import of_run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 900
"""Seconds after which a program is taken for hung: engines start in 25 to 60 on two idle cores, in ten times that on
busy ones."""

ENVIRON = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "AUTOTRACE_BACKEND": "jsonl",
    "AUTOTRACE_DRAIN_TIMEOUT": "300",
    # vLLM: no probe of the compiler, little memory, and the shim that gives the CPU build its distribution's name
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    # SGLang: the engine for CPUs, with a stand-in for its compiled kernels
    "SGLANG_USE_CPU_ENGINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


def installed(module: str) -> bool:
    """Whether this environment has the engine."""
    return importlib.util.find_spec(module) is not None


def environ(run_dir: Path, **more: str) -> dict[str, str]:
    """Environment of a program."""
    path = [str(HERE), str(ROOT / "tests" / "e2e" / "shim") if installed("vllm") else str(HERE / "stubs")]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTRACE")}
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"PATH": search, "PYTHONPATH": os.pathsep.join(path), "AUTOTRACE_RUN_DIR": str(run_dir)}
    return {**inherited, **ENVIRON, **own, **more}


@dataclass
class Run:
    """A program that has ended, and what is left of it."""

    folder: Path
    found: Any = None
    """What the program itself wrote down."""
    traces: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path) -> Run:
        """Read what is in ``folder``."""
        run = cls(folder)
        result = folder / "result.json"
        run.found = json.loads(result.read_text()) if result.exists() else None
        with (run.run_folder / "trajectories.jsonl").open() as lines:
            run.traces = [json.loads(line) for line in lines]
        return run

    @property
    def run_folder(self) -> Path:
        """autotrace's own folder of this run."""
        (info,) = (self.folder / "runs").glob("*/run.json")
        return info.parent

    @property
    def log(self) -> str:
        """What the program printed."""
        return (self.folder / "log").read_text(errors="replace")

    def status(self) -> dict[str, Any]:
        """The shipper's last word."""
        status: dict[str, Any] = json.loads((self.run_folder / "status.json").read_text())
        return status

    def context_length(self) -> int | None:
        """Tokens of prompt and response together, as the engine reported them."""
        with contextlib.closing(of_run(self.run_folder)) as reader:
            return TrainerSettings.of(reader.run.binds()).max_model_len

    def spans(self) -> Iterator[dict[str, Any]]:
        """Of all traces."""
        for trace in self.traces:
            yield from trace["spans"]

    def named(self, name: str) -> list[dict[str, Any]]:
        """Spans of this name."""
        return [span for span in self.spans() if span["name"] == name]

    def target(self, key: str) -> list[dict[str, Any]]:
        """Spans of the target whose key ends so, wherever the release defines it."""
        return [span for span in self.spans() if span["key"].endswith(f".{key}")]

    def request(self, request_id: str) -> dict[str, Any]:
        """The span of the engine's request ``request_id``."""
        calls = [span for span in self.spans() if is_call(span)]
        (span,) = [span for span in calls if span["attributes"].get("request_id") == request_id]
        return span

    def trace_of(self, span: Mapping[str, Any]) -> dict[str, Any]:
        """The trace that holds ``span``."""
        (trace,) = [trace for trace in self.traces if any(other is span for other in trace["spans"])]
        return trace


def is_call(span: Mapping[str, Any]) -> bool:
    """Whether ``span`` is a request to a model."""
    return span["role"] in ("llm", "engine") and span.get("prompt_tokens") is not None


def prompt_of(span: Mapping[str, Any]) -> list[int]:
    """Token ids of a prompt that no earlier turn is the beginning of."""
    ids: list[int] = span.get("new_prompt_ids") or span.get("prompt_ids") or []
    return ids


def run(folder: Path, script: str, *arguments: str, launch: tuple[str, ...] = (), **more: str) -> Run:
    """Run ``script`` of this folder, which writes its findings to the file named last, and read what was recorded."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["autotrace-run", *launch, "python", str(HERE / script), *arguments, str(folder / "result.json")]
    with (folder / "log").open("wb") as log:
        code = subprocess.run(
            command, env=environ(folder / "runs", **more), cwd=folder, stdout=log, stderr=log, timeout=LIMIT
        ).returncode
    assert code == 0, (folder / "log").read_text(errors="replace")[-4000:]
    return Run.of(folder)
