"""Scenarios about whole processes: starting up, rolling out with veRL, bytes of what was recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.bench import ROOT, Bench

Result = dict[str, Any]
PTH = (ROOT / "autotrace.pth").read_text()
VERL_PYTHON = os.environ.get("BENCH_VERL_PYTHON", "")
"""A Python with veRL and its dependencies (``make environment`` makes one); without it veRL is left out."""


def run_process(command: list[str], environ: Mapping[str, str], **options: Any) -> dict[str, float]:
    """Wall seconds, CPU seconds and peak memory (MB) of a process. Raises ``CalledProcessError``."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, env={**os.environ, **environ}, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True, **options
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return {
        "wall_s": time.perf_counter() - began,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / 1e3,
    }


# -- starting up -----------------------------------------------------------------------------------------------------


CLIENTS = ("httpx", "openai")
"""Of model servers; a process that imports no more of the shipped lists has nothing to record."""


def startup(bench: Bench) -> Result:
    """CPU milliseconds of a Python process that does nothing, of those that import clients of model servers, and of one
    that imports veRL."""
    with tempfile.TemporaryDirectory() as folder:
        traced = _activated(Path(folder))
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}  # as after an installation
        traced |= compiled
        programs = {"nothing": ("", sys.executable, {"PYTHONPATH": str(ROOT), **compiled})}
        programs["nothing, AUTOTRACE=1"] = (PTH, sys.executable, traced)
        for client in CLIENTS:
            load = f"import {client}"
            programs[load] = (load, sys.executable, {"PYTHONPATH": str(ROOT), **compiled})
            programs[f"{load}, AUTOTRACE=1"] = (PTH + load, sys.executable, traced)
        number = 15 if bench.short else 30
        found = _milliseconds(bench, programs, number)
        if not bench.short:
            found |= _milliseconds(bench, {"import ddtrace.auto": ("import ddtrace.auto", sys.executable, compiled)}, 5)
        if VERL_PYTHON and not bench.short:
            load = "import verl.experimental.agent_loop.agent_loop"
            found |= _milliseconds(
                bench,
                {
                    "import verl": (load, VERL_PYTHON, {"PYTHONPATH": str(ROOT), **compiled}),
                    "import verl, AUTOTRACE=1": (PTH + load, VERL_PYTHON, traced),
                },
                3,
            )
    return found


def _activated(folder: Path) -> dict[str, str]:
    """The environment of a process below ``autotrace-run``, with the shipped lists."""
    from autotrace.spec.compiler import compile_plan, watched_modules

    plan = compile_plan()
    (folder / "plan.json").write_text(plan.dumps())
    (folder / "spool").mkdir()
    return {
        "PYTHONPATH": str(ROOT),
        "AUTOTRACE": "1",
        "AUTOTRACE_PLAN": str(folder / "plan.json"),
        "AUTOTRACE_RUN_FOLDER": str(folder),
        "AUTOTRACE_RUN_ID": "bench",
        "AUTOTRACE_MODULES": ",".join((*watched_modules(plan), "ray")),
    }


def _milliseconds(bench: Bench, programs: dict[str, tuple[str, str, dict[str, str]]], number: int) -> Result:
    commands = {
        name: (
            lambda text=text, python=python, environ=environ: run_process([python, "-c", text], environ)["cpu_s"] * 1e3
        )
        for name, (text, python, environ) in programs.items()
    }
    for command in commands.values():
        command()  # files are compiled and in memory from now on
    return {name: {"cpu_ms": ms} for name, ms in bench.timed(commands, number).items()}


# -- rolling out -----------------------------------------------------------------------------------------------------

OURS, PEERS = ("off", "autotrace"), {"veRL on MLflow": 32, "veRL on Weave": 4}
"""Modes; of the peers, how many prompts (of eight rollouts each) they get through in less than a minute."""
PROMPTS = 32
THINKING, HASTY = 5.0, 0.5
"""Seconds of a turn: a few hundred tokens at what an engine does for one of many requests; and one so fast that nothing
is measured but a worker that has no moment to spare."""


def rollout(bench: Bench) -> Result:
    """veRL's own agent loop with a scripted engine: 256 trajectories of three turns at once in one worker."""
    if not VERL_PYTHON:
        bench.missing["veRL's agent loop"] = (
            "set BENCH_VERL_PYTHON to a Python with veRL (make environment makes .venv)"
        )
        return {}
    found: Result = {}
    for seconds, words, rounds in ((THINKING, "", 3), (HASTY, ", a worker without a pause", 1)):
        samples: dict[str, list[Result]] = {}
        for turn in range(rounds):
            for mode in OURS if turn % 2 else reversed(OURS):
                made = _rollout(bench, mode, seconds)
                if made is not None:
                    samples.setdefault(f"{mode}{words}", []).append(made)
        for mode, runs in samples.items():
            found[mode] = {key: sorted(run[key] for run in runs)[len(runs) // 2] for key in runs[0]}
    for mode, prompts in PEERS.items():
        made = _rollout(bench, mode, THINKING, prompts)
        if made is not None:
            found[mode if prompts == PROMPTS else f"{mode}, {8 * prompts} trajectories"] = made
    return found


def _rollout(bench: Bench, mode: str, seconds: float, prompts: int = PROMPTS) -> Result | None:
    with tempfile.TemporaryDirectory() as folder:
        environ = {
            "PYTHONPATH": str(ROOT),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "BENCH_PEERS": sysconfig.get_paths()["purelib"],
        }
        if mode == "veRL on Weave":
            environ |= bench.weave_environment() | {"HOME": folder}
        done = subprocess.run(
            [VERL_PYTHON, "-m", "benchmarks.rollout_program", mode, folder, str(seconds), str(prompts)],
            env={**os.environ, **environ}, cwd=ROOT, capture_output=True, text=True, timeout=600,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            bench.missing[f"rollout, {mode}"] = (done.stderr.strip().splitlines() or ["it ended"])[-1][:200]
            return None
        answer: Result = json.loads(lines[-1])
        return answer


# -- bytes -----------------------------------------------------------------------------------------------------------


def volume(bench: Bench) -> Result:
    """Bytes in the spool and bytes delivered: of a long trajectory, and of one whose text is sent in one piece, too."""
    found: Result = {}
    for turns, words in ((20, ""), (3, ", 3 turns")):
        with tempfile.TemporaryDirectory() as folder:
            done = _program(["benchmarks.volume", folder, str(turns), "1000", "600"], {})
        if isinstance(done, str):
            bench.missing["bytes of a trajectory"] = done
        else:
            found |= {f"{name}{words}": weight for name, weight in done.items()}
    return found


def _program(arguments: list[str], environ: Mapping[str, str]) -> Result | str:
    """What a module of ours prints; or why it did not."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], env={**os.environ, "PYTHONPATH": str(ROOT), **environ}, cwd=ROOT,
        capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return (done.stderr.strip().splitlines() or ["it ended"])[-1][:200]
    answer: Result = json.loads(lines[-1])
    return answer
