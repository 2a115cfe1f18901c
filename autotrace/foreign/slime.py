"""Read slime's ``--save-debug-rollout-data``, and the same of Miles: ``{rollout_id}.pt``, ``eval_{rollout_id}.pt``.

``torch.save({"rollout_id", "samples": [Sample.to_dict()]})`` (slime at 624b824, ``slime/utils/types.py``; Miles at
31f1ca9, ``miles/ray/rollout/debug_data.py``). ``tokens`` is the prompt and the response; ``loss_mask`` is 0 for the
tokens of tools and users. Miles' numpy arrays (routed experts) are objects that only code could make: such a file is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autotrace.foreign.collector import SpanCollector, from_text, listed, mapped, numbers, objects, plain, token_ids
from autotrace.foreign.containers import Format, names
from autotrace.foreign.opened import Row
from autotrace.trajectory.jsonable import integer, number
from autotrace.trajectory.model import Trajectory

_ENDED = {"completed": "stop", "truncated": "length", "aborted": "abort"}
"""Status of a sample -> why the last turn ended."""


def read(row: Row, path: str) -> Iterator[Trajectory]:
    """See ``Format.read``."""
    validate = True if path.rpartition("/")[2].startswith("eval_") else None
    for sample in objects(row.get("samples")):
        yield _read(sample, {"step": row.get("rollout_id"), "validate": validate})


def _read(sample: dict[str, Any], attributes: dict[str, Any]) -> Trajectory:
    calls = SpanCollector("slime")
    ids, length = token_ids(sample.get("tokens")) or [], integer(sample.get("response_length")) or 0
    cut = max(0, len(ids) - max(0, length))
    said = _said(sample)
    if ids and length > 0:
        mask, logprobs = numbers(sample.get("loss_mask")), numbers(sample.get("rollout_log_probs"))
        calls.tokens(ids[:cut], ids[cut:], mask, logprobs, said)
    else:
        calls.conversation(said)
    if sample.get("status") == "failed":
        calls.failed("failed")
    calls.finished(_ENDED.get(str(sample.get("status"))))
    versions = [version for version in map(integer, listed(sample.get("weight_versions"))) if version is not None]
    reward = sample.get("reward")
    parts = mapped(reward)
    calls.judged(sample.get("label"))
    attributes |= {
        "uid": sample.get("group_index"), "sample_index": sample.get("index"),
        "metadata": sample.get("metadata") or None,
        "min_global_steps": min(versions, default=None), "max_global_steps": max(versions, default=None),
    }  # fmt: skip
    first = next((value for value in map(number, parts.values()) if value is not None), None)
    facts = {
        "reward": first if parts else number(reward),
        "reward_extra_info": parts or None, "dropped": "remove_sample" if sample.get("remove_sample") is True else None,
    }  # fmt: skip
    return calls.trajectory(attributes, facts)


def _said(sample: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the conversation: recorded by Miles' sessions, else parsed from the texts."""
    recorded = listed(mapped(sample, "metadata").get("messages"))
    prompt, response = sample.get("prompt"), sample.get("response")
    response = response if isinstance(response, str) else ""
    if recorded:
        given = recorded
    elif isinstance(prompt, list):
        given = [*prompt, *from_text("", response)]
    else:
        given = from_text(prompt if isinstance(prompt, str) else "", response)
    return [message for message in map(plain, given) if message is not None]


FORMAT = Format("slime", "slime's debug rollouts", (".pt",), names("rollout_id samples"), read)
