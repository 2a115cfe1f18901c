"""Findings over many trajectories: ``python benchmarks/findings.py [TRAJECTORIES]`` (100,000 of 10 turns).

Writes the lines that a shipper would have written, diagnoses them from the run folder and from Parquet, and prints CPU
seconds and memory of each.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from autotrace.insight.profile import Mark, Profile, ToolUse, Trait, TurnProfile, encode  # noqa: E402
from autotrace.insight.registry import stamp  # noqa: E402
from autotrace.ship.store.row import TraceRow  # noqa: E402
from autotrace.ship.store.state import State  # noqa: E402
from tests.ship.spools import new_run  # noqa: E402

STEPS, N, TURNS = 20, 8, 10


def written(parent: Path, count: int) -> Path:
    """A run folder whose state has ``count`` trajectories."""
    folder = new_run(parent)
    chance = random.Random(1)
    with contextlib.closing(State.of_run(folder)) as state, state:
        for number in range(count):
            state.put_rows([_row(number, count, chance)])
    return folder


def _row(number: int, count: int, chance: random.Random) -> TraceRow:
    step, group = number * STEPS // count, number // N
    start = 1_700_000_000_000_000_000 + step * 10**11 + chance.randrange(10**9)
    seconds = chance.uniform(20, 60)
    prompt, turns = 600, []
    for _ in range(TURNS):
        said = chance.randrange(50, 900)
        turns.append(TurnProfile(prompt, said, "stop", 151645, prompt - 200, prompt - 210, step, 2.5, 0, "0"))
        prompt += said + 200
    marks = [Mark("AT-TRUNCATED-RESPONSE", TURNS, said, "prompt 7,000 and answer 900 tokens")] * (
        chance.random() < 0.03
    )
    profile = Profile(
        stamp(), turns, [ToolUse("search", TURNS - 1, 0, 9.5, 1.5)], marks, [1, 2, 3, 4], f"{number:016x}", 9000,
        traits=_traits(number, step, chance), prompt=f"{group:016x}",
    )  # fmt: skip
    return TraceRow(
        f"{number:032x}", "run", "trajectory", "OK", step, str(group), number % N, False, f"u{group}", str(number % N),
        "gsm8k", "exp", "proj", 1, start, start + int(seconds * 1e9), TURNS, TURNS - 1, 4 * TURNS, 0, 600, 5000,
        float(chance.random() < (0.2 if step >= STEPS // 2 and number % 2 else 0.6)), None,
        json.dumps({"reward": 1.0, "reward_extra_info": {"acc": 1.0}, "advantage": 0.5, "trained_in_step": step}),
        "{}", json.dumps({"queue_s": 1.0, "prefill_s": 2.0, "decode_s": 20.0, "tool_s": 9.5, "other_s": 1.0}),
        encode(profile), f"{step}/u{group}", "all", True, 1,
    )  # fmt: skip


def _traits(number: int, step: int, chance: random.Random) -> list[Trait]:
    """As many as a rollout with a tool has, one of them its own, and one that came with a drop of the reward."""
    told = [f"trait {trait} is {chance.randrange(1 + trait % 5)}" for trait in range(20)]
    told += [
        f"search answers page {number}",
        "search is closed" if step >= STEPS // 2 and number % 2 else "search is open",
    ]
    quantities = [Trait("end", f"quantity {trait}", float(chance.randrange(100))) for trait in range(6)]
    return [Trait("tool_answers", words) for words in told] + quantities


def measured(*words: str) -> str:
    """A command in a process of its own: its CPU seconds and its largest memory."""
    began = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # not ru_maxrss, which begins with what the parent of a process had
    program = "import sys;from autotrace.cli.main import main\ntry: main(sys.argv[1:])\nfinally:\n" \
        " peak=open('/proc/self/status').read().partition('VmHWM:')[2].split()[0]\n" \
        " print(int(peak)//1024,file=sys.stderr)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{cpu:6.1f} s of CPU, {time.monotonic() - began:6.1f} s, {done.stderr.split()[-1]} MB"


def main() -> None:
    """See the module."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as parent:
        run = written(Path(parent), count)
        print(f"{count:,} trajectories of {TURNS} turns, {os.path.getsize(run / 'state.db') / 1e6:.0f} MB of state")
        print(f"diagnose, run folder  {measured('diagnose', str(run))}")
        print(f"why                   {measured('why', str(run))}")
        print(f"steps                 {measured('steps', str(run))}")


if __name__ == "__main__":
    main()
