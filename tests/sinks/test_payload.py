"""What stands in place of a value that was not copied is words in every backend."""

from __future__ import annotations

import numpy

from autotrace.record.snapshot import Limits, snapshot
from autotrace.sinks.payload import HEAD, TAIL, WHOLE_TEXT, jsonable, texts
from tests.sinks.rollouts import trajectory


def test_arrays_and_numbers_of_numpy() -> None:
    shown = jsonable(snapshot({"long": numpy.arange(100), "one": numpy.int64(7), "few": numpy.arange(3)}, Limits()))
    assert shown == {"long": "array int64 [100] beginning 0, 1, 2, 3", "one": 7, "few": [0, 1, 2]}


def test_tensors_images_bytes_and_what_was_cut() -> None:
    assert jsonable({"…": "tensor", "dtype": "torch.float32", "shape": [2, 3], "device": "cuda:0"}) == (
        "tensor torch.float32 [2, 3] on cuda:0"
    )
    assert jsonable({"…": "image 640x480", "mode": "RGB"}) == "image 640x480 RGB"
    assert jsonable([{"…": "12 bytes"}, {"a": 1, "…": "3 more"}]) == ["12 bytes", {"a": 1, "…": "3 more"}]
    assert jsonable({"…": "4000 numbers", "first": [1, 2]}) == "4000 numbers beginning 1, 2"


def test_a_long_conversation_stands_whole_in_its_turns_alone() -> None:
    one = trajectory()
    agent = next(span for span in one.spans if span.role == "agent")
    agent.response_parts = [{"model": "a"}, {"tools": "b"}]
    short = texts(one, agent)
    assert short == {"prompt_text": agent.prompt_text, "response_text": agent.response_text,
                     "response_parts": agent.response_parts}  # fmt: skip
    agent.response_text = "".join(map(str, range(WHOLE_TEXT)))
    shown = texts(one, agent)["response_text"]
    assert shown.startswith(agent.response_text[:HEAD]) and shown.endswith(agent.response_text[-TAIL:])
    assert len(shown) < HEAD + TAIL + 80
    assert f"{len(agent.response_text) - HEAD - TAIL:,} characters" in shown
    for span in one.llm_spans:  # no turn has it: here it stays whole
        span.response_text = None
    assert texts(one, agent)["response_text"] == agent.response_text
