"""What waits is bounded in bytes whatever the arguments are, and what is left out for that is counted."""

from __future__ import annotations

import json
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest

from autotrace.config.plan import Settings
from autotrace.record import faults, flusher
from autotrace.record.backlog import backlog
from autotrace.record.weights import NOT_KEPT, weigh, weigh_numbers
from autotrace.spool.records import Close, Open
from tests.cases import some
from tests.record.conftest import Recorder
from tests.waiting import DEADLINE

PROGRAM = """
import json, resource, sys, threading
from autotrace.config.plan import Plan, Settings, Target
from autotrace.patch import engine
from autotrace.patch.wrapper import wrap
from autotrace.record import faults, flusher

LIMIT = 64 << 20
SHAPES = {
    "argument": lambda text: ((text,), {}),
    "keyword": lambda text: ((), {"value": text}),
    "in a list": lambda text: (([text, 1],), {}),
    "message": lambda text: (([{"role": "user", "content": text}],), {}),
    "bytes": lambda text: ((text.encode(),), {}),
    "other script": lambda text: ((text[: len(text) // 4] + "\\U0001f600",), {}),
}
arguments, number, size = SHAPES[sys.argv[1]], int(sys.argv[2]), int(sys.argv[3])
engine.start(Plan((Target("root", ("root",), role="trajectory"), Target("call", ("call",))), Settings()),
             sys.argv[4], "run")

def call(value):
    return value

call = wrap(call, "call")
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

def root():
    call("first")
    flusher.flush()
    text = "x" * size  # the host's own
    positional, keywords = arguments(text)
    before = peak()
    with flusher._flusher._busy:  # a disk that takes its time
        for at in range(number):
            positional, keywords = arguments(f"{at:08}" + "x" * size)
            call(*positional, **keywords)
        grown = peak() - before
    return grown

grown = wrap(root, "root")()
flusher.shutdown()
print(json.dumps({"grown": grown, "counts": faults.counts}))
"""


@pytest.mark.parametrize(
    "shape", some(["argument", "keyword", "in a list", "message", "bytes", "other script"], "argument", "message")
)
def test_fresh_strings_of_megabytes_stay_within_the_limit(shape: str, tmp_path: Path) -> None:
    size = 8 << 20
    command = [sys.executable, "-c", PROGRAM, shape, "200", str(size), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    host = 4 * size  # the host's own copies while it makes the next one
    assert found["grown"] < 1.2 * (64 << 20) + host, f"{found['grown'] / 2**20:.0f} MB"
    assert not any(key.startswith("fault") for key in found["counts"])


def test_what_is_large_is_left_out_first_then_new_trajectories_then_token_lists(recorder: Recorder) -> None:
    recorder.use(Settings(memory_limit=1_000_000, flush_interval=60.0))
    steps: list[tuple[int, set[str]]] = []

    def generate(prompt_ids: list[int], text: str) -> str:
        steps.append((backlog.waiting(), {name for name in faults.counts if name.startswith("drop:")}))
        return text

    traced = recorder.wrap(generate, key="llm", role="llm", tokens={"prompt": ("prompt_ids",)})
    other = recorder.wrap(lambda: None, key="other", role="trajectory")

    def rollout() -> None:
        with flusher._flusher._busy:  # type: ignore[union-attr]
            for number in range(400):
                traced(list(range(1_000, 2_000)), f"{number:08}" + "x" * 5_000)
                other()

    recorder.wrap(rollout, key="rollout", role="trajectory")()
    seen = [reason for _, reasons in steps for reason in sorted(reasons)]
    order = list(dict.fromkeys(seen))
    assert order[:3] == ["drop:content", "drop:memory_limit", "drop:tokens"]
    first = next(waiting for waiting, reasons in steps if "drop:tokens" in reasons)
    assert first > 0.9 * 1_000_000
    opens = [record for record in recorder.records(Open) if record.prompt is not None]
    assert [opened.prompt.total for opened in opens] == [1_000] * len(opens) and opens
    left_out = [record for record in recorder.records(Close) if record.output == NOT_KEPT]
    assert left_out and faults.counts["drop:content"] >= len(left_out)


def test_token_lists_are_packed_while_much_waits(recorder: Recorder) -> None:
    recorder.use(Settings(memory_limit=1_000_000, flush_interval=60.0))
    traced = recorder.wrap(lambda ids: ids, key="llm", tokens={"prompt": ("ids",), "response": ("result",)})

    def rollout() -> None:
        with flusher._flusher._busy:  # type: ignore[union-attr]
            for number in range(20):
                traced(list(range(number, number + 2_000)))

    recorder.wrap(rollout, key="rollout", role="trajectory")()
    assert backlog.waiting() < 700_000 and not faults.counts
    prompts = [record.prompt for record in recorder.records(Open) if record.prompt is not None]
    assert [prompt.total for prompt in prompts] == [2_000] * 20
    for number, prompt in enumerate(prompts):
        assert array("I", prompt.new).tolist()[-3:] == list(range(number, number + 2_000))[-3:]


@pytest.mark.parametrize(
    ("value", "least"),
    [
        ("x" * 1_000, 1_000),
        ("\u20ac" * 1_000, 2_000),
        (b"x" * 1_000, 1_000),
        ([{"content": "x" * 10_000}] * 3, 30_000),
        ({"a": {"b": {"c": ["x" * 5_000]}}}, 5_000),
        ([{}] * 100, 6_400),
        (("x" * 300, 1, None, 2.0), 300),
    ],
)
def test_nothing_weighs_less_than_it_is(value: Any, least: int) -> None:
    assert least <= weigh(value) < 8 * least + 1_000


def test_numbers_and_short_texts_weigh_nothing_of_their_own() -> None:
    assert [weigh(value) for value in (1, 2.5, None, True, "short", b"short")] == [0] * 6
    assert weigh_numbers(array("I", [1, 2])) == 8 and weigh_numbers((1, 2)) > 16
