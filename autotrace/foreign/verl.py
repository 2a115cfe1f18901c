"""Read veRL's ``trainer.rollout_data_dir`` and ``validation_data_dir``: ``{step}.jsonl``, a rollout a line.

All releases (to 0.9.1) write ``input``, ``output``, ``score`` and ``step``, later releases ``gts``, then the values of
the reward function by its own names. ``uid`` is ``{uid}_{rollout}_{output}`` in the trainer of 0.9
(``verl/trainer/ppo/v1/trainer_base.py``); the earlier trainer has ``request_id`` at most (``ray_trainer.py``). Texts
are decoded without special tokens. ``autotrace export --format verl`` writes the same, with special tokens.

uni-agent, which runs on veRL, writes tokens: ``step_{step}/session-sample-{i}-rollout-{n}-{id}/trajectory.npz`` with
``trajectory.json`` (``uni_agent/framework/framework.py`` at 6f4a7c9). The arrays are ``traj{k}_prompt_ids``,
``_response_ids``, ``_response_mask`` and, if the engine reported log-probabilities, ``_response_logprobs`` of each
chain of a session; rewards are in the JSON file. The files contain no texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotrace.foreign.collector import SpanCollector, from_text, listed, mapped, numbers, token_ids
from autotrace.foreign.containers import Format, names, step_of, validates
from autotrace.foreign.opened import Row
from autotrace.trajectory.jsonable import integer
from autotrace.trajectory.model import Trajectory

_READ = {"input", "output", "gts", "score", "step", "uid", "reward", "advantage", "status", "num_turns", "request_id"}
"""Names that are not parts of the reward."""
_SESSION = re.compile(r"session-sample-(\d+)-rollout-(\d+)-")


def read(row: Row, path: str) -> Iterator[Trajectory]:
    """See ``Format.read``."""
    prompt, response = row.get("input"), row.get("output")
    if not isinstance(prompt, str) or not isinstance(response, str):
        return
    calls = SpanCollector("verl")
    calls.conversation(from_text(prompt, response))
    calls.judged(row.get("gts"))
    if isinstance(row.get("status"), str):  # from autotrace's export
        calls.root.status = row["status"]
    uid, rollout, output = _key(row.get("uid"))
    attributes = {
        "step": row.get("step"), "uid": uid, "rollout_n": rollout, "output_index": output or None,
        "request_id": row.get("request_id"), "validate": validates(path),
    }  # fmt: skip
    parts = {name: value for name, value in row.items() if name not in _READ}
    facts = {
        "reward": row.get("score"), "advantage": row.get("advantage"), "num_turns": row.get("num_turns"),
        "reward_extra_info": parts or None,
    }  # fmt: skip
    yield calls.trajectory(attributes, facts)


def _key(key: object) -> tuple[str | None, int | None, int | None]:
    if not isinstance(key, str):
        return None, None, None
    uid, *rest = key.rsplit("_", 2)
    places = [integer(part) for part in rest]
    return (uid, places[0], places[1]) if len(places) == 2 and None not in places else (key, None, None)


def read_tokens(row: Row, path: str) -> Iterator[Trajectory]:
    """See ``Format.read``."""
    told = mapped(row.get(""))
    chains = listed(told.get("trajectories"))
    session = _SESSION.search(path)
    number = 0
    while (response := token_ids(row.get(f"traj{number}_response_ids"))) is not None:
        of = {name: row.get(f"traj{number}_{name}") for name in ("prompt_ids", "response_mask", "response_logprobs")}
        calls = SpanCollector("uni_agent")
        calls.tokens(
            token_ids(of["prompt_ids"]), response, numbers(of["response_mask"]), numbers(of["response_logprobs"])
        )
        summary = mapped(chains[number] if number < len(chains) else None)
        attributes = {
            "step": step_of(path), "sample_index": session[1] if session else None, "output_index": number or None,
            "rollout_n": int(session[2]) if session else None, "session_id": told.get("session_id"),
            "finished": summary.get("finished"), "materialization_reason": summary.get("materialization_reason"),
        }  # fmt: skip
        facts = {name: summary.get(name) for name in ("num_turns", "reward_extra_info")}
        yield calls.trajectory(attributes, {"reward": summary.get("reward_score"), **facts})
        number += 1


FORMAT = Format("verl", "veRL's rollout dump", (".jsonl",), names("input output score step"), read)
UNI_AGENT = Format(
    "uni_agent", "uni-agent's token dumps", (".npz",), names("traj0_prompt_ids"), read_tokens,
    beside=("trajectory.json",),
)  # fmt: skip
