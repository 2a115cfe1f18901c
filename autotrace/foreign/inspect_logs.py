"""Read Inspect's logs: ``.eval``, an archive with a JSON file for each sample, and ``.json`` with all samples.

``inspect_ai/log/_log.py`` (0.3.285): a sample has ``messages``, ``scores``, ``output``, ``epoch``; letters of a score
count as in Inspect's own metrics. Texts in several places are ``attachments``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autotrace.foreign.collector import SpanCollector, listed, mapped, moment, objects
from autotrace.foreign.containers import Format, names
from autotrace.foreign.opened import Row
from autotrace.trajectory.jsonable import integer, number
from autotrace.trajectory.model import ERROR, Trajectory

_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_ATTACHED = "attachment://"
_NAMED = 4
"""Limits how often the texts of a sample are named, on average."""


def read(row: Row, path: str) -> Iterator[Trajectory]:
    """See ``Format.read``."""
    task = mapped(row, "eval")
    for sample in objects(row.get("samples")):
        yield _read(sample, {"data_source": task.get("task"), "model": task.get("model"), "validate": True})


def _read(sample: dict[str, Any], attributes: dict[str, Any]) -> Trajectory:
    calls = SpanCollector("inspect", moment(sample.get("started_at")), moment(sample.get("completed_at")))
    attached, output = mapped(sample, "attachments"), mapped(sample, "output")
    messages = _with_attachments(listed(sample.get("messages")), attached)
    for given, call in calls.spoken(messages):
        if call is not None and call.role == "tool" and (wrong := mapped(given, "error")):
            call.status, call.error = ERROR, (str(wrong.get("type")), str(wrong.get("message")), "")
    calls.finished(next((choice.get("stop_reason") for choice in objects(output.get("choices"))), None))
    if error := mapped(sample, "error"):
        kind, _, what = str(error.get("message")).partition("(")
        calls.failed(kind, what.removesuffix(")").strip("'\""), error.get("traceback"))
    if limit := mapped(sample, "limit"):
        calls.notes.append(f"stopped by its limit: {limit.get('type')} {limit.get('limit')}")
    calls.judged(sample.get("target"))
    scores = {name: _score(mapped(score).get("value")) for name, score in mapped(sample, "scores").items()}
    epoch = integer(sample.get("epoch"))
    attributes |= {"sample_index": sample.get("id"), "rollout_n": None if epoch is None else epoch - 1}
    facts = {
        "reward": next((value for score in scores.values() if (value := number(score)) is not None), None),
        "reward_extra_info": scores if len(scores) > 1 else None,
    }  # fmt: skip
    return calls.trajectory(attributes, facts)


def _with_attachments(messages: list[Any], attached: Mapping[str, Any]) -> Iterator[Any]:
    """Replace the names of attachments by their texts, as long as the texts are not far longer than the sample."""
    left = _NAMED * sum(len(text) for text in attached.values() if isinstance(text, str)) + (1 << 16)
    for message in messages:
        content = mapped(message).get("content")
        if isinstance(content, str) and content.startswith(_ATTACHED):
            text = attached.get(content.removeprefix(_ATTACHED), content)
            left -= len(text) if isinstance(text, str) else 0
            yield {**message, "content": text if left >= 0 else content}
        else:
            yield message


def _score(value: Any) -> Any:
    return _LETTERS.get(value, value) if isinstance(value, str) else value


FORMAT = Format(
    "inspect", "Inspect's logs", (".eval", ".json"), names("_journal/", "header.json", "version status eval plan"), read
)
