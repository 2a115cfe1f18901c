"""Places that somebody made who means harm. ``PLACES``: name -> what makes one; each takes an empty folder and the
reader's own, and returns the place."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
import zipfile
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from autotrace.config.plan import PLAN_VERSION
from autotrace.run import layout
from autotrace.run.status import Status
from autotrace.ship.store.state import State
from autotrace.spool.records import (
    Bind,
    Close,
    Counters,
    Define,
    Fact,
    Header,
    NewTokens,
    Open,
    Report,
    StepFacts,
    TokenFacts,
)
from autotrace.spool.segment import frame
from tests.ship.spools import ROLES, Process, attributes, new_run, trajectory

ONE, TWO = b"\xab" * 16, b"\xcd" * 16
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt\u200b\u2060\u2028new\nline\xad\ufeff\U000e0041"
HOLE = 1 << 40
"""Bytes of a file that has none on the disk."""
SLOW = "(a|a)*(a|a)*b|(x+x+)+y"
"""A pattern that takes for ever."""
PLACES: dict[str, Callable[[Path, Path], Path]] = {}


def place(make: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
    PLACES[make.__name__] = make
    return make


def honest(folder: Path, **given: Any) -> tuple[Path, Process]:
    """A run with two trajectories of a group, and the process that may write more."""
    run = new_run(folder, **given)
    process = Process(run)
    for rollout, trace in enumerate((ONE, TWO)):
        trajectory(process, step=1, rollout=rollout, uid="u", reward=0.5 + rollout, trace=trace)
    return run, process


def ended(run: Path, process: Process) -> Path:
    process.exit()
    return run


def calls(
    process: Process, trace: bytes, count: int, tokens: Callable[[int], NewTokens | None], role: str = "llm"
) -> None:
    """A trajectory with ``count`` calls, of which ``tokens`` says what they read."""
    number = list(ROLES).index(role)
    records: list[Any] = []
    root = 1 + int.from_bytes(trace[:4], "big")
    at = process.tick()
    records.append(Open(root, trace, 0, 0, at, attributes=attributes(uid="v")))
    for call in range(count):
        records.append(Open(root + 1 + call, trace, root, number, at + call, prompt=tokens(call)))
        records.append(Close(root + 1 + call, trace, at + call + 1, "OK"))
    records.append(Close(root, trace, at + count + 1, "OK"))
    for begin in range(0, len(records), 1000):
        process.write(*records[begin : begin + 1000])
    process.at = at + count + 1


# -- tokens and spans --------------------------------------------------------------------------------------------------


def _expanding(folder: Path, tokens: Callable[[int], NewTokens], count: int = 3000) -> Path:
    run = new_run(folder)
    with_tokenizer(run)
    process = Process(run)
    process.bind("tokenizer", path="theirs/model", blob="theirs")
    for trace in (ONE, TWO):
        calls(process, trace, count, tokens)
    return ended(run, process)


LONG = array("i", [7] * 500_000).tobytes()


@place
def tokens_that_keep_all_but_one(folder: Path, mine: Path) -> Path:
    def tokens(call: int) -> NewTokens:
        if not call:
            return NewTokens(-1, 0, LONG, 500_000, sequence=0)
        return NewTokens(call - 1, 499_999, array("i", [call]).tobytes(), 500_000, sequence=call)

    return _expanding(folder, tokens)


@place
def tokens_that_repeat_the_first(folder: Path, mine: Path) -> Path:
    def tokens(call: int) -> NewTokens:
        return (
            NewTokens(0, 500_000, b"", 500_000, sequence=call) if call else NewTokens(-1, 0, LONG, 500_000, sequence=0)
        )

    return _expanding(folder, tokens)


@place
def tokens_that_go_on_from_the_first(folder: Path, mine: Path) -> Path:
    def tokens(call: int) -> NewTokens:
        if not call:
            return NewTokens(-1, 0, LONG, 500_000, sequence=0)
        return NewTokens(0, 500_000, array("i", [call]).tobytes(), 500_001, sequence=call)

    return _expanding(folder, tokens)


@place
def tokens_that_go_on_and_on(folder: Path, mine: Path) -> Path:
    """As honest turns do, but each of one token."""

    def tokens(call: int) -> NewTokens:
        if not call:
            return NewTokens(-1, 0, LONG, 500_000, sequence=0)
        return NewTokens(call - 1, 499_999 + call, array("i", [call]).tobytes(), 500_000 + call, sequence=call)

    return _expanding(folder, tokens)


@place
def calls_within_calls(folder: Path, mine: Path) -> Path:
    run = new_run(folder)
    process = Process(run)
    for trace in (ONE, TWO):
        process.write(
            *(Open(n + 1, trace, n, n % 5, process.tick(), attributes=attributes(uid="w")) for n in range(4_000)),
            *(Close(n + 1, trace, process.tick(), "OK") for n in range(4_000)),
        )
    return ended(run, process)


@place
def calls_in_circles(folder: Path, mine: Path) -> Path:
    run = new_run(folder)
    process = Process(run)
    for trace in (ONE, TWO):
        for span, parent in ((1, 3), (2, 1), (3, 2), (4, 4), (5, 5)):
            process.write(Open(span, trace, parent, span % 6, process.tick(), attributes=attributes()))
        process.write(*(Close(span, trace, process.tick(), "OK") for span in range(1, 6)))
    return ended(run, process)


@place
def absurd_numbers(folder: Path, mine: Path) -> Path:
    run, process = honest(folder)
    huge, top = "9" * 5000, (1 << 64) - 1
    trajectory(process, trace=b"\xab\x02" + ONE[2:], step=top, uid=huge, rollout=-(1 << 63))
    trajectory(process, trace=b"\xab\x03" + ONE[2:], step=huge, uid=1e308, rollout=float("nan"))
    for trace in (ONE, TWO):
        for name, value in (
            ("reward", float("inf")), ("reward", top), ("advantage", {"score": huge}), ("trained_in_step", top),
            ("reward", {"score": 1e308, "a": [float("nan")]}), ("token_facts", {"entropy": huge}), (huge, huge),
        ):  # fmt: skip
            process.fact(name, value, trace)
    for step in (-1, 0, 1 << 48):
        process.write(StepFacts(step, "metrics", {"x": float("inf"), EVIL: -0.0, huge: 1e308}, process.tick()))
    process.write(StepFacts(1, "a:b:c/../..", {"": 1.0}, process.tick()))
    process.write(Counters({"k": 1 << 48}, {"drop:tokens": 1 << 48, EVIL: 1}, {}, process.tick(), {EVIL: (1, 1)}))
    process.token_facts({"summary": b"\xff" * 64, "old_log_probs": b"\xff" * 4001}, {"uid": "u", "session_id": 0})
    return ended(run, process)


@place
def absurd_clocks(folder: Path, mine: Path) -> Path:
    run, process = honest(folder)
    process.exit()
    for number, (wall, mono, at) in enumerate((
        (1 << 62, 0, 1 << 60), (0, 1 << 60, 0), (1 << 62, 1 << 60, 1 << 60), (0, 0, 0),
    )):  # fmt: skip
        other = Process(run, f"evil-{number + 2}-bb", boot=f"b{number}")
        other.write(Header(1, run.name, "evil", 1, f"c{number}", "x", "", wall, mono, 0))
        path, trace = other.path, bytes([0xAB, 0x10 + number]) + ONE[2:]
        other.die()
        data = path.read_bytes()[:8] + b"".join(
            frame(msgspec.msgpack.encode(record))
            for record in (
                Header(1, run.name, "evil", number + 2, f"c{number}", "x", "", wall, mono, 0),
                Define(0, "key", "name", "trajectory"),
                Open(1, trace, 0, 0, at, attributes=attributes(uid="z")),
                Close(1, trace, 0, "OK"),
            )
        )
        path.write_bytes(data)
    return run


@place
def texts_that_are_obeyed(folder: Path, mine: Path) -> Path:
    run, process = honest(
        folder, name=f"run{EVIL[:9].replace('/', '')}", command=[EVIL, EVIL], host=EVIL, created=EVIL, project=EVIL,
        experiment=EVIL, version=EVIL, run_id="run", origins={"project": EVIL, "tracking_uri": EVIL}, tracking_uri=EVIL,
    )  # fmt: skip
    number = 20
    process.write(Define(number, EVIL, EVIL, "llm", EVIL), Report(EVIL, EVIL, EVIL, EVIL), Report(EVIL, EVIL, "bound"))
    for trace in (ONE, TWO):
        root = 7 + trace[0]
        process.write(
            Open(root, trace, 0, number, process.tick(), {EVIL: EVIL}, {EVIL: EVIL, "step": EVIL, "uid": EVIL}),
            Close(root, trace, process.tick(), EVIL, {EVIL: EVIL}, {EVIL: EVIL}, (EVIL, EVIL, EVIL)),
        )
        process.fact(EVIL, EVIL, trace)
        process.fact("reward", EVIL, trace)
    other = b"\xab\x01" + ONE[2:]
    process.write(
        Open(
            99,
            other,
            0,
            0,
            process.tick(),
            {EVIL: EVIL},
            {**attributes(), EVIL: EVIL, "uid": EVIL, "data_source": EVIL},
        ),
        Open(98, other, 99, number, process.tick(), {"messages": [{"role": EVIL, "content": EVIL}]}),
        Close(98, other, process.tick(), "ERROR", {"choices": EVIL}, None, (EVIL, EVIL, EVIL)),
        Close(99, other, process.tick(), EVIL, EVIL, {EVIL: EVIL}, (EVIL, EVIL, EVIL)),
        Bind(
            "config",
            {"project_name": EVIL, "experiment_name": EVIL, "logger": EVIL, "rollout_mode": EVIL},
            process.tick(),
        ),
        Bind("verl_trace", {"backend": EVIL, "token2text": EVIL, "key": EVIL}, process.tick()),
        Bind("dataset", {"columns": EVIL}, process.tick()),
        StepFacts(1, EVIL, {EVIL: 1.0}, process.tick()),
    )
    return ended(run, process)


@place
def a_status_that_is_obeyed(folder: Path, mine: Path) -> Path:
    run, process = honest(folder)
    ended(run, process)
    status = msgspec.to_builtins(Status(EVIL, EVIL, host=EVIL, notes=[EVIL], error=EVIL, drops={f"drop:{EVIL}": 1}))
    status["backends"] = {EVIL: {"name": EVIL, "state": EVIL, "error": EVIL, "place": EVIL, "open_with": EVIL,
                                 "behind": EVIL, "rejected_count": 1, "rejected": {EVIL: EVIL},
                                 "sent_bytes": 1}}  # fmt: skip
    status["targets"] = [{"key": EVIL, "states": {EVIL: 1}, "reasons": [EVIL], "places": [EVIL], "outside": [EVIL]}]
    status["absent"] = {EVIL: 1}
    (run / layout.STATUS_JSON).write_text(json.dumps(status))
    return run


@place
def binds_of_any_type(folder: Path, mine: Path) -> Path:
    run, process = honest(folder)
    for value in (7, EVIL, [1], {"a": {"b": None}}, None, True, 1e308, "x" * 100_000):
        for name in ("config", "mlflow", "wandb", "tokenizer", "verl_trace", "dataset", EVIL):
            keys = ("path", "blob", "revision", "project_name", "logger", "columns", "backend", "run_id",
                    "tracking_uri",
                    "max_samples_per_step_per_worker", "token2text", "nnodes", "key", "entity", "project")  # fmt: skip
            process.write(Bind(name, dict.fromkeys(keys, value), process.tick()))
    return ended(run, process)


@place
def records_of_any_type(folder: Path, mine: Path) -> Path:
    run, process = honest(folder)
    values: list[Any] = [0, -1, "x", b"\xff", [[]], {"a": 1}, None, True, 1e308, 1 << 63, ["x"] * 9]
    for tag, width in (
        ("O", 9),
        ("C", 14),
        ("F", 5),
        ("K", 3),
        ("M", 4),
        ("B", 3),
        ("R", 4),
        ("N", 5),
        ("D", 5),
        ("H", 10),
    ):
        for number, value in enumerate(values):
            whole = [tag, *(values[(number + at) % len(values)] for at in range(width))]
            process.raw(frame(msgspec.msgpack.encode(whole)) + frame(msgspec.msgpack.encode([tag, value])))
    deep = b"\x91" * 200_000 + b"\xc0"
    for prefix in (b"", b"\x97\xa1O\x01\xc4\x10" + ONE):
        process.raw(frame(prefix + deep))
    nested: Any = 1
    for _ in range(400):
        nested = {"messages": [nested]}
    process.write(Open(77, ONE, 1, 2, process.tick(), inputs=nested), Close(77, ONE, process.tick(), "OK", nested))
    for odd in ({"messages": 7}, {"messages": [7, None, {"role": 7, "content": [{"type": 7}]}]}, [1], "x",
                {"tool_calls": 7},
                {"choices": [{"message": {"tool_calls": [{"function": {"arguments": "[" * 100_000}}]}}]}):  # fmt: skip
        process.write(Open(int.from_bytes(os.urandom(4), "big"), ONE, 1, 2, process.tick(), inputs=odd))
    mask = Close(500, ONE, process.tick(), "OK", logprobs=b"\xff" * 7, mask=b"\x07" * 1000)
    process.write(Open(500, ONE, 1, 2, process.tick()), mask, Fact(b"x", {"uid": [1]}, "", None, process.tick()))
    process.write(TokenFacts({"uid": {}}, {"summary": b"", "entropy": b"\x00"}, process.tick()))
    return ended(run, process)


@place
def a_file_full_of_holes(folder: Path, mine: Path) -> Path:
    run, process = honest(folder)
    ended(run, process)
    data = process.path.read_bytes()
    path = process.path.with_name("node-2-aa-0.seg")
    path.write_bytes(data[: len(data) // 2])
    with path.open("ab") as file:
        file.truncate(HOLE)
    return run


@place
def a_frame_of_no_end(folder: Path, mine: Path) -> Path:
    run, process = honest(folder)
    process.raw(b"\xff\xff\xff\xff\x00\x00\x00\x00")
    os.truncate(process.path, HOLE)
    return run


@place
def labels_obeyed(folder: Path, mine: Path) -> Path:
    """What people are said to have called trajectories."""
    run, process = honest(folder)
    given: list[Any] = [
        {"trace_id": ONE.hex(), "label": EVIL, "why": f"'); COPY (SELECT 1) TO '{mine}/written'; --", "at_ns": 1},
        {"trace_id": TWO.hex(), "label": "x" * 1_000_000, "why": None, "at_ns": -1},
        {"trace_id": ONE.hex(), "label": ["x"], "why": {}, "at_ns": 1}, {"trace_id": EVIL}, [[[]]], "x", None, 1e999,
    ]  # fmt: skip
    lines = [json.dumps(one) for one in given] + ["[" * 100_000, "\ud800", "\0", "{"]
    (run / layout.LABELS).write_bytes("\n".join(lines).encode(errors="surrogatepass"))
    return ended(run, process)


# -- files that are none -----------------------------------------------------------------------------------------------

FILES = {
    "run": ("run.json",),
    "spool": ("spool",),
    "blobs": ("blobs", "status.json", "state.db", "spool/node-9-aa-0.seg", "export"),
    "state": ("state.db-wal", "state.db-shm", "state.db-journal", "blobs/theirs", "plan.json"),
    "rest": ("plan.json", "status.json", "state.db", "shipper.lock", "spool/node-9-aa-0.seg", "drain",
             "blobs/theirs/tokenizer.json", "listen", "collector.json", "trajectories.jsonl", "trajectories.lock",
             "parquet.lock", "shipper.log", "labels.jsonl"),
}  # fmt: skip
"""Files of a run folder in whose place something else stands, some at a time: others are not read where one is."""


def _instead(kind: str, names: tuple[str, ...]) -> Callable[[Path, Path], Path]:
    def make(folder: Path, mine: Path) -> Path:
        run, process = honest(folder)
        with_tokenizer(run)
        process.bind("tokenizer", path="theirs/model", blob="theirs")
        ended(run, process)
        State.of_run(run).close()
        for name in names:
            _replaced(run / name, mine / name.replace("/", "-"), kind)
        return run

    return make


def _replaced(path: Path, target: Path, kind: str) -> None:
    if path.is_dir():
        shutil.copytree(path, target)
        shutil.rmtree(path)
    elif path.exists():
        shutil.copy(path, target)
        path.unlink()
    else:
        target.write_text("{}")
    if kind == "link":
        path.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(HOLE)


for _kind in ("link", "pipe", "folder", "hole"):
    for _some, _names in FILES.items():
        PLACES[f"{_kind}_{_some}"] = _instead(_kind, _names)


@place
def a_device_as_a_segment(folder: Path, mine: Path) -> Path:
    run, process = honest(folder)
    (run / "spool" / "node-3-aa-0.seg").symlink_to("/dev/zero")
    return ended(run, process)


@place
def a_run_that_is_a_link(folder: Path, mine: Path) -> Path:
    (folder / "run").symlink_to(ended(*honest(mine)))
    return folder


# -- what is written beside the records --------------------------------------------------------------------------------


def _run_json(name: str, **given: Any) -> None:
    def make(folder: Path, mine: Path) -> Path:
        run, process = honest(folder)
        path = run / layout.RUN_JSON
        path.write_text(json.dumps({**json.loads(path.read_text()), **given}))
        return ended(run, process)

    make.__name__ = name
    place(make)


_run_json("run_keep", keep=[f"random={EVIL}", EVIL, "random=1e999"])
_run_json("run_types", keep=7, command="x", backends={}, run_id=[])
_run_json("run_numbers", drain_timeout=1e308, main_pid=1 << 62, step_budget=-(1 << 62))
_run_json("run_backends", backends=[EVIL, "nonsense", "../x"], origins={"backends": EVIL})
_run_json("run_tokenizers", tokenizer="/etc", tokenizers={"/etc": "../../../../etc", "x": EVIL})


@place
def a_run_json_of_lists(folder: Path, mine: Path) -> Path:
    run, process = honest(folder)
    (run / layout.RUN_JSON).write_text("[" * 1_000_000)
    return ended(run, process)


def _plan(name: str, settings: dict[str, Any], **target: Any) -> None:
    def make(folder: Path, mine: Path) -> Path:
        run, process = honest(folder)
        with_tokenizer(run)
        process.bind("tokenizer", path="theirs/model", blob="theirs")
        calls(process, b"\xab\x05" + ONE[2:], 20, lambda n: NewTokens(-1, 0, LONG[:40_000], 10_000, sequence=n))
        targets = [{"key": "key.llm", "locations": [], "role": "llm", **target}]
        plan = {"version": PLAN_VERSION, "targets": targets, "settings": settings, "digest": "x"}
        (run / layout.PLAN_JSON).write_text(json.dumps(plan))
        return ended(run, process)

    make.__name__ = name
    place(make)


_plan("plan_patterns", {"redact_patterns": [SLOW, "(", "(a?){9999}a{9999}"], "redact_keys": ["*a" * 500]})
_plan("plan_types", {"redact_patterns": [7], "redact_keys": [[1]], "content": 7, "sampling": [], "max_string": "x"})
_plan("plan_hook", {"redact_hook": "os:abort", "max_string": -5})
_plan("plan_versions", {}, versions="verl" + ">=0.5," * 30_000 + ">=1")
_plan("plan_tokenizer", {}, tokenizer="/etc")


@place
def a_plan_of_lists(folder: Path, mine: Path) -> Path:
    run, process = honest(folder)
    (run / layout.PLAN_JSON).write_text('{"version": 1, "targets": ' + "[" * 500_000)
    return ended(run, process)


# -- the state ---------------------------------------------------------------------------------------------------------


def _state(name: str, *statements: str) -> None:
    def make(folder: Path, mine: Path) -> Path:
        run, process = honest(folder)
        ended(run, process)
        from autotrace.ship.live import Live  # a state as a shipper leaves it

        reader = Live.open(run)
        with sqlite3.connect(run / layout.STATE_DB) as db:
            reader._state.db.backup(db)
            for statement in statements:
                db.execute(statement.replace("MINE", str(mine)))
        db.close()
        reader.close()
        return run

    make.__name__ = name
    place(make)


_FOR_EVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
_COPY = "ALTER TABLE {0} RENAME TO real_{0}"
for _table, _columns in (("traces", "*"), ("meta", "*"), ("segments", "*"), ("deliveries", "*"), ("binds", "*")):
    _state(
        f"state_view_{_table}", _COPY.format(_table),
        f"CREATE VIEW {_table} AS SELECT real_{_table}.* FROM real_{_table}, ({_FOR_EVER} i FROM n)",
    )  # fmt: skip
_state(
    "state_trigger",
    "CREATE TRIGGER t AFTER INSERT ON meta BEGIN "
    f"INSERT INTO meta SELECT hex(randomblob(9)), i FROM ({_FOR_EVER} i FROM n); END",
)
_state(
    "state_generated",
    "DROP TABLE meta",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, v TEXT, value TEXT AS (hex(zeroblob(400000000))))",
    "INSERT INTO meta (key, v) VALUES ('anchor:bbbbbbbb', '1')",
)
_state("state_anchor", "UPDATE meta SET value = 'x' WHERE key LIKE 'anchor%'")
_state("state_anchor_huge", f"UPDATE meta SET value = '{'9' * 5000}' WHERE key LIKE 'anchor%'")
_state("state_steps", "INSERT INTO meta VALUES ('step:x:y', '{}')", "INSERT INTO meta VALUES ('step:1:m', '[')")
_state(
    "state_rows",
    "UPDATE traces SET facts = '[', attributes = x'ff', times = '7', profile = '{', step = 'x', turns = 'y'",
    "UPDATE traces SET start_ns = 'z', reward = 'w'",
)
_state(
    "state_rows_null",
    "UPDATE traces SET facts = NULL, attributes = NULL, times = NULL, spans = NULL",
    "UPDATE traces SET turns = NULL, name = NULL, role = NULL, status = NULL",
)
_state("state_json", f"UPDATE traces SET profile = '{'[' * 100_000}', facts = '{'[' * 100_000}'")
_state("state_blobs", "UPDATE places SET offsets = x'ffffffffffffff7f'", "UPDATE segments SET header = x'ff'")
_state("state_names", "UPDATE segments SET name = '../../mine/secret'", "UPDATE segments SET offset = -5")
_state(
    "state_values",
    "UPDATE facts SET value = x'ff'",
    "INSERT INTO binds VALUES (99, 'config', x'ff')",
    "UPDATE processes SET counters = x'ff', skipped = '['",
)
_state(
    "state_pages",
    "INSERT INTO deliveries SELECT 'jsonl', trace_id, 1, 1, 'http://x/' || char(27) || ']8;;x', char(27) FROM traces",
)
_state("state_padding", "INSERT INTO meta VALUES ('x', hex(zeroblob(10000000)))")
_state(
    "state_place_mine",
    "INSERT OR REPLACE INTO meta VALUES ('backend:parquet:place', 'MINE')",
    "INSERT OR REPLACE INTO meta VALUES ('backend:parquet:project', 'p')",
)
for _number, _place in enumerate(
    (
        "http://127.0.0.1:9/x",
        "s3://bucket/x",
        "simplecache::http://127.0.0.1:9/x",
        "file:///etc",
        "github://a:b@/",
        "../..",
    )
):
    _state(
        f"state_place_{_number}",
        f"INSERT OR REPLACE INTO meta VALUES ('backend:parquet:place', '{_place}')",
        "INSERT OR REPLACE INTO meta VALUES ('backend:parquet:project', 'p')",
    )


@place
def state_of_shared_pages(folder: Path, mine: Path) -> Path:
    """A tree of 100**6 rows: each of its pages names one other a hundred times."""
    run = PLACES["state_padding"](folder, mine)
    path = run / layout.STATE_DB
    with sqlite3.connect(path) as db:
        size = db.execute("PRAGMA page_size").fetchone()[0]
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'segments'").fetchone()[0]
    db.close()
    whole = bytearray(path.read_bytes())
    at = (root - 1) * size
    page = bytes(whole[at : at + size])
    for _ in range(6):
        whole += page
        child, begin = len(whole) // size, size - 500
        head = struct.pack(">BHHHBI100H", 5, 0, 100, begin, 0, child, *range(begin, size, 5))
        page = head.ljust(begin, b"\0") + struct.pack(">IB", child, 1) * 100
    whole[at : at + size] = page
    whole[28:32] = struct.pack(">I", len(whole) // size)
    path.write_bytes(whole)
    return run


# -- tokenizers --------------------------------------------------------------------------------------------------------


def with_tokenizer(run: Path, **changed: Any) -> Path:
    """A tokenizer of 1,000 words in the run folder."""
    copy = run / layout.BLOBS / "theirs"
    copy.mkdir(parents=True, exist_ok=True)
    vocabulary = {f"a{number}": number for number in range(1000)}
    whole: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": None, "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": False,
        "trim_offsets": True, "use_regex": True},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "a0"}, **changed,
    }  # fmt: skip
    (copy / "tokenizer.json").write_text(json.dumps(whole))
    (copy / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return copy


def _tokenizer(name: str, files: dict[str, str] | None = None, **changed: Any) -> None:
    def make(folder: Path, mine: Path) -> Path:
        run = new_run(folder)
        copy = with_tokenizer(run, **changed)
        for file, content in (files or {}).items():
            (copy / file).unlink(missing_ok=True)
            (copy / file).write_text(content.replace("MINE", str(mine)))
        process = Process(run)
        process.bind("tokenizer", path="theirs/model", blob="theirs")
        for trace in (ONE, TWO):
            calls(process, trace, 5, lambda n: NewTokens(-1, 0, LONG[:80_000], 20_000, sequence=n))
        return ended(run, process)

    make.__name__ = name
    place(make)


_LONGEST = {
    "type": "WordLevel",
    "vocab": {f"a{number}": number for number in range(7)} | {"x" * 100_000: 7},
    "unk_token": "a0",
}
_tokenizer("a_token_of_100_KB", model=_LONGEST)
_tokenizer("a_decoder_that_expands", decoder={"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 100_000})
_tokenizer(
    "a_decoder_with_a_pattern",
    decoder={
        "type": "Sequence",
        "decoders": [
            {"type": "Fuse"},
            {"type": "Replace", "pattern": {"Regex": "(a7|a7a7)*(a7|a7a7)*b"}, "content": ""},
        ],
    },
)
_SLOW = {"type": "Split", "pattern": {"Regex": f"(?i){'ß' * 100_000}"}, "behavior": "Isolated", "invert": False}
_tokenizer("a_tokenizer_whose_patterns_compile_for_hours", pre_tokenizer=_SLOW, normalizer={
    "type": "Replace", "pattern": _SLOW["pattern"], "content": ""})  # fmt: skip
_tokenizer(
    "a_vocabulary_elsewhere",
    {
        "tokenizer.json": "",
        "tokenizer_config.json": '{"tokenizer_class": "GPT2Tokenizer", "vocab_file": "MINE/vocab.json", '
        '"merges_file": "MINE/merges.txt"}',
    },
)
_tokenizer("a_tokenizer_of_lists", {"tokenizer.json": "[" * 1_000_000, "tokenizer_config.json": '{"a":' * 100_000})
_tokenizer(
    "a_tokenizer_on_the_hub",
    {"tokenizer.json": "", "tokenizer_config.json": '{"tokenizer_class": "x/y", "name_or_path": "x/y"}'},
)


# -- stored trajectories -----------------------------------------------------------------------------------------------


def _line(trace: str = "ab" * 16, spans: Any = None, **given: Any) -> dict[str, Any]:
    span = {"span_id": "01", "parent_id": None, "name": "x", "role": "trajectory", "key": "k", "start_ns": 1,
            "end_ns": 2,
            "status": "OK", "inputs": {}, "output": None, "attributes": {"step": 1}, "host": "h", "pid": 1}  # fmt: skip
    return {
        "trace_id": trace,
        "run_id": "r",
        "spans": [span] if spans is None else [{**span, **one} for one in spans],
        **given,
    }


def _lines(name: str, *lines: str) -> None:
    def make(folder: Path, mine: Path) -> Path:
        path = folder / "stored.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    make.__name__ = name
    place(make)


_TWO = ("ab" * 16, "cd" * 16)
_lines("lines_of_lists", "[" * 1_000_000)
_lines(
    "lines_nested",
    *(
        f'{{"trace_id": "{one}", "run_id": "r", "spans": [], "facts": {{"a": {"[" * 500}1{"]" * 500}}}}}'
        for one in _TWO
    ),
)
_lines(
    "lines_obeyed",
    *(
        json.dumps(
            _line(
                one,
                [{"name": EVIL, "status": EVIL, "attributes": {EVIL: EVIL}, "error": [EVIL] * 3}],
                facts={EVIL: EVIL},
                notes=[EVIL],
            )
        )
        for one in _TWO
    ),
)
_lines(
    "lines_numbers",
    *(
        json.dumps(_line(one, [{"start_ns": 1 << 70, "end_ns": -(1 << 70), "attributes": {"step": 10**400}}]))
        for one in _TWO
    ),
)
_lines("lines_times", *(json.dumps(_line(one, [{"start_ns": 1 << 62, "end_ns": 0}])) for one in _TWO))
_lines(
    "lines_circles",
    *(
        json.dumps(
            _line(
                one,
                [
                    {"span_id": "1", "parent_id": "2"},
                    {"span_id": "2", "parent_id": "1"},
                    {"span_id": "3", "parent_id": "3", "prompt_base": "3", "new_prompt_ids": [1], "role": "llm"},
                ],
            )
        )
        for one in _TWO
    ),
)
_lines(
    "lines_expanding",
    *(
        json.dumps(
            _line(
                one,
                [{}]
                + [
                    {
                        "span_id": f"{n:x}",
                        "role": "llm",
                        "parent_id": "01",
                        "new_prompt_ids": [7] * (300_000 if not n else 1),
                        "prompt_keep": 300_000 - 1 if n else 0,
                        "prompt_base": "0" if n else None,
                    }
                    for n in range(2000)
                ],
            )
        )
        for one in _TWO
    ),
)
_lines("lines_run_ids", *(json.dumps({**_line(), "run_id": f"r{n}"}) for n in range(500)))
_lines(
    "lines_deep",
    *(
        json.dumps(_line(one, [{"span_id": str(n), "parent_id": str(n - 1) if n else None} for n in range(4_000)]))
        for one in _TWO
    ),
)


def _parquet(name: str, write: Callable[[Path, Path], None]) -> None:
    def make(folder: Path, mine: Path) -> Path:
        for table in ("trajectories", "spans", "turns", "tokens", "facts", "chains", "metrics"):
            (folder / "p" / "run" / "tables" / table).mkdir(parents=True)
        write(folder, mine)
        return folder

    make.__name__ = name
    place(make)


def _written(folder: Path, mine: Path, change: Callable[[Any], Any] = lambda table: table, **options: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from autotrace.tables import arrow
    from autotrace.tables.commits import FILE, Added, Commit
    from autotrace.tables.schema import TABLES

    top = folder / "p" / "run" / "tables"

    for name, table in TABLES.items():
        schema = arrow.arrow_schema(table.columns)
        row = {field.name: None for field in schema}
        row |= {
            "trace_id": "ab" * 16, "run_id": "run", "step": 1, "span_id": "01", "name": EVIL, "role": "trajectory",
            "status": EVIL, "version": 1, "start_ns": 1, "end_ns": 2, "key": EVIL, "host": EVIL, "pid": 1,
        }  # fmt: skip
        row = {key: value for key, value in row.items() if key in schema.names}
        made = change(
            pa.Table.from_pylist([row, {**row, "trace_id": "cd" * 16}] if "trace_id" in row else [row], schema)
        )
        pq.write_table(made, top / name / "000001.parquet", **options)
    files = {name: Added("000001.parquet", 2, 1000) for name in TABLES}
    more = {name: Added("000002.parquet", 2, 1000) for name in TABLES if (top / name / "000002.parquet").exists()}
    (top / FILE).write_bytes(Commit(1, 1, files).line() + (Commit(2, 2, more).line() if more else b""))


def _bomb(table: Any) -> Any:
    import pyarrow as pa

    for name in ("name", "error", "value", "output", "prompt_text"):
        if name in table.column_names:
            texts = pa.array(["A" * 1_000_000], pa.large_string() if False else pa.string())
            table = pa.concat_tables([table] * 1000)
            column = pa.chunked_array(
                [pa.DictionaryArray.from_arrays(pa.array([0] * table.num_rows, pa.int32()), texts)]
            )
            return table.set_column(table.column_names.index(name), name, column)
    return table


_parquet("parquet_obeyed", _written)
_parquet(
    "parquet_of_other_columns",
    lambda folder, mine: _written(folder, mine, lambda table: table.select([table.column_names[-1]])),
)
_parquet(
    "parquet_of_other_types",
    lambda folder, mine: _written(
        folder, mine, lambda table: table.set_column(0, table.column_names[0], [list(range(table.num_rows))])
    ),
)
_parquet("parquet_that_expands", lambda folder, mine: _written(folder, mine, _bomb, compression="zstd"))


def _garbage(folder: Path, mine: Path) -> None:
    _written(folder, mine)
    for path in folder.glob("p/run/tables/*/000001.parquet"):
        path.write_bytes(b"PAR1" + b"\xff" * 1000 + b"\xff\xff\xff\x7fPAR1")


def _pipes(folder: Path, mine: Path) -> None:
    for path in folder.glob("p/run/tables/*"):
        os.mkfifo(path / "000002.parquet")
    _written(folder, mine)


def _linked(folder: Path, mine: Path) -> None:
    _written(folder, mine)
    for path in list(folder.glob("p/run/tables/*/000001.parquet")):
        target = mine / f"{path.parts[-2]}.parquet"
        shutil.move(path, target)
        path.symlink_to(target)


def _linked_folder(folder: Path, mine: Path) -> None:
    _written(folder, mine)
    top = folder / "p" / "run" / "tables"
    shutil.move(top / "trajectories", mine / "trajectories")
    (top / "trajectories").symlink_to(mine / "trajectories")


def _hole(folder: Path, mine: Path) -> None:
    with (folder / "p/run/tables/trajectories/000002.parquet").open("wb") as file:
        file.truncate(HOLE)
    _written(folder, mine)


_parquet("parquet_garbage", _garbage)
_parquet("parquet_pipes", _pipes)
_parquet("parquet_linked", _linked)
_parquet("parquet_linked_folder", _linked_folder)
_parquet("parquet_hole", _hole)


def wheel_that_expands(folder: Path) -> Path:
    """8 MB of a wheel that become 2 GB."""
    path = folder / "theirs-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("theirs-1.0.dist-info/METADATA", "Name: theirs\nVersion: 1.0\n")
        for number in range(20):
            with archive.open(f"theirs/m{number}.py", "w", force_zip64=True) as file:
                for _ in range(100):
                    file.write(b"#" * 1_000_000)
    return path
