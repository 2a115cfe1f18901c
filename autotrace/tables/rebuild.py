"""Rebuild trajectories from the rows of the tables, equal to the trajectories that were written. Derived values are not
stored: titles, and whole prompts. A traced process never imports this module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from autotrace.insight.profile import Mark, decode, encode
from autotrace.spool.records import MEASURED
from autotrace.tables.call_tables import TRAINED
from autotrace.tables.rollout import GROUP_FINDINGS, Rollout, exactly
from autotrace.trajectory.deferred import Continued, Deferred, Packed
from autotrace.trajectory.jsonable import EXPANDS, expands
from autotrace.trajectory.model import Allowance, Span, Trajectory, flattened
from autotrace.trajectory.tool_calls import entitle

if TYPE_CHECKING:
    import pyarrow as pa


def connected(spans: list[Span]) -> list[Span]:
    """Join ``spans``: set depth, derived prompts and titles; return ``spans``."""
    flattened(spans)
    by_id, allowance = {span.span_id: span for span in spans}, Allowance()
    for span in spans:
        new = span.new_prompt_ids
        if new is not None and span.prompt_keep >= 0 and allowance.take(span.prompt_keep + len(new)):
            span.prompt_ids = _followed(span, by_id)
    entitle(spans)
    return spans


class _Followed(Deferred[list[int]]):
    """Hold a prompt that is derived from an earlier call's prompt."""


def _followed(span: Span, by_id: Mapping[str, Span]) -> _Followed:
    return _Followed(lambda: _prompt(span, by_id))


def _prompt(span: Span, by_id: Mapping[str, Span]) -> list[int] | None:
    """Build a prompt: walk back turn by turn to the first turn, or to a turn with a complete prompt, and take the
    missing tokens of each turn."""
    pieces, missing, at, hops = [span.new_prompt_ids or []], span.prompt_keep, span, 0
    while missing > 0:
        base = by_id.get(at.prompt_base or "")
        if base is None or hops > len(by_id):
            return None
        whole = vars(base).get("_prompt_ids")
        follows = whole is None or isinstance(whole, _Followed)
        prompt, keep = (base.new_prompt_ids, base.prompt_keep) if follows else (base.prompt_ids, 0)
        if prompt is None:
            return None
        added = [*prompt, *(base.response_ids or ())]
        if missing > keep + len(added):
            return None
        pieces.append(added[: max(0, missing - keep)])
        missing, at, hops = min(missing, keep), base, hops + 1
    return [id for piece in reversed(pieces) for id in piece]


def as_error(parts: Sequence[Any] | None) -> tuple[str, str, str] | None:
    """Return type, message and stack of a call's error."""
    if not parts or not any(parts):
        return None
    kind, message, stack = (["" if part is None else str(part) for part in parts] + ["", "", ""])[:3]
    return kind, message, stack


_PACKED = {"int32": "i", "float32": "f"}
Row = dict[str, Any]


def rebuilt(tables: Mapping[str, Iterable[Row]]) -> list[Trajectory]:
    """Build trajectories from the rows of ``trajectories``, ``turns``, ``spans``, ``tokens`` and ``facts``, in the
    order of ``trajectories``. A trajectory has the facts of its newest version."""
    by_trace = {name: _by_trace(tables[name]) for name in BELOW if name in tables}
    texts = (row.get(name) for of in by_trace.values() for rows in of.values() for row in rows for name in _JSON)
    if expands(*(text.encode() for text in texts if text is not None)):
        raise ValueError(EXPANDS)
    return [
        _trajectory(row, *(by_trace.get(name, {}).get(row["trace_id"], []) for name in BELOW))
        for row in tables["trajectories"]
    ]


_JSON = ("attributes", "inputs", "output", "messages", "value", "response_parts")
"""Columns whose texts are parsed: a small file may hold long ones."""
BELOW = ("spans", "turns", "tokens", "facts")
"""Tables from which trajectories are read, in addition to ``trajectories``."""


def _by_trace(rows: Iterable[Row]) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row["trace_id"], []).append(row)
    return grouped


def rows_of(table: pa.Table) -> Iterator[Row]:
    """Yield the rows of a table, long lists of numbers as ``Packed``."""
    names = table.column_names
    for batch in table.combine_chunks().to_batches():
        columns = [_values(batch.column(name)) for name in names]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))


def _values(column: pa.Array) -> list[Any]:
    kind = getattr(column.type, "value_type", None) if str(column.type).startswith("list<") else None
    code = None if kind is None else _PACKED.get(str(kind).replace("float", "float32"))
    if code is None:
        values: list[Any] = column.to_pylist()
        return values
    offsets, numbers = column.offsets.to_pylist(), column.values
    data = numbers.buffers()[1]
    at = numbers.offset
    return [
        Packed(code, data[4 * (at + begin) : 4 * (at + end)].to_pybytes() if end > begin else b"") if there else None
        for begin, end, there in zip(offsets, offsets[1:], column.is_valid().to_pylist(), strict=False)
    ]


def _trajectory(row: Row, spans: list[Row], turns: list[Row], tokens: list[Row], facts: list[Row]) -> Trajectory:
    made = {of["span_id"]: _span(of) for of in sorted(spans, key=lambda of: of["position"])}
    for turn in turns:
        _fill(made[turn["span_id"]], turn)
    for turn in turns:
        _continue(made[turn["span_id"]], turn, made)
    known = _facts(facts)
    profile = _profile(row["profile"] or "{}", known.pop(GROUP_FINDINGS, []))
    trajectory = Trajectory(
        row["trace_id"], row["run_id"], list(made.values()), exactly(row["attributes"]) or {}, known,
        row["notes"] or [], profile, row["settings"] or "{}", row["tokenizer"],
        row["late_spans"] or 0, row["version"],
    )  # fmt: skip
    _join(turns, made, Rollout(trajectory))
    for of in tokens:
        for column, name in TRAINED.items():
            value = of[column]
            setattr(made[of["span_id"]], name, value.make() if isinstance(value, Packed) else value)
    return trajectory


def _facts(rows: list[Row]) -> dict[str, Any]:
    newest = max((row["version"] for row in rows), default=0)
    return {row["name"]: exactly(row["value"]) for row in rows if row["version"] == newest}


def _profile(text: str, found: list[Any]) -> str:
    """Return the profile ``text`` with the current findings of the trajectory's group and step."""
    known, marks = decode(text), msgspec.convert(found, list[Mark])
    if known is None or known.found == marks:
        return text
    return encode(msgspec.structs.replace(known, found=marks))


def _span(row: Row) -> Span:
    span = Span.begun(
        row["span_id"], row["parent_id"], row["name"], row["role"], row["key"], row["start_ns"],
        exactly(row["inputs"]) or {}, exactly(row["attributes"]) or {}, row["host"], row["pid"],
    )  # fmt: skip
    span.end_ns, span.status, span.title = row["end_ns"], row["status"], row["title"]
    span.output = exactly(row["output"])
    span.first_item_ns = row["first_item_ns"]
    for name in ("prompt_tokens", "response_tokens", *MEASURED):
        setattr(span, name, row[name])
    if row["error_type"] is not None:
        span.error = (row["error_type"], row["error_message"] or "", row["error_stack"] or "")
    return span


def _fill(span: Span, row: Row) -> None:
    """Set the fields that the row itself contains."""
    span.new_prompt_ids, span.response_ids = row["new_prompt_ids"], row["response_ids"]
    span.logprobs = row["rollout_log_probs"]
    span.prompt_base, span.prompt_keep = row["prompt_base"], row["prompt_keep"]
    if row["mask_of"] is None:
        span.response_mask = row["response_mask"]
    if row["prompt_decoded"]:
        span.new_prompt_text = row["prompt_text"]
    if row["response_decoded"]:
        span.response_text = row["response_text"]
    span.messages = exactly(row["messages"])


def _continue(span: Span, row: Row, spans: Mapping[str, Span]) -> None:
    """Set prompts that continue another call's prompt."""
    if row["prompt_ids"] is not None:
        span.prompt_ids = row["prompt_ids"]
    elif row["prompt_known"]:
        span.prompt_ids = _followed(span, spans)
    if row["text_base"] is not None:
        span.prompt_text = Continued(lambda: _text(span, spans), row["text_base"] or None)
    elif row["prompt_of"] is not None:
        first = spans[row["prompt_of"]]
        span.prompt_text = Deferred(lambda: first.prompt_text)
    else:
        span.prompt_text = row["whole_prompt_text"]


def _text(span: Span, spans: Mapping[str, Span]) -> str:
    parts = [span.new_prompt_text or ""]
    prompt = vars(span)["_prompt_text"]
    for _ in spans:  # a stranger's tables may contain circles
        if not isinstance(prompt, Continued) or prompt.base is None:
            break
        base = spans[prompt.base]
        prompt = vars(base)["_prompt_text"]
        parts += [base.response_text or "", (base.new_prompt_text or "") if isinstance(prompt, Continued) else ""]
    if not isinstance(prompt, Continued):
        parts.append((prompt.make() if isinstance(prompt, Deferred) else prompt) or "")
    return "".join(reversed(parts))


def _join(turns: list[Row], spans: Mapping[str, Span], rollout: Rollout) -> None:
    """Restore the responses of calls with the whole conversation from the pieces in the turns."""
    for row in turns:
        span = spans[row["span_id"]]
        if row["joined_ids"] is not None:
            span.response_ids = Packed("i", rollout.joined_ids[: 4 * row["joined_ids"]])
        if row["joined_text"] is not None:
            span.response_text = rollout.joined_text[: row["joined_text"]]
        parts, text, at = exactly(row["response_parts"]), span.response_text or "", 0
        for place, part in enumerate(parts or ()):
            if isinstance(part, list):
                parts[place] = {part[0]: text[at : at + part[1]]}
                at += part[1]
        span.response_parts = parts
