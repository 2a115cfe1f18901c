"""Describe a trajectory for its page: the conversation in order, every call with times, and facts. Describe rollouts of
the same prompt side by side, and where each rollout leaves the rollout chosen for comparison."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from autotrace.insight.words import of_turns
from autotrace.tables.columns import ID, OF_ROLLOUT
from autotrace.tables.conditions import Condition
from autotrace.tables.hung import open_call
from autotrace.tables.reader import Reader
from autotrace.tables.rollout import Rollout
from autotrace.tables.schema import CHAINS
from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.divergence import UNKNOWN, Divergence, calls_parted, parted
from autotrace.trajectory.durations import ending, longest_gap, times
from autotrace.trajectory.jsonable import finite, jsonable
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.span_text import (
    answer,
    answered_ids,
    asked_ids,
    asked_messages,
    ids_text,
    input_text,
    one_line,
    output_text,
    question,
    shown_answer,
)
from autotrace.trajectory.tool_calls import tool_calls
from autotrace.view.pictures import picture

_THOUGHT = re.compile(r"\A(?:\s*<think(?:ing)?>)?(?P<thought>.*?)</think(?:ing)?>\s*", re.DOTALL)
_PHASES = ("dispatch_s", "queue_s", "prefill_s", "ttft_s", "decode_s", "preempted_s")

FEW_IDS = 200
"""Number of token ids shown instead of a text."""

Item = dict[str, Any]


def detail(trajectory: Trajectory, living: bool = False) -> dict[str, Any]:
    """Return everything that the page shows of a trajectory at once; ``call`` returns the contents of single calls.
    ``living``: the run goes on, so an open call lasts until now."""
    root, gap = trajectory.root, longest_gap(trajectory)
    inside = open_call(trajectory) if living else None
    lasts = {} if inside is None else {"open_s": (time.time_ns() - inside.since_ns) / 1e9}
    return {
        "trace_id": trajectory.trace_id,
        "run_id": trajectory.run_id,
        "status": trajectory.status,
        "attributes": jsonable(trajectory.attributes),
        "facts": jsonable(trajectory.facts),
        "notes": jsonable(trajectory.notes),
        "times": times(trajectory).measured() | lasts,
        "gap": None if gap is None else {"seconds": gap.seconds, "where": gap.where},
        "start": root.start_ns / 1e9,
        "duration": None if root.duration_ns is None else root.duration_ns / 1e9,
        "open": inside and {"in": inside.name, "seconds": lasts["open_s"]},
        "conversation": list(conversation(trajectory)),
        "chains": chains(trajectory),
        "findings": findings(trajectory),
        "spans": spans(trajectory),
    }


def chains(trajectory: Trajectory) -> list[Item]:
    """Return the rows of the table ``chains``, each with own turns and the words of its beginning; empty without
    branches."""
    tree, own = tree_of(trajectory), CHAINS.columns[len(OF_ROLLOUT) :]
    made = [(one.chain.turns, {column.name: column.of(one) for column in own}) for one in Rollout(trajectory).chains()]
    return [{**row, "own": turns, "words": tree.words(turns[0])} for turns, row in made if len(made) > 1]


def findings(trajectory: Trajectory) -> list[Item]:
    """Return the findings of the complete trajectory (``insight``): ``{code, what, turn}`` each."""
    return [{"code": mark.code, "what": words, "turn": turn} for turn, mark, words in of_turns(trajectory)]


def conversation(trajectory: Trajectory) -> Iterator[Item]:
    """Yield messages and tool calls in order. Each item has ``role``, ``turn`` and ``span``."""
    tools: dict[int, list[Item]] = {}
    for call in tool_calls(trajectory):
        # an agent that catches the exception of its tool returns normally
        span, failed = call.span, call.failed or call.span
        tools.setdefault(call.turn, []).append({
            "role": "tool", "turn": call.turn, "span": span.span_id, "name": call.name, "arguments": call.arguments,
            "text": call.told, "status": failed.status, "error": failed.error_text,
            "duration": None if span.duration_ns is None else span.duration_ns / 1e9,
        })  # fmt: skip
    yield from tools.get(0, [])
    for turn, span in enumerate(trajectory.llm_spans, 1):
        asked = list(_asked(span, turn))
        _give(tools.get(turn - 1, []), asked)
        yield from ({**item, "turn": turn, "span": span.span_id} for item in asked if not item.get("given"))
        yield {**_answered(span), "turn": turn, "span": span.span_id, **_figures(trajectory, span)}
        yield from tools.get(turn, [])
    if not trajectory.llm_spans:
        root = trajectory.root
        for role, text in (("input", input_text(root)), ("output", output_text(root))):
            if text:
                yield {"role": role, "turn": 0, "span": root.span_id, "text": text}


def _give(called: list[Item], asked: list[Item]) -> None:
    """Move the text that the model read of each tool call to the call, if texts and calls match."""
    read = [item for item in asked if item["role"] == "tool"]
    if len(read) != len(called):
        return
    for call, item in zip(called, read, strict=True):
        item["given"] = True
        if item["text"].strip() != call["text"].strip():
            call["read"] = item["text"]


def _asked(span: Span, turn: int) -> Iterator[Item]:
    """Yield the messages that the model got anew in this turn."""
    if not span.messages:
        text, ids = input_text(span) or "", asked_ids(span)
        if text or ids:
            yield {"role": "prompt", "text": text, **_ids(ids)}
        return
    yield from map(message_item, asked_messages(span, whole=turn == 1))


def _answered(span: Span) -> Item:
    reply = answer(span)
    if reply is not None:
        item = message_item(reply)
    else:
        item = {**message_item({"role": "assistant", "content": output_text(span) or ""}), **_ids(answered_ids(span))}
    if span.error_text is not None:
        item["error"] = span.error_text
    return item


def _ids(ids: list[int] | None) -> Item:
    """Return token ids that have no text; the page of the tokens shows all ids."""
    return {} if ids is None else {"ids": ids_text(ids, FEW_IDS)}


def _figures(trajectory: Trajectory, span: Span) -> Item:
    return {
        "status": span.status,
        "tokens": span.response_tokens,
        "finish": ending(trajectory, span),
        "duration": None if span.duration_ns is None else span.duration_ns / 1e9,
    }


def message_item(message: dict[str, Any]) -> Item:
    """Describe a chat message: text, preceding thought, calls, pictures."""
    text, pictures = _content(message.get("content"))
    item: Item = {"role": str(message.get("role") or "?")}
    thought = message.get("reasoning_content")
    if item["role"] == "assistant" and not thought and (match := _THOUGHT.match(text)):
        thought, text = match["thought"].strip(), text[match.end() :]
    if thought:
        item["thought"] = one_line(thought)
    called = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            called.append({"name": str(function.get("name")), "arguments": one_line(function.get("arguments"))})
    if called:
        item["calls"] = called
    if pictures:
        item["pictures"] = list(map(picture, pictures))
    return {**item, "text": text}


def _content(content: Any) -> tuple[str, list[str]]:
    """Return text, and what the message has of each picture: data, an address, or the words in its place."""
    if not isinstance(content, list):
        return ("" if content is None else one_line(content)), []
    texts, pictures = [], []
    for part in content:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, dict) and "image" in str(part.get("type")):
            source = part.get("image_url", part.get("image"))
            source = source.get("url") if isinstance(source, dict) else source
            pictures.append(source if isinstance(source, str) else "")
        else:
            texts.append(one_line(part))
    return "\n".join(texts), pictures


def spans(trajectory: Trajectory) -> dict[str, list[Any]]:
    """Return all calls as columns, in the order of starts. ``parent`` is a row number, -1 without a parent; ``start``
    counts from the root's start; ``phases`` are the engine's own times. Seconds."""
    rows = {span.span_id: number for number, span in enumerate(trajectory.spans)}
    zero = trajectory.root.start_ns
    columns: dict[str, list[Any]] = {name: [] for name in _SPAN}
    for span in trajectory.spans:
        phases = {name: span.attributes[name] for name in _PHASES if finite(span.attributes.get(name)) is not None}
        duration = None if span.duration_ns is None else round(span.duration_ns / 1e9, 6)
        values = (
            span.span_id, rows.get(span.parent_id or "", -1), span.shown_name, span.name, span.role,
            round((span.start_ns - zero) / 1e9, 6), duration, span.status, span.error_text,
            f"{span.host}:{span.pid}", phases or None,
        )  # fmt: skip
        for name, value in zip(_SPAN, values, strict=True):
            columns[name].append(value)
    plain: dict[str, list[Any]] = jsonable(columns)
    return plain


_SPAN = ("id", "parent", "title", "name", "role", "start", "duration", "status", "error", "process", "phases")


def call(span: Span, limit: int | None = None) -> dict[str, Any]:
    """Return the input and output of a call. ``limit``: characters of each text."""

    def cut(value: Any) -> Any:
        text = value if value is None else one_line(value)
        if text is None or limit is None or len(text) <= limit:
            return text
        return f"{text[:limit]} … {len(text) - limit:,} characters more"

    shown = {
        "inputs": {name: cut(value) for name, value in span.inputs.items()},
        "output": cut(span.output),
        "attributes": {name: cut(value) for name, value in span.attributes.items()},
        "error": None if span.error is None else cut("\n".join(part for part in span.error if part)),
        "prompt_tokens": span.prompt_tokens,
        "response_tokens": span.response_tokens,
    }
    plain: dict[str, Any] = jsonable(shown)
    return plain


MOST = 64
"""Maximum rollouts side by side."""
AROUND = 200
"""Characters shown of each side where two rollouts diverge."""
NOT_RUN = "not run"
MAX_TEXT = 4000
"""Characters of an answer or a result; the trajectory's own page shows the whole text."""


def of_ids(reader: Reader, ids: Sequence[str], base: str | None) -> dict[str, Any]:
    """Return ``beside`` for the first ``MOST`` of ``ids``, which may be beginnings of ids. Raises ``NotFound``."""
    whole = Condition("list_contains(?, trace_id)", (list(ids[:MOST]),), frozenset({"trace_id"}))
    found = {row.trace_id: one for row, one in reader.each(reader.select(whole, ID, roots=True))}
    return beside([found.get(id) or reader.load(id) for id in ids[:MOST]], base, left_out=len(ids[MOST:]))


def beside(
    trajectories: Sequence[Trajectory], base: str | None = None, *, every: bool = False, left_out: int = 0
) -> dict[str, Any]:
    """Return all rollouts with turns and tool calls; ``forks``: id of the base -> id -> where the rollout leaves the
    base. ``base``: this id, else the best reward; ``every``: compare each rollout with all others."""
    rollouts = list(trajectories)[:MOST]
    chosen = next((one for one in rollouts if one.trace_id == base), None) or max(rollouts, key=_reward)
    bases = rollouts if every else [chosen]
    plain: dict[str, Any] = jsonable({
        "base": chosen.trace_id,
        "asked": question(chosen)[:MAX_TEXT],
        "left_out": len(trajectories) - len(rollouts) + left_out,
        "rollouts": [_rollout(one) for one in rollouts],
        "forks": {one.trace_id: {other.trace_id: _fork(one, other) for other in rollouts} for one in bases},
    })  # fmt: skip
    return plain


def _reward(one: Trajectory) -> float:
    reward = finite(one.facts.get("reward"))
    return float("-inf") if reward is None else reward


def _rollout(one: Trajectory) -> dict[str, Any]:
    made, spans = tool_calls(one), one.llm_spans
    turns: list[dict[str, Any]] = []
    for number, span in enumerate(spans, 1):
        reply = answer(span) or {"role": "assistant", "content": span.error_text or shown_answer(span, FEW_IDS) or ""}
        item = message_item(reply)
        turns.append({
            "text": item["text"][:MAX_TEXT],
            "thought": item.get("thought", "")[:MAX_TEXT],
            "tokens": span.response_tokens,
            "status": span.status,
            "calls": [
                {"name": call.name, "arguments": call.arguments[:MAX_TEXT], "text": call.told[:MAX_TEXT],
                 "status": call.span.status}
                for call in made
                if call.turn == number
            ],
        })  # fmt: skip
        if made and (number < len(spans) or one.root.end_ns is not None):
            turns[-1]["calls"] += _not_run(item.get("calls", []), turns[-1]["calls"])
    return {
        "trace_id": one.trace_id,
        "rollout_n": one.attributes.get("rollout_n"),
        "status": one.status,
        "reward": one.facts.get("reward"),
        "advantage": one.facts.get("advantage"),
        "tokens": sum(span.response_tokens or 0 for span in one.llm_spans),
        "duration": None if one.root.duration_ns is None else one.root.duration_ns / 1e9,
        "turns": turns,
    }


def _not_run(written: list[dict[str, str]], made: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the calls that the model wrote but the agent did not make: the agent runs fewer calls at once, or does not
    know the tool."""
    ran = Counter(call["name"] for call in made)
    rest = []
    for call in written:
        ran[call["name"]] -= 1
        if ran[call["name"]] < 0:
            rest.append({**call, "arguments": call["arguments"][:MAX_TEXT], "text": "", "status": NOT_RUN})
    return rest[: max(0, len(written) - len(made))]


def _fork(base: Trajectory, other: Trajectory) -> dict[str, Any]:
    if base is other:
        return {"fork": None, "call_fork": None}
    where, call = parted(base, other), calls_parted(base, other)
    return {
        "fork": None if where is None else _shown(where),
        "call_fork": None if call is None else {"number": call[0], **_shown(call[1])},
    }


def _shown(where: Divergence) -> dict[str, Any]:
    """Cut a divergence to a short form; ``here`` is the rest of the base."""
    return {
        "turn": where.turn, "part": where.part, "token": where.token, "known": where.part != UNKNOWN,
        "here": where.here[:AROUND], "there": where.there[:AROUND],
    }  # fmt: skip
