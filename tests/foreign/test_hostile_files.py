"""A file of somebody else may be anything: reading it runs nothing, writes nothing, follows no link, costs in
proportion to its bytes, and what is wrong with it is one sentence."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import sqlite3
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from autotrace.foreign.opened import Opened
from autotrace.foreign.parquet import parquet_rows
from autotrace.tables.errors import QueryError
from tests.cases import some
from tests.foreign.test_shapes import SHAPES
from tests.security import reading

ESCAPE = "\x1b]0;gone\x07\u202e"
NAMES = ("ls", "open", "door", "page", "diff")


def line(**values: Any) -> str:
    return json.dumps(values)


def chat(*messages: Any, **more: Any) -> str:
    return line(messages=list(messages), **more)


def answer(content: Any = "a", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e308,
    10**40,
    "\ud800",
    ESCAPE,
    [],
    {},
    [[]],
    [None],
    {"": {"": []}},
    "x" * 10**6,
)
VERL = ("input", "output", "gts", "score", "step", "uid", "status", "advantage", "num_turns", "request_id")
TRACE = ("id", "nodes", "calls", "rewards", "metrics", "timing", "errors", "task", "agent", "ok")
NODE = ("parent", "message", "sampled", "token_ids", "mask", "logprobs", "advantages")
SAMPLE = (
    "id",
    "epoch",
    "messages",
    "output",
    "scores",
    "target",
    "error",
    "limit",
    "attachments",
    "started_at",
    "metadata",
)
SLIME = ("tokens", "response_length", "loss_mask", "rollout_log_probs", "prompt", "response", "reward", "label",
         "status", "metadata", "weight_versions", "group_index", "index", "remove_sample")  # fmt: skip


def strange(names: tuple[str, ...], honest: dict[str, Any]) -> list[dict[str, Any]]:
    """``honest``, with each strange value under each name."""
    return [{**honest, name: value} for name in names for value in STRANGE]


def lines(*rows: Any) -> bytes:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows).encode("utf-8", "replace")


def verl(place: Path) -> None:
    honest = {"input": "user\nq\nassistant\n", "output": "a", "gts": "1", "score": 1.0, "step": 1}
    (place / "1.jsonl").write_bytes(lines(honest, *strange(VERL, honest)))


def messages(place: Path) -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{"}}
    rows = [chat(answer(value), {"role": "tool", "content": value}, reward=value, step=value) for value in STRANGE]
    rows += [chat(answer(tool_calls=[value, {**call, "function": value}, {**call, "id": value}])) for value in STRANGE]
    rows += [chat({"role": value, "content": "x"}, value, answer(reasoning_content=value)) for value in STRANGE]
    rows += [line(prompt=value, completion=value) for value in STRANGE]
    (place / "rows.jsonl").write_bytes(lines(chat(answer()), *rows))


def shapes(place: Path) -> None:
    """Every shape, with a strange value in the place of each value, at every depth."""
    for name, value, _, _ in (shape for of, shape in SHAPES.items() if of != "hosted"):
        rows = [row for strange_one in (*STRANGE[4:7], [None], {"": {"": []}}) for row in broken(value, strange_one)]
        (place / f"{len(os.listdir(place))}{name}").write_bytes(lines(value, *rows))


def broken(value: Any, strange_one: Any) -> Iterator[Any]:
    """``value`` with one value exchanged, once for each place."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        for other in (strange_one, *broken(part, strange_one)):
            made = copy.copy(value)
            made[key] = other
            yield made


def text_of_lists(place: Path) -> None:
    within = json.dumps([[answer()] * 10] * 1000)
    for number, text in enumerate(("[" * 100_000, "[{" * 50_000, "[" + "{}," * (6 << 20) + "{}]", within)):
        (place / f"{number}.jsonl").write_bytes(lines(chat(answer()), line(messages=text)))


def metrics(place: Path) -> None:
    """Each kind of a trainer's metrics, damaged, without end, or with strange values."""
    entries = [{"step": value, "loss": value, ESCAPE: 1.0} for value in STRANGE] + [{"step": 1, "loss": 1.0}]
    (place / "trainer_state.json").write_text(json.dumps({"log_history": [*entries, *STRANGE]}))
    (place / "verl.jsonl").write_bytes(lines({"step": 1, "data": {"loss": 1.0}}, *strange(("step", "data"), {})))
    (place / "train.log").write_bytes(b"step:1 - " + b"a:1 - " * 10**6 + b"\nstep:9 - :\n" + os.urandom(1 << 16))
    (place / "a.csv").write_bytes(b"step," + b"x" * 300_000 + b"\n1," + b'"' + b"y" * (2 << 20))
    (place / "b.csv").write_text("step,loss\n1,2,3\n,\nnan,inf\n" + ESCAPE)
    events = struct.pack("<Q", 1 << 60) + bytes(4)
    for number, record in enumerate((b"\xff" * 99, b"\x2a\xff\xff\xff\x7f", b"\x0a" * 99, b"\x2a\x02\x0a\x00" * 9999)):
        framed = struct.pack("<Q", len(record)) + bytes(4) + record + bytes(4)
        (place / f"events.out.tfevents.{number}").write_bytes(framed + events)
        head = bytes(4) + struct.pack("<H", min(len(record), 30_000)) + b"\1"
        (place / f"{number}.wandb").write_bytes(b":W&B\xe1\xbe\0" + head + record)
    files = place / ("0" * 32) / "metrics"
    files.mkdir(parents=True)
    (files / "a").write_bytes(b"1 1.0 1\n\xff 1e999 \xff\n1 nan 9\n1 2 " + b"9" * 5000 + b"\n" + os.urandom(1 << 16))
    (files / f"b{ESCAPE[:3]}").write_bytes(b"1 1 1" * (1 << 20))
    endless = bytes(4) + struct.pack("<H", 32_754) + b"\3" + bytes(32_754)
    (place / "endless.wandb").write_bytes(
        b":W&B\xe1\xbe\0" + (bytes(4) + b"\xf2\x7f\2" + bytes(32_754)) + endless * 2500
    )


def databases(place: Path) -> None:
    mine = place.parent / "mine"
    for number, sql in enumerate((
        "CREATE VIEW metrics AS SELECT 'r' run_name, 1 step, load_extension('x') metrics",
        f"ATTACH '{mine}/made.db' AS other; CREATE TABLE metrics (run_name, step, metrics, id)",
        "CREATE TABLE metrics (run_uuid, step, key, value, is_nan, timestamp);"
        " INSERT INTO metrics VALUES (x'ff', 'a', x'ff', '1', 0, 0), ('r', 1, 'k', 1e400, 0, 0), (NULL, 1, 2, 3, 0, 1)",
        "CREATE TABLE metrics (run_name, step, metrics, id);"
        " INSERT INTO metrics VALUES ('r', 1, '{\"a\": {\"b\": {\"c\": {\"d\": 1}}}}', 1), ('r', 1, '[', 2)",
    )):  # fmt: skip
        db = sqlite3.connect(place / f"{number}.db")
        db.executescript(sql)
        db.close()
        (mine / "made.db").unlink(missing_ok=True)
    damaged = bytearray((place / "3.db").read_bytes())
    damaged[1000:3000] = os.urandom(2000)
    (place / "damaged.db").write_bytes(damaged)
    (place / "link.db").symlink_to(mine)
    (place / "other.db-wal").symlink_to(mine / "secret")
    (place / "other.db").write_bytes((place / "3.db").read_bytes())


def deep(place: Path) -> None:
    within = "[" * 200_000 + "]" * 200_000
    (place / "deep.jsonl").write_bytes(lines(chat(answer()), f'{{"messages": {within}}}'))


def deep_enough(place: Path) -> None:
    within = '{"a":' * 900 + "1" + "}" * 900
    rows = [f'{{"messages": [{{"role": "assistant", "content": {within}}}], "metadata": {within}}}'] * 50
    (place / "deep.jsonl").write_bytes(lines(*rows))


def many_answers(place: Path) -> None:
    (place / "rows.jsonl").write_bytes(lines(chat(*[answer("")] * 15_000)))


def many_calls(place: Path) -> None:
    (place / "rows.jsonl").write_bytes(lines(chat(*[answer(tool_calls=[{"name": "f"}] * 500)] * 40)))


def many_keys(place: Path) -> None:
    (place / "rows.jsonl").write_bytes(lines(chat(answer(), **{f"k{n}": n for n in range(50_000)})))


def many_rows(place: Path) -> None:
    (place / "rows.jsonl").write_bytes(b'{"messages":[]}\n' * 200_000)


def no_end(place: Path) -> None:
    (place / "rows.jsonl").write_bytes(lines(chat(answer())) + b'{"messages": [' + b"{}," * (2 << 20))


def number_of_digits(place: Path) -> None:
    (place / "rows.jsonl").write_bytes(lines(chat(answer()), '{"messages": [], "step": ' + "9" * 10**6 + "}"))


def bytes_of_no_text(place: Path) -> None:
    (place / "rows.jsonl").write_bytes(lines(chat(answer())) + os.urandom(1 << 16))


def links(place: Path) -> None:
    mine = place.parent / "mine" / "secret"
    mine.write_bytes(lines(chat(answer("the readers own words"))))
    (place / "real.jsonl").write_bytes(lines(chat(answer())))
    (place / "link.jsonl").symlink_to(mine)
    (place / "folder").symlink_to(mine.parent)
    (place / "circle").symlink_to(place)
    os.mkfifo(place / "pipe.jsonl")


def hole(place: Path) -> None:
    with (place / "rows.jsonl").open("wb") as file:
        file.write(lines(chat(answer())))
        file.truncate(1 << 40)


def graph(place: Path) -> None:
    node = {"parent": None, "message": answer(), "sampled": True, "token_ids": [1, 2], "mask": [False, True]}
    honest = {"id": "t", "nodes": [node], "task": {}, "rewards": {"r": {"score": 1.0}}}
    rows = [{**one, "id": str(n)} for n, one in enumerate(strange(TRACE, honest))]
    rows += [{**honest, "id": f"n{n}", "nodes": [one, node]} for n, one in enumerate(strange(NODE, node))]
    circle = [{**node, "parent": (number + 1) % 5} for number in range(5)]
    (place / "traces.jsonl").write_bytes(lines(*({"task": {}, "traces": [row]} for row in rows),
                                               {"task": {}, "traces": [{**honest, "nodes": circle}]}))  # fmt: skip


def graph_of_one_root(place: Path) -> None:
    root = {"message": {"role": "user", "content": "q"}, "token_ids": list(range(100_000)), "mask": [False] * 100_000}
    turn = {"parent": 0, "message": answer(), "sampled": True, "token_ids": [1, 2], "mask": [False, True]}
    chain = [{**turn, "parent": number} for number in range(500)]
    rows = [
        {"task": {}, "traces": [{"id": str(n), "nodes": [root, *nodes]}]}
        for n, nodes in enumerate(([turn] * 500, chain))
    ]
    (place / "traces.jsonl").write_bytes(lines(*rows))


def atif(place: Path) -> None:
    step = {"step_id": 1, "source": "agent", "message": "a", "tool_calls": [{"function_name": "f", "arguments": {}}]}
    honest = {"schema_version": "ATIF-v1.7", "agent": {"name": "a"}, "steps": [step]}
    names = ("schema_version", "agent", "steps", "final_metrics", "extra", "subagent_trajectories", "session_id")
    rows = strange(names, honest)
    rows += [{**honest, "steps": [one]} for one in strange((*step, "metrics", "observation", "timestamp"), step)]
    nested = honest
    for _ in range(300):
        nested = {**honest, "subagent_trajectories": [nested]}
    (place / "rows.jsonl").write_bytes(lines(honest, *rows, nested))
    (place / "one.json").write_text(json.dumps(nested))


def trials(place: Path) -> None:
    """Runs of Terminal-Bench and trials of Harbor with names that lead elsewhere, links, and strange values."""
    mine = place.parent / "mine"
    (mine / "secret").write_text("the readers own words")
    ways = ("..", "../../mine", str(mine), "", ".", "a\0b", ESCAPE, "x" * 300, "t", "\ud800")
    honest = {"id": "i", "task_id": "t", "trial_name": "n", "instruction": "q", "is_resolved": True}
    results = [{**honest, "task_id": one, "trial_name": other} for one in ways for other in ways]
    run = place / "run"
    for number in range(30):
        folder = run / "t" / "n" / "agent-logs" / f"episode-{number}"
        folder.mkdir(parents=True)
        (folder / "prompt.txt").write_bytes(b"\xff{" * 99)
        keys = json.dumps({"commands": [{"keystrokes": STRANGE[number % 13]}, *STRANGE[4:12]]})
        (folder / "response.txt").write_text("{" * 9999 + keys if number % 2 else keys)
    (folder / "response.json").symlink_to(mine / "secret")
    (folder.parent / "episode-30").symlink_to(mine)
    (run / "results.json").write_bytes(
        lines({"id": "r", "results": [*results, *strange((*honest, "failure_mode"), honest)]})
    )
    whole = {"schema_version": "ATIF-v1.7", "agent": {}, "steps": [{"source": "agent", "message": ESCAPE}]}
    trial = {"id": "i", "trial_name": "n", "task_name": "t", "agent_info": {}, "verifier_result": {"rewards": {"r": 1}},
             "exception_info": {"exception_type": ESCAPE}, "started_at": "x"}  # fmt: skip
    for number, given in enumerate(strange((*trial,), trial)):
        folder = place / "job" / str(number) / "agent"
        folder.mkdir(parents=True)
        (folder.parent / "result.json").write_bytes(lines(given))
        (folder / "trajectory.json").write_bytes(lines(whole) if number % 3 else b"{" * 9999)
    (place / "job" / "linked").mkdir()
    (place / "job" / "linked" / "result.json").write_bytes(lines(trial))
    (place / "job" / "linked" / "agent").symlink_to(mine)


def settings(place: Path) -> None:
    """Settings of each logger, damaged, with strange names, or without end."""
    mine = place.parent / "mine"
    (mine / "secret").write_text("msgspec==1 the readers own words")
    items = (
        b"",
        b"\x0a\x01k\x82\x01\x04null",
        b"\x0a\x03\x1b]0\x82\x01\x05[[[[[",
        b"\x12\xff",
        b"\x0a\x01_\x82\x01\x01{",
    )
    for number, item in enumerate(items):
        config = b"\x0a" + bytes([len(item)]) + item
        record = b"\x2a" + bytes([len(config)]) + config + b"\xd2\x01\x04\x12\x02\xff\xff" + b"\x8a\x01\x02\x22\x00"
        head = bytes(4) + struct.pack("<H", len(record)) + b"\1"
        (place / f"{number}.wandb").write_bytes(b":W&B\xe1\xbe\0" + head + record)
    (place / "files").mkdir()
    (place / "files" / "requirements.txt").symlink_to(mine / "secret")
    files = place / ("0" * 32) / "params"
    files.mkdir(parents=True)
    (files / f"a{ESCAPE[:3]}").write_bytes(os.urandom(1 << 20))
    (files / "b").symlink_to(mine / "secret")
    for name, sql in (("a", "CREATE VIEW params AS SELECT 'r' run_uuid, load_extension('x') key, 1 value"),
                      ("b", "CREATE TABLE configs (run_name, config);"
                            " INSERT INTO configs VALUES ('r', '[[1'), (x'ff', 7)"),
                      ("c", "CREATE TABLE params (run_uuid, key, value AS (hex(zeroblob(1000000000))))")):  # fmt: skip
        db = sqlite3.connect(place / f"{name}.db")
        db.executescript(sql)
        db.close()


def spans(place: Path) -> None:
    pair = {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}
    span = {"spanId": "s", "parentSpanId": "p", "traceId": "t", "startTimeUnixNano": "1", "endTimeUnixNano": "2",
            "attributes": [pair], "events": [{"name": "gen_ai.evaluation.result", "attributes": [pair]}],
            "status": {"code": 2}, "name": "n"}  # fmt: skip
    words = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "mlflow.chat.tokenUsage",
             "gen_ai.response.finish_reasons", "gen_ai.usage.input_tokens", "gen_ai.response.model")  # fmt: skip
    short = [one for one in STRANGE if len(str(one)) < 10_000]
    values = [value for one in short for value in (one, json.dumps(one), {"arrayValue": {"values": one}})]
    told = [[pair, {"key": word, "value": {"stringValue": value}}] for word in words for value in values]
    told += [[pair, {"key": "x", "value": value}] for value in STRANGE]
    every = [*strange(tuple(span), span), *({**span, "attributes": one} for one in told), span]
    many = [{**one, "traceId": f"{number}"} for number, one in enumerate(every) if len(str(one)) < 10_000]
    circle = [{**span, "spanId": str(number), "parentSpanId": str((number + 1) % 5)} for number in range(5)]
    deep = [{**span, "spanId": str(n), "parentSpanId": str(n - 1), "traceId": "deep"} for n in range(11_000)]
    batches = [{"resourceSpans": [{"scopeSpans": [{"spans": part}]}]} for part in (every, many, circle, deep)]
    batches += [{"resourceSpans": value} for value in STRANGE]
    (place / "traces.jsonl").write_bytes(lines(*batches))


def exports(place: Path) -> None:
    """Traces of MLflow and Langfuse with a strange value in the place of each part."""
    attributes = {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": "[", "mlflow.spanOutputs": "{}"}
    span = {"span_id": "s", "attributes": attributes, "status": {}, "start_time_unix_nano": 1}
    trace = {"info": {"assessments": [{"assessment_name": "a", "feedback": {"value": 1}}]}, "data": {"spans": [span]}}
    rows = [*strange(tuple(trace), trace), *({**trace, "data": {"spans": [one]}} for one in strange(tuple(span), span))]
    rows += [{**trace, "info": {name: value}} for name in ("assessments", "trace_metadata") for value in STRANGE]
    (place / "mlflow.json").write_text(json.dumps({"traces": [*rows, *STRANGE]}))
    apart = [{**one, "data": {"spans": [{**span, "trace_id": str(n)}]}} for n, one in enumerate(rows)]
    (place / "apart.json").write_text(json.dumps({"traces": apart}))
    texts = [{"trace_id": "t", "trace": value} for value in (*STRANGE, "[" * 10**5, '{"trace": "{}"}')]
    (place / "records.jsonl").write_bytes(lines({"trace_id": "t", "trace": json.dumps(trace)}, *texts))
    seen = {"traceId": "t", "type": "GENERATION", "startTime": "2026-01-01T00:00:00Z", "id": "o", "input": "q",
            "output": "a", "usageDetails": {}, "level": "ERROR", "parentObservationId": "o"}  # fmt: skip
    (place / "observations.json").write_text(json.dumps([seen, *strange(tuple(seen), seen)]))
    whole = {"id": "t", "timestamp": "t", "observations": [seen], "scores": [{"name": "s", "value": 1}], "metadata": {}}
    (place / "whole.jsonl").write_bytes(lines(whole, *strange(tuple(whole), whole)))


def spans_of_many_lines(place: Path) -> None:
    row = line(traceId="t", type="GENERATION", startTime=1, id="o", input="x" * 1_000_000)
    (place / "observations.jsonl").write_bytes(f"{row}\n".encode() * 70)


def inspect(place: Path) -> None:
    honest = {"id": 1, "epoch": 1, "messages": [answer()], "output": {}, "scores": {"s": {"value": "C"}}}
    log = {"version": 2, "status": "success", "eval": {}, "plan": {}, "samples": strange(SAMPLE, honest)}
    (place / "log.json").write_text(json.dumps(log))


def inspect_archive(place: Path) -> None:
    honest = {"id": 1, "epoch": 1, "messages": [answer()], "output": {}, "scores": {"s": {"value": "C"}}}
    log = {"version": 2, "status": "success", "eval": {}, "plan": {}}
    with zipfile.ZipFile(place / "log.eval", "w") as archive:
        archive.writestr("header.json", json.dumps({**log, "eval": [ESCAPE], "samples": None}))
        archive.writestr("samples/../../out.json", json.dumps(honest))
        archive.writestr("samples/a.json", "[" * 100_000)


def archive_bomb(place: Path) -> None:
    for name, member in (("log.eval", "samples/1.json"), ("t.npz", "traj0_prompt_ids.npy")):
        with zipfile.ZipFile(place / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", "{}")
            archive.writestr("traj0_response_ids.npy", b"")
            archive.writestr(member, b"0" * (200 << 20))


def archive_that_lies(place: Path) -> None:
    """Its directory says that a member has a few bytes."""
    with zipfile.ZipFile(place / "log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b"0" * (200 << 20))
    data = (place / "log.eval").read_bytes().replace(struct.pack("<L", 200 << 20), struct.pack("<L", 99))
    (place / "log.eval").write_bytes(data)


def arrays(place: Path) -> None:
    numpy.savez(place / "pickled.npz", traj0_prompt_ids=numpy.array([Evil()], dtype=object), traj0_response_ids=[1])
    head = io.BytesIO()
    numpy.lib.format.write_array_header_1_0(head, {"descr": "<i4", "fortran_order": False, "shape": (10**11,)})
    below = place / "b"
    below.mkdir()
    with zipfile.ZipFile(below / "t.npz", "w") as archive:
        for name in ("prompt_ids", "response_ids"):
            archive.writestr(f"traj0_{name}.npy", head.getvalue() + b"\0" * 400)
    (below / "trajectory.json").write_text(json.dumps({"trajectories": list(STRANGE), "session_id": [ESCAPE]}))


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {os.environ.get('EVIL')}",)


class Asks:
    """PyTorch's own reader calls this."""

    def __reduce__(self) -> tuple[Any, ...]:
        return bytearray, (1_800_000_000,)


def pickles(place: Path) -> None:
    torch.save({"rollout_id": 1, "samples": [Asks()]}, place / "3.pt")
    os.environ["EVIL"] = str(place.parent / "mine" / "was_run")
    torch.save({"rollout_id": 1, "samples": [Evil()]}, place / "1.pt")
    (place / "2.pt").write_bytes(pickle.dumps({"rollout_id": 1, "samples": [Evil()]}))


def tensors(place: Path) -> None:
    torch.save(
        {"rollout_id": 1, "samples": [{"tokens": torch.zeros(1).expand(10**12), "response_length": 1}]}, place / "1.pt"
    )
    torch.save({"rollout_id": 1, "samples": [{"tokens": torch.zeros(20_000_000, 0)}]}, place / "2.pt")


def shared(place: Path) -> None:
    value: Any = ["x" * 100]
    for _ in range(40):
        value = [value] * 10
    torch.save({"rollout_id": 1, "samples": [{"metadata": value, "response": "r"}]}, place / "1.pt")


def samples(place: Path) -> None:
    honest = {
        "tokens": [1, 2, 3],
        "response_length": 2,
        "loss_mask": [1, 1],
        "prompt": "p",
        "response": "r",
        "reward": 1.0,
    }
    torch.save({"rollout_id": [ESCAPE], "samples": [*strange(SLIME, honest), *STRANGE]}, place / "1.pt")


def masks(place: Path) -> None:
    count = 60_000
    sample = {"tokens": [7] * count, "response_length": count, "loss_mask": [1, 0, 0, 0, 0] * (count // 5)}
    torch.save({"rollout_id": 1, "samples": [sample]}, place / "1.pt")


def packed_pickle(place: Path) -> None:
    torch.save({"rollout_id": 1, "samples": []}, place / "honest")
    with (
        zipfile.ZipFile(place / "honest") as archive,
        zipfile.ZipFile(place / "1.pt", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        bomb.writestr("rollout_id samples", b"", zipfile.ZIP_STORED)
        for member in archive.namelist():
            bomb.writestr(member, archive.read(member) + (b"\0" * (200 << 20) if member.endswith("data.pkl") else b""))
    (place / "honest").unlink()


def parquet_bomb(place: Path) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 200_000, pa.int32()), pa.array(["x" * 1_000_000]))
    table = pa.table({"step": pa.array([1] * 200_000), "prompt": values, "completion": values})
    pq.write_table(table, place / "c.parquet", compression="zstd")


def _completions(place: Path, **columns: Any) -> None:
    given = {"step": [1], "prompt": ["q"], "completion": ["a"], **columns}
    pq.write_table(pa.table(given), place / "c.parquet", compression="zstd", row_group_size=1 << 30)


def parquet_of_one_text_in_many_places(place: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["x" * 1_000_000]))
    _completions(place, notes=pa.LargeListArray.from_arrays(pa.array([0, 4000], pa.int64()), texts))


def parquet_of_a_long_text_in_all_columns(place: Path) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 16, pa.int32()), pa.array(["x" * 20_000_000]))
    names = ("prompt", "completion", *(f"c{number}" for number in range(10)))
    _completions(place, step=[1] * 16, **dict.fromkeys(names, text))


def parquet_of_nothing_without_end(place: Path) -> None:
    count = 100_000_000
    _completions(place, **{name: pa.nulls(count, pa.string()) for name in ("step", "prompt", "completion")})


def parquet_of_many_parts(place: Path) -> None:
    parts = pa.StructArray.from_arrays([pa.nulls(9_000_000, pa.string())] * 2, ["role", "content"])
    _completions(place, messages=pa.ListArray.from_arrays([0, 9_000_000], parts))


def _of_lists(place: Path, lengths: list[int], numbers: Any) -> None:
    """Rows whose token lists have ``lengths``, of the first of ``numbers``."""
    ends = numpy.cumsum([0, *lengths])
    _completions(place, step=[1] * len(lengths), prompt=["q"] * len(lengths), completion=["a"] * len(lengths),
                 ids=pa.LargeListArray.from_arrays(ends, pa.array(numbers[: ends[-1]])))  # fmt: skip


def parquet_of_a_row_of_nothing_among_many(place: Path) -> None:
    _of_lists(place, [0] * 2_000 + [16_000_000] + [0] * 2_000, numpy.zeros(16_000_000))


def parquet_of_lists_of_nothing(place: Path) -> None:
    _of_lists(place, [6_000] * 10_000, numpy.zeros(60_000_000))


def parquet_of_one_row(place: Path) -> None:
    _of_lists(place, [16_000_000], numpy.zeros(16_000_000))


def parquet_of_one_text(place: Path) -> None:
    _completions(place, notes=pa.array(["x" * 600_000_000]).dictionary_encode())


def json_of_many_parts(place: Path) -> None:
    (place / "rows.jsonl").write_bytes(lines(chat(answer())) + b'{"messages": [' + b'{"":{}},' * (7 << 20) + b"0]}\n")


def parquet_of_strange_columns(place: Path) -> None:
    table = pa.table({
        "step": [[1], None], "prompt": [{"a": ESCAPE}, None],
        "completion": [[{"role": "assistant", "content": ESCAPE}], None],
        "advantage": [ESCAPE, None], "when": pa.array([0, 1], pa.timestamp("ns")), "bytes": [b"\xff", None],
        "decimal": pa.array([1, 2], pa.decimal128(38, 3)),
    })  # fmt: skip
    pq.write_table(table, place / "c.parquet")


def parquet_that_is_none(place: Path) -> None:
    (place / "c.parquet").write_bytes(b"PAR1" + os.urandom(1 << 12) + b"PAR1")
    with zipfile.ZipFile(place / "1.pt", "w") as archive:
        archive.writestr("rollout_id samples", os.urandom(1 << 10))
    (place / "x.eval").write_bytes(b"PK\x03\x04" + os.urandom(1 << 10))


PLACES: tuple[Callable[[Path], None], ...] = (
    verl, messages, shapes, text_of_lists, metrics, databases, deep, deep_enough, many_answers, many_calls,
    many_keys, many_rows, no_end, number_of_digits, bytes_of_no_text, links, hole, graph, graph_of_one_root, atif,
    trials, settings,
    spans, exports, spans_of_many_lines, inspect, inspect_archive, archive_bomb, archive_that_lies, arrays, pickles,
    tensors, shared, samples, masks, packed_pickle, parquet_bomb, parquet_of_one_text_in_many_places,
    parquet_of_nothing_without_end, parquet_of_a_long_text_in_all_columns, parquet_of_many_parts,
    parquet_of_a_row_of_nothing_among_many, parquet_of_lists_of_nothing,
    json_of_many_parts, parquet_of_strange_columns, parquet_that_is_none,
)  # fmt: skip


FIRST = (
    verl, messages, metrics, databases, deep, many_keys, no_end, links, hole, graph, trials, spans, inspect,
    archive_bomb, pickles, tensors, parquet_bomb, parquet_that_is_none,
)  # fmt: skip


@pytest.mark.parametrize(("make", "part"), reading.parts(PLACES, FIRST))
def test_reading_does_nothing_else(make: Callable[[Path], None], part: tuple[int, bool], tmp_path: Path) -> None:
    theirs, mine, here = (tmp_path / name for name in ("theirs", "mine", "here"))
    for folder in (theirs, mine, here):
        folder.mkdir()
    make(theirs)
    was = [reading.files_of(folder) for folder in (theirs, mine)]
    every = [words for words in reading.commands(theirs, ships=False) if words[0] in NAMES]
    answers = reading.run(reading.part_of(every, part), here, mine)
    assert answers and not reading.faults(answers)
    assert was == [reading.files_of(folder) for folder in (theirs, mine)]
    told = [one["err"].strip().splitlines() for one in answers if one["words"][0] in ("ls", "open")]
    assert all(len(lines) <= 1 or a_sentence_a_file(lines, theirs) for lines in told), told
    assert not any("this is a bug" in text for lines in told for text in lines), told


def test_kilobytes_take_no_gigabytes(tmp_path: Path) -> None:
    """Where there are some to take: with less the libraries report that there is too little."""
    theirs, mine, here = (tmp_path / name for name in ("theirs", "mine", "here"))
    for folder in (theirs, mine, here):
        folder.mkdir()
    parquet_of_a_long_text_in_all_columns(theirs)
    assert sum(path.stat().st_size for path in theirs.iterdir()) < 100_000
    (listed,) = reading.run([["ls", str(theirs)]], here, mine, memory=16 << 30)
    assert not reading.faults([listed]) and listed["peak"] < 1 << 30, listed


@pytest.mark.parametrize(
    "make", some([parquet_of_a_row_of_nothing_among_many, parquet_of_lists_of_nothing, None], None)
)
def test_padded_lists_take_no_gigabytes(make: Callable[[Path], None] | None, tmp_path: Path) -> None:
    """Honest rows of tokens, padded to a length, are read: 25 million numbers in 2 MB."""
    theirs, mine, here = (tmp_path / name for name in ("theirs", "mine", "here"))
    for folder in (theirs, mine, here):
        folder.mkdir()
    if make is not None:
        make(theirs)
    else:
        padded = numpy.full((768, 32_768), 151_643)
        padded[:, :2_000] = numpy.minimum(numpy.random.default_rng(0).zipf(1.3, (768, 2_000)), 150_000)
        _of_lists(theirs, [32_768] * 768, padded.ravel())
    (listed,) = reading.run([["ls", str(theirs), "--all", "--json"]], here, mine, memory=16 << 30)
    assert not reading.faults([listed]) and listed["peak"] < 1 << 30, (listed["peak"], listed["err"])
    read, said = listed["out"].count('"trace_id"'), listed["err"]
    assert read == 768 if make is None else not read and "far more than the file has" in said, (read, said)


@pytest.mark.parametrize("make", [parquet_of_one_row, parquet_of_one_text])
def test_a_row_that_expands_is_not_fetched(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata of the columns tells the size."""
    make(tmp_path)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)
    assert (tmp_path / "c.parquet").stat().st_size < 100_000
    with pytest.raises(QueryError, match=r"would take [\d,]+ MB, far more than the file has"):
        next(parquet_rows(Opened(tmp_path, "c.parquet"), 0))


def a_sentence_a_file(lines: list[str], theirs: Path) -> bool:
    """Progress, and one sentence, or one about each file that cannot be read."""
    said = [text for text in lines if text.startswith("autotrace: ")]
    return len(said) <= 1 or (len({*said}) == len(said) <= sum(path.is_file() for path in theirs.rglob("*")))


def test_what_stands_beside_a_link_is_read(tmp_path: Path) -> None:
    theirs, here = tmp_path / "theirs", tmp_path / "here"
    for folder in (theirs, here, tmp_path / "mine"):
        folder.mkdir()
    links(theirs)
    (listed,) = reading.run([["ls", str(theirs), "--json"]], here, tmp_path / "mine")
    assert listed["out"].count('"trace_id"') == 1
