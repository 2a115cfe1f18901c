"""Bodies of answers, cut anywhere: events of a chat, documents, compressed ones, and what is neither."""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotrace.record.event_bytes import MAX_BYTES, EventBytes
from autotrace.record.snapshot import Limits

TEXT = "Größe ≈ 4 🙂"
DOCUMENT = {"choices": [{"message": {"role": "assistant", "content": TEXT}}]}


def chunk(**delta: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta}]}, ensure_ascii=False).encode()


BODY = b"".join(
    [
        b": a comment\r\n\r\n",
        b"event: x\r\ndata: " + chunk(content=TEXT[:3]) + b"\r\n\r\n",
        b"data:" + chunk(content=TEXT[3:]) + b"\n\n",
        b'data: {"choices": [{"index": 0,\ndata: "delta": {}, "finish_reason": "stop"}]}\n\n',
        b"data: [DONE]\n\n",
    ]
)


def put_together(pieces: list[Any], kind: str = "text/event-stream; charset=utf-8", encoding: str = "") -> EventBytes:
    body = EventBytes("llm", Limits(), kind, encoding)
    for piece in pieces:
        body.add(piece)
    return body


def content(value: Any) -> Any:
    return value["choices"][0]["message"]["content"]


@given(st.lists(st.integers(0, len(BODY)), max_size=8))
def test_events_are_read_wherever_they_are_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(BODY)]
    body = put_together([BODY[start:end] for start, end in itertools.pairwise(places)])
    value = body.value()
    assert (content(value), value["choices"][0]["finish_reason"], body.done) == (TEXT, "stop", True)
    assert body.kept + len(places) - 1 == 3, "items are events, and not pieces of bytes"


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [("gzip", gzip.compress(BODY)), ("deflate", zlib.compress(BODY)), ("identity", BODY)],
)
def test_compressed_events_are_read(encoding: str, packed: bytes) -> None:
    pieces = [packed[start : start + 5] for start in range(0, len(packed), 5)]
    assert content(put_together(pieces, encoding=encoding).value()) == TEXT


def test_a_document_is_read_when_it_is_whole() -> None:
    data = json.dumps(DOCUMENT).encode()
    whole = put_together([data[:9], data[9:]], "application/json")
    assert content(whole.value()) == TEXT
    assert put_together([data[:9]], "application/json").value() is None


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: {\xff\xfe}\n\n"],
        [b"data: " + b"[" * 100_000 + b"\n\n"],
        [b"data: " + b"x" * MAX_BYTES, b"x" * MAX_BYTES],
        ["a text", None],
        [],
    ],
)
def test_what_is_no_json_is_passed_over(pieces: list[Any]) -> None:
    body = put_together([*pieces, b"\n\n", BODY])
    assert content(body.value()) == TEXT
    assert put_together(pieces).value() is None


@pytest.mark.parametrize("encoding", ["br", "gzip"])
def test_what_cannot_be_unpacked_is_not_read(encoding: str) -> None:
    assert put_together([BODY], encoding=encoding).value() is None
