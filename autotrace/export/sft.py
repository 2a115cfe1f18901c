"""Write ``sft``, rows for supervised fine-tuning, a row for each trajectory: ``messages``, ``tools``, and the identity.
A branching trajectory has a row for each chain.

In ``train.jsonl``, or the named file, for ``datasets`` and TRL: tool calls are in ``tool_calls``, arguments are an
object, tools are JSON schemas. In a file that ends with ``.parquet``, for veRL's ``MultiTurnSFTDataset``: every row has
the fields of all rows, so a tool would get the arguments of other tools, empty. Tools and calls are therefore in the
text, as the model saw and wrote both, and no column ``tools`` exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from autotrace.export.conversation import conversations
from autotrace.export.format import Row, Staging, Written, write_lines
from autotrace.trajectory.chains import Chain
from autotrace.trajectory.jsonable import finite, integer, jsonable, word
from autotrace.trajectory.model import Trajectory

FILE = "train.jsonl"
PARQUET = ".parquet"
BATCH = 256
"""Rows that are written at a time."""


def write(trajectories: Iterable[Trajectory], out: str) -> Written:
    """See ``format.Write``."""
    if out.endswith(PARQUET):
        return _write_parquet(trajectories, Path(out))
    return write_lines(trajectories, out, rows_of, one_file=True)


def rows_of(trajectory: Trajectory) -> list[Row] | str:
    """Return file name and row of each chain, or the reason why no row is possible."""
    said = conversations(trajectory)
    if isinstance(said, str):
        return said
    who = identity(trajectory)
    return [
        (FILE, jsonable({"messages": each.messages, "tools": each.tools or [], **who, **_chain(chain)}))
        for chain, each in said
    ]


def _chain(chain: Chain | None) -> dict[str, Any]:
    return {} if chain is None else {"chain": chain.number, "kind": chain.kind}


def identity(trajectory: Trajectory) -> dict[str, Any]:
    """Return the origin of a row, and the values that people filter by."""
    attributes, facts = trajectory.attributes, trajectory.facts
    index = attributes.get("sample_index")
    return {
        "trace_id": trajectory.trace_id,
        "step": integer(attributes.get("step")),
        "sample_index": None if index is None else str(index),
        "reward": finite(facts.get("reward")),
        "label": word(facts.get("label")),
    }


def _write_parquet(trajectories: Iterable[Trajectory], path: Path) -> Written:
    import pyarrow as arrow
    from pyarrow import parquet

    message = arrow.struct([("role", arrow.string()), ("content", arrow.string())])
    schema = arrow.schema([
        ("messages", arrow.list_(message)), ("trace_id", arrow.string()), ("step", arrow.int64()),
        ("sample_index", arrow.string()), ("reward", arrow.float64()), ("label", arrow.string()),
    ])  # fmt: skip
    written = Written()
    rows = _texts(trajectories, written)
    batch = list(islice(rows, BATCH))
    if not batch:
        return written
    with (
        Staging(path.parent) as staging,
        parquet.ParquetWriter(staging.path(path.name), schema, compression="zstd") as writer,
    ):
        while batch:
            writer.write_table(arrow.Table.from_pylist(batch, schema))
            batch = list(islice(rows, BATCH))
    written.files = 1
    return written


def _texts(trajectories: Iterable[Trajectory], written: Written) -> Iterator[dict[str, Any]]:
    for trajectory in trajectories:
        said = conversations(trajectory)
        texts = [] if isinstance(said, str) else [each.text for _, each in said]
        if not texts or not all(isinstance(message["content"], str) for text in texts for message in text):
            written.left_out[said if isinstance(said, str) else "their messages are not text alone"] += 1
            continue
        written.trajectories += 1
        yield from ({"messages": jsonable(text), **identity(trajectory)} for text in texts)
