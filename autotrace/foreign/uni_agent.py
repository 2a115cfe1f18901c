"""Read uni-agent's ``log_dir``: ``step_{step}/session-sample-{i}-rollout-{n}-{id}/trajectory.npz`` with
``trajectory.json``.

``uni_agent/framework/framework.py`` at 6f4a7c9: the arrays ``traj{k}_prompt_ids``, ``_response_ids``,
``_response_mask`` and, if the engine reported log-probabilities, ``_response_logprobs`` of each chain of a session;
rewards are in the JSON file. The files contain no texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotrace.foreign.collector import SpanCollector, listed, mapped, numbers, token_ids
from autotrace.foreign.containers import Format, names, step_of
from autotrace.foreign.opened import Row
from autotrace.trajectory.model import Trajectory

_SESSION = re.compile(r"session-sample-(\d+)-rollout-(\d+)-")


def read(row: Row, path: str) -> Iterator[Trajectory]:
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


FORMAT = Format("uni_agent", "uni-agent's token dumps", (".npz",), names("traj0_prompt_ids"), read)
