"""Requests of an engine that nobody traced above it: an engine used alone, or behind its own HTTP server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotrace.record.token_prefixes import TokenLog
from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.spool.records import Close
from tests.ship.spools import ANSWER, PROMPT, Process, new_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return new_run(tmp_path)


def test_a_request_to_an_engine_used_alone_is_an_llm_call(run: Path) -> None:
    process = Process(run)
    alone, served, control = (os.urandom(16) for _ in range(3))
    request = process.open(alone, "engine")
    whole = TokenLog(0).prompt(PROMPT + ANSWER, False)[0]  # a text was given: the prompt is known at the end
    process.write(Close(request, alone, process.tick(), "OK", response=whole, skip=len(PROMPT)))
    handler = process.open(served, "engine", inputs={"messages": [{"role": "user", "content": "hi"}]})
    inner = process.open(served, "engine", handler, PROMPT)
    process.close(served, inner, ANSWER)
    process.close(served, handler)
    process.close(control, process.open(control, "engine"))
    process.exit()
    ship(run, once=True)
    index = of_run(run)
    (span,) = index.load(alone.hex()).spans
    assert (span.role, span.prompt_ids, span.response_ids) == ("llm", PROMPT, ANSWER)
    assert (span.prompt_tokens, span.response_tokens) == (len(PROMPT), len(ANSWER))
    assert [span.role for span in index.load(served.hex()).spans] == ["engine", "llm"]
    assert [span.role for span in index.load(control.hex()).spans] == ["engine"]
    assert index.load(alone.hex()).turns == 1


def test_the_engines_side_of_an_agents_call_stays_the_engines(run: Path) -> None:
    process = Process(run)
    trace = os.urandom(16)
    call = process.open(trace, "llm", prompt=PROMPT)
    server = process.open(trace, "engine", call, PROMPT, withheld=True)
    process.close(trace, process.open(trace, "engine", server, PROMPT, withheld=True), ANSWER, withheld=True)
    process.close(trace, server, ANSWER, withheld=True)
    process.close(trace, call, ANSWER)
    process.exit()
    ship(run, once=True)
    spans = of_run(run).load(trace.hex()).spans
    assert [span.role for span in spans] == ["llm", "engine", "engine"]
    assert [span.response_tokens for span in spans] == [len(ANSWER)] * 3


@pytest.mark.parametrize("lasted", [0.004, 0, -1, float("nan"), float("inf"), 1e300, "1", None, [1], True])
def test_a_call_that_reports_what_is_over_begins_so_much_earlier(run: Path, lasted: object) -> None:
    process = Process(run)
    trace = os.urandom(16)
    root = process.open(trace, "trajectory")
    for _ in range(8):
        process.tick()
    call = process.open(trace, "llm", root)
    process.write(Close(call, trace, process.tick(), "OK", attributes={"lasted_s": lasted}))
    process.write(Close(root, trace, process.tick(), "OK"))
    process.exit()
    ship(run, once=True)
    span = next(span for span in of_run(run).load(trace.hex()).spans if span.role == "llm")
    told = {0.004: 4, 1e300: 10, True: 10}  # not before its trajectory began
    number = lasted if isinstance(lasted, (float, bool)) else 0.0
    assert span.duration_ns == 1_000_000 * told.get(number, 1)
