"""Places with ids, names and texts that mean harm, in everything that rows come from: a folder of tables, a run folder,
its state, a bucket, a file of lines, and the files of each foreign format. ``PLACES``: name -> what makes one in an
empty folder, and returns what to read."""

from __future__ import annotations

import functools
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import autotrace
from autotrace.export import jsonl, parquet
from autotrace.foreign.source import FORMATS
from autotrace.run import layout
from autotrace.ship.readers import of_run
from autotrace.ship.store.state import State
from tests.security import hostile

BUCKET = "memory:///bucket"
PATH, MARKUP = "../../../mine/secret", "'\"><img src=x onerror=alert(1)>"
COLUMNS = {
    "trace_id": (PATH, MARKUP), "span_id": (MARKUP,), "parent_id": (MARKUP,), "run_id": (PATH,),
}  # fmt: skip
FILES = Path(__file__).parents[1] / "foreign" / "files"
KEPT = ("role", "type", "source", "schema_version", "status", "version")
"""Names whose texts say what a row is."""
PLACES: dict[str, Callable[[Path], Path | str]] = {}


@functools.cache
def honest() -> Path:
    """A folder with an honest run as a run folder (``run``), as tables (``lake``) and as lines."""
    folder = Path(tempfile.mkdtemp())
    run, process = hostile.honest(folder)
    process.exit()
    parquet.write(autotrace.open(run).trajectories(), str(folder / "lake"))
    jsonl.write(iter(autotrace.open(run).trajectories()), str(folder / "stored.jsonl"))
    return folder


def tables_with(folder: Path, column: str, value: str) -> Path:
    """A lake in which a column of all tables has ``value``."""
    shutil.copytree(honest() / "lake", folder / "lake")
    for path in (folder / "lake").rglob("*.parquet"):
        table = pq.read_table(path)
        if column in table.column_names:
            at = table.column_names.index(column)
            values = pa.array([value] * table.num_rows, table.schema.field(at).type)
            pq.write_table(table.set_column(at, table.schema.field(at), values), path)
    return folder / "lake"


def _run_folder(folder: Path, column: str, value: str) -> Path:
    (tables,) = tables_with(folder, column, value).glob("*/*/tables")
    shutil.copy(honest() / "run" / layout.RUN_JSON, tables.parent)
    return tables.parent


def _state(folder: Path, column: str, value: str) -> Path:
    run = folder / "run"
    shutil.copytree(honest() / "run", run)
    autotrace_state = State.of_run(run)
    autotrace_state.close()
    live = of_run(run).run
    with sqlite3.connect(run / layout.STATE_DB) as db:
        live._opened.state.db.backup(db)  # type: ignore[attr-defined]
        db.execute(f"UPDATE traces SET {column} = ? || substr({column}, 33) WHERE rowid = 1", (value,))
        db.execute("INSERT INTO requests VALUES ('x', ?, 1)", (value,))
    db.close()
    shutil.rmtree(run / layout.SPOOL)
    (run / layout.SPOOL).mkdir()
    return run


def _bucket(folder: Path, column: str, value: str) -> str:
    tables_with(folder, column, value)
    return BUCKET


def _lines(folder: Path, column: str, value: str) -> Path:
    def changed(given: dict[str, Any]) -> dict[str, Any]:
        return {**given, column: value} if column in given else given

    rows = [json.loads(line) for line in (honest() / "stored.jsonl").read_bytes().splitlines()]
    lines = [json.dumps({**changed(row), "spans": [changed(span) for span in row["spans"]]}) for row in rows]
    (folder / "stored.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "stored.jsonl"


def _run_json(folder: Path, column: str, value: str) -> Path:
    shutil.copytree(honest() / "run", folder / "run")
    path = folder / "run" / layout.RUN_JSON
    path.write_text(json.dumps({**json.loads(path.read_bytes()), column: value}))
    return folder / "run"


for _make, _of in (
    (tables_with, COLUMNS), (tables_with, {"trace_id": ("AB" * 16, "ab" * 16 + "\n")}), (_run_folder, COLUMNS),
    (_bucket, COLUMNS), (_lines, COLUMNS),
    (_state, {"trace_id": (PATH, "ab" * 16 + "\0" + PATH)}),
    (_run_json, {"run_id": (PATH, MARKUP), "project": (PATH,)}),
):  # fmt: skip
    for _column, _values in _of.items():
        for _value in _values:
            _name = f"{_make.__name__.strip('_')}_{_column}_{len(PLACES)}"
            PLACES[_name] = functools.partial(_make, column=_column, value=_value)


def _numbers(folder: Path) -> Path:
    """Whole numbers of 400 digits where a step, a reward and what names a file stand."""
    names = ("step", "uid", "rollout_n", "sample_index", "project_name", "validate", "attempt", "weight_version")
    facts = ("reward", "advantage", "label", "num_turns", "trained_in_step")
    rows = [json.loads(line) for line in (honest() / "stored.jsonl").read_bytes().splitlines()]
    for row in rows:
        row["attributes"] |= dict.fromkeys(names, 10**400)
        row["facts"] = {**dict.fromkeys(facts, 10**400), "reward_extra_info": {"part": -(10**400)}}
    (folder / "stored.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder / "stored.jsonl"


PLACES["lines_of_large_numbers"] = _numbers
ODD = (
    10**400,
    10**309,
    1e308,
    1e308,
    -1e308,
    float("inf"),
    float("nan"),
    -0.0,
    5e-324,
    True,
    "1e999",
    None,
    [1e308],
    1,
)


def _odd(folder: Path) -> Path:
    """Dumps of several steps whose rewards are numbers that no sum, or no mean, can be taken of."""
    for step in range(12):
        row = {"input": "user\nq\nassistant\n", "output": "a", "gts": "1", "step": step}
        rows = [{**row, "score": value, "acc": value, "uid": f"u{n % 3}"} for n, value in enumerate(ODD)]
        (folder / f"{step}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    return folder


PLACES["dumps_of_odd_numbers"] = _odd

# -- foreign formats ---------------------------------------------------------------------------------------------------


def marked(value: Any) -> Any:
    """``value`` with harm in each text that does not say what it is."""
    if isinstance(value, dict):
        return {key: one if key in KEPT else marked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [marked(one) for one in value]
    return f"{value}{hostile.EVIL}{MARKUP}{PATH}" if isinstance(value, str) else value


_ROWS: dict[str, list[dict[str, Any]]] = {
    "verl": [{"input": "user\nq\nassistant\n", "output": "a", "gts": "1", "score": 1.0, "step": 1, "uid": "u"}],
    "messages": [{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "id": "i"}],
    "trl": [{"prompt": "q", "completion": "a", "step": 1, "advantage": 0.5}],
}
_SAMPLES = {"atif": "harbor", "inspect": "inspect_logs", "spans": "langfuse"}


def _foreign(folder: Path, name: str) -> Path:
    """The file that the format's project wrote, in a folder and with texts that mean harm."""
    place = folder / MARKUP.replace("/", "") / f"{hostile.EVIL}..".replace("/", "")
    if name in _ROWS:
        place.mkdir(parents=True)
        (place / f"1{MARKUP}.jsonl").write_text("".join(f"{json.dumps(marked(row))}\n" for row in _ROWS[name]))
        return place
    shutil.copytree(FILES / _SAMPLES.get(name, name), place)
    for path in place.rglob("*.json*"):
        of_lines = path.suffix == ".jsonl"
        texts = path.read_text().splitlines() if of_lines else [path.read_text()]
        path.write_text("".join(f"{json.dumps(marked(json.loads(text)))}\n" for text in texts))
    return place


for _format in FORMATS:
    PLACES[f"foreign_{_format.name}"] = functools.partial(_foreign, name=_format.name)


def _logged(folder: Path) -> Path:
    """The metrics of several loggers, with names that mean harm, in two runs."""
    names = {MARKUP: 1.0, PATH: 2.0, hostile.EVIL: 3.0}
    log = [{"step": step, **names} for step in (1, 2)]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    below = folder / MARKUP.replace("/", "")
    below.mkdir()
    (below / f"{MARKUP.replace('/', '')}.jsonl").write_text(json.dumps({"step": 1, "data": names}) + "\n")
    return folder


PLACES["metrics_of_a_trainer"] = _logged
