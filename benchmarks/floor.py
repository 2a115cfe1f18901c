"""What a program in Python takes for the spool of ``delivery.py`` that does only what cannot be left out: read the
records, check and decode them, decode their tokens, look through the texts for secrets, encode it all.

    python benchmarks/floor.py [--trajectories N] [--rounds N]

It indexes nothing, joins nothing, keeps no state, finds nothing out and must not be killed. Microseconds of CPU a span:
of the rounds the middle one, as measured and at reference speed. Of Parquet, the tables ``turns`` and ``spans`` alone,
in one file each.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import tempfile
import time
import zlib
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from autotrace.redact.credentials import signs  # noqa: E402
from autotrace.ship.assembly.tokenizer import load  # noqa: E402
from autotrace.spool.reader import segments  # noqa: E402
from autotrace.spool.records import MAGIC, Close, Open, Record  # noqa: E402
from autotrace.spool.segment import PREFIX, PREFIX_SIZE  # noqa: E402
from benchmarks.budgets import REFERENCE_NS  # noqa: E402
from benchmarks.ship_program import speed  # noqa: E402
from benchmarks.spools import TURNS, Spools  # noqa: E402

Span = dict[str, Any]


def records(folder: Path) -> list[Record]:
    """Everything in the segments of a run that are whole."""
    decode, found = msgspec.msgpack.Decoder(Record).decode, []
    for file in segments(folder):
        data = memoryview((folder / "spool" / file.name).read_bytes())
        at = len(MAGIC)
        while at < len(data):
            length, checksum = PREFIX.unpack_from(data, at)
            at += PREFIX_SIZE
            payload = data[at : at + length]
            if zlib.crc32(payload) != checksum:
                raise ValueError(f"{file.name} is damaged at {at}")
            found.append(decode(payload))
            at += length
    return found


def spans(of: list[Record]) -> list[Span]:
    """The calls, with the token ids that each adds."""
    made: dict[int, Span] = {}
    for record in of:
        if isinstance(record, Open):
            made[record.span] = span = {
                "trace_id": record.trace.hex(), "span_id": f"{record.span:016x}", "parent_id": f"{record.parent:016x}",
                "start_ns": record.at, "inputs": record.inputs, "attributes": record.attributes,
            }  # fmt: skip
            if record.prompt is not None:
                span["new_prompt_ids"] = array("i", record.prompt.new)
                hashlib.blake2b(record.prompt.new, digest_size=16).digest()
        elif isinstance(record, Close):
            span = made[record.span]
            span |= {"end_ns": record.at, "status": record.status, "output": record.output}
            if record.response is not None:
                span["response_ids"] = array("i", record.response.new)
                span["logprobs"] = array("f", record.logprobs or b"")
                hashlib.blake2b(record.response.new, digest_size=16).digest()
    return list(made.values())


def add_texts(to: list[Span], decode: Callable[[array[int]], str]) -> None:
    """Of tokens."""
    for span in to:
        for ids, text in (("new_prompt_ids", "prompt_text"), ("response_ids", "response_text")):
            if ids in span:
                span[text] = decode(span[ids])


def look_through(of: list[Span]) -> None:
    """For secrets."""
    for span in of:
        for text in ("prompt_text", "response_text"):
            if text in span:
                signs(span[text])


def lines(of: list[Span]) -> bytes:
    """JSON."""
    numbers = ("new_prompt_ids", "response_ids", "logprobs")
    encode = msgspec.json.Encoder().encode
    return b"\n".join(
        encode({name: value.tolist() if name in numbers else value for name, value in span.items()}) for span in of
    )


def files(of: list[Span], folder: Path) -> None:
    """Parquet."""
    lists = {"new_prompt_ids": pa.int32(), "response_ids": pa.int32(), "logprobs": pa.float32()}
    turns = [span for span in of if "response_ids" in span]
    shared = ("trace_id", "span_id", "parent_id", "start_ns", "end_ns", "status")
    for name, rows in (("turns", turns), ("spans", of)):
        columns = {column: pa.array([row[column] for row in rows]) for column in shared}
        if name == "turns":
            for column, kind in lists.items():
                ends = array("i", [0])
                for row in rows:
                    ends.append(ends[-1] + len(row[column]))
                items = b"".join(row[column].tobytes() for row in rows)
                child = pa.Array.from_buffers(kind, ends[-1], [None, pa.py_buffer(items)])
                buffers = [None, pa.py_buffer(ends)]
                columns[column] = pa.Array.from_buffers(pa.list_(kind), len(rows), buffers, children=[child])
            columns |= {text: pa.array([row[text] for row in rows]) for text in ("prompt_text", "response_text")}
        else:
            for column in ("inputs", "output", "attributes"):
                columns[column] = pa.array([msgspec.json.encode(row[column]).decode() for row in rows])
        plain = [column for column in columns if column not in ("trace_id", "status")]
        pq.write_table(pa.table(columns), folder / f"{name}.parquet", compression="zstd", compression_level=1,
                       use_dictionary=[column for column in columns if column not in plain])  # fmt: skip


def measured(run: Path, folder: Path, number: int, count: int) -> dict[str, tuple[float, float]]:
    """What each part took: microseconds a span, as measured and at reference speed."""
    decode = load(str(run / "tokenizer"), {}, run, keep=False)
    made: list[Any] = []
    parts: dict[str, Callable[[], Any]] = {
        "records read, checked and decoded": lambda: records(run),
        "calls, with their tokens and digests": lambda: spans(made),
        "tokens as text": lambda: add_texts(made, decode),
        "texts looked through for secrets": lambda: look_through(made),
        "as lines of JSON": lambda: lines(made),
        "as Parquet, two tables": lambda: files(made, folder),
    }
    taken: dict[str, list[float]] = {name: [] for name in parts}
    speeds = []
    for _ in range(number):
        for name, part in parts.items():
            speeds.append(speed())
            began = time.process_time()
            answer = part()
            made = answer if isinstance(answer, list) else made
            taken[name].append((time.process_time() - began) * 1e6 / count)
    to_reference = REFERENCE_NS / statistics.median(speeds)
    middle = {name: statistics.median(each) for name, each in taken.items()}
    return {name: (each, each * to_reference) for name, each in middle.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What delivery cannot do without.")
    parser.add_argument("--trajectories", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotrace-floor-") as name:
        folder = Path(name)
        run = Spools(folder).copy(folder / "run", "jsonl", "", options.trajectories, TURNS)
        table = measured(run, folder, options.rounds, options.trajectories * (1 + 2 * TURNS))
    for part, (each, at_reference) in table.items():
        print(f"{part:45} {each:6.1f} {at_reference:6.1f}")


if __name__ == "__main__":
    main()
