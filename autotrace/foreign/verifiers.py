"""Read verifiers' saved results, and prime-rl's rollouts, which have the same form.

Up to 0.3 (``verifiers/utils/save_utils.py`` of 0.2.1): ``results.jsonl``, a rollout a line, as ``prompt`` and
``completion``. Since 0.3.1 (``verifiers/v1/episode.py``, ``graph.py`` of 0.4.0): ``traces.jsonl``, an episode a line,
each with the traces of the agents; a trace is a graph of messages, with tokens if a trainer requested tokens. prime-rl
(``src/prime_rl/monitors/file.py`` at 559b447) appends episodes to
``rollouts/step_{step}/{kind}/{subset}/traces.jsonl``; trained episodes are there twice, and are read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autotrace.foreign.collector import SpanCollector, listed, mapped, moment, numbers, objects, plain, token_ids
from autotrace.foreign.containers import Format, names, step_of
from autotrace.foreign.messages import prompt_and_completion
from autotrace.foreign.opened import Row
from autotrace.foreign.spellings import messages
from autotrace.trajectory.jsonable import integer, known, number
from autotrace.trajectory.model import Allowance, Span, Trajectory


def read(row: Row, path: str) -> Iterator[Trajectory]:
    """See ``Format.read``."""
    if "example_id" in row:
        yield _result(row)
        return
    for trace in objects(row["traces"]) if "traces" in row else [row]:
        if isinstance(trace.get("nodes"), list):
            yield _trace(trace, row, path)


def _result(row: Row) -> Trajectory:
    timing = mapped(row, "timing")
    began = mapped(timing, "generation").get("start") or timing.get("start_time")
    calls = SpanCollector("verifiers", moment(began), moment(mapped(timing, "scoring").get("end")))
    last = calls.conversation(messages(prompt_and_completion(row)))
    if last is not None and row.get("tool_defs"):
        last.inputs["tools"] = row["tool_defs"]
    calls.finished("length" if row.get("is_truncated") is True else None)
    if error := row.get("error"):
        parts = [mapped(error).get(name) for name in ("error", "message", "error_chain_str")]
        calls.failed(*(parts if mapped(error) else [error]))
    calls.judged(row.get("answer"))
    facts = {"reward": row.get("reward"), "reward_extra_info": mapped(row, "metrics") or None}
    attributes = {"sample_index": row["example_id"], "data_source": row.get("task"),
                  "stop_condition": row.get("stop_condition"), "info": row.get("info")}  # fmt: skip
    return calls.trajectory(attributes, facts)


# -- graphs ------------------------------------------------------------------------------------------------------------


def _trace(trace: dict[str, Any], episode: Row, path: str) -> Trajectory:
    timing = mapped(trace, "timing")
    ends = (moment(mapped(timing, name).get("end")) for name in ("setup", "agent", "finalize", "scoring"))
    calls = SpanCollector("verifiers", moment(timing.get("start")), max(filter(None, ends), default=None))
    _Graph(calls, trace).add()
    errors = [*listed(trace.get("errors")), *listed(episode.get("errors") if episode is not trace else None)]
    if errors and trace.get("ok") is not True:
        calls.failed(*(mapped(errors[-1]).get(name) for name in ("type", "message", "traceback")))
    rewards = {name: mapped(one) for name, one in mapped(trace, "rewards").items()}
    parts = {name: number(one.get("score")) for name, one in rewards.items()}
    weighted = [(parts[name], number(one.get("weight", 1.0)) or 0.0) for name, one in rewards.items()]
    scores = [score * weight for score, weight in weighted if score is not None]
    task, work = mapped(trace, "task") or mapped(episode, "task"), mapped(episode, "run", "work")
    data, policy, kind = mapped(task, "data"), mapped(work, "policy"), work.get("type")
    attributes = {
        "id": trace.get("id"), "agent_name": mapped(trace, "agent").get("name"),
        "sample_index": next((data[name] for name in ("idx", "name", "id") if data.get(name) is not None), None),
        "step": work.get("step", step_of(path)), "uid": mapped(episode, "group").get("id"),
        "validate": None if kind is None else kind == "eval", "data_source": mapped(episode, "env").get("id"),
        "stop_condition": trace.get("stop_condition"), "min_global_steps": policy.get("start"),
        "max_global_steps": policy.get("end"),
    }  # fmt: skip
    credit = [one for span in calls.spans for one in span.advantages or ()]
    facts = {
        "reward": sum(scores) if scores else None, "advantage": sum(credit) / len(credit) if credit else None,
        "reward_extra_info": {**parts, **mapped(trace, "metrics")} or None,
    }  # fmt: skip
    return calls.trajectory(attributes, facts)


class _Graph:
    """Read the nodes of a trace: each answer of the model is a turn, whose prompt is the path from the root."""

    def __init__(self, calls: SpanCollector, trace: dict[str, Any]) -> None:
        self._calls = calls
        self._nodes = [mapped(node) for node in trace["nodes"]]
        self._asked = {str(call.get("node")): call for call in objects(trace.get("calls"))}
        self._messages = [plain(node.get("message")) for node in self._nodes]
        self._ids = [token_ids(node.get("token_ids")) or [] for node in self._nodes]
        self._parents: list[int | None] = []
        self._lengths: list[tuple[int, int]] = []
        """Numbers of nodes and tokens from the root up to each node."""
        for at, (node, ids) in enumerate(zip(self._nodes, self._ids, strict=True)):
            above = node.get("parent")
            above = above if type(above) is int and 0 <= above < at else None
            count, tokens = self._lengths[above] if above is not None else (0, 0)
            self._parents.append(above)
            self._lengths.append((count + 1, tokens + len(ids)))
        self._turns: dict[int, Span] = {}
        """Node -> turn with tokens."""
        self._allowance = Allowance()

    def add(self) -> None:
        for at, (node, message) in enumerate(zip(self._nodes, self._messages, strict=True)):
            if message is None:
                continue
            if message["role"] == "tool":
                self._calls.result(message)
            elif message["role"] == "assistant" and node.get("sampled") is not False:
                self._turn(at)

    def _way(self, number: int) -> list[int]:
        """Return the nodes from the root to this node; the node alone if all paths together would be too long."""
        way, above = [number], self._parents[number]
        whole = self._allowance.take(self._lengths[number][0])
        while whole and above is not None:
            way.append(above)
            above = self._parents[above]
        return way[::-1]

    def _turn(self, at: int) -> None:
        way = self._way(at)
        asked = self._asked.get(str(at), {})
        model, time = asked.get("model"), mapped(asked, "time")
        said = [one for node in way if (one := self._messages[node]) is not None]
        turn = self._calls.turn(said, model if isinstance(model, str) else None, start_ns=moment(time.get("start")))
        if turn is None:
            return
        turn.end_ns = moment(time.get("end"))
        usage = mapped(asked, "usage")
        read = integer(usage.get("prompt_tokens"))
        turn.prompt_tokens = None if read is None else read + (integer(usage.get("cached_input_tokens")) or 0)
        turn.response_tokens = integer(usage.get("completion_tokens"))
        told = {"finish_reason": asked.get("finish_reason"), "cached_tokens": usage.get("cached_input_tokens")}
        turn.attributes |= known(told)
        self._tokens(turn, at)

    def _tokens(self, turn: Span, at: int) -> None:
        """Set the tokens that the turn reads since the turn above, and the tokens of the answer."""
        node, ids, mask = self._nodes[at], self._ids[at], listed(self._nodes[at].get("mask"))
        if not ids or len(mask) != len(ids) or mask[-1] is not True:
            return
        between, above = [at], self._parents[at]
        while above is not None and above not in self._turns:
            between.append(above)
            above = self._parents[above]
        kept = 0 if above is None else self._lengths[above][1]
        if not self._allowance.take(len(between) + self._lengths[at][1] - kept):
            return
        written = mask.index(True) - len(ids)
        read = [token for one in reversed(between) for token in self._ids[one]]
        turn.new_prompt_ids, turn.response_ids, turn.response_tokens = read[:written], ids[written:], -written
        turn.prompt_base, turn.prompt_keep = None if above is None else self._turns[above].span_id, kept
        turn.prompt_tokens = kept + len(read) + written
        self._turns[at] = turn
        for name, field in (("logprobs", "logprobs"), ("trainer_logprobs", "old_logprobs"), ("entropies", "entropy"),
                            ("reference_logprobs", "ref_logprobs"), ("advantages", "advantages")):  # fmt: skip
            values = numbers(node.get(name))
            if values and len(values) == -written:
                setattr(turn, field, values)


FORMAT = Format(
    "verifiers", "verifiers' saved rollouts", (".jsonl",),
    names("example_id prompt completion reward", "traces task", "nodes task"), read,
)  # fmt: skip
