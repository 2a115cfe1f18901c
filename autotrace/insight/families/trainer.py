"""Find faults that a trainer hides from its users."""

from __future__ import annotations

import math
from collections.abc import Iterator

from autotrace.insight.evidence import Evidence
from autotrace.insight.families.signal import BY_GROUP
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark
from autotrace.insight.step_records import Group, History, Hit, Record, Step
from autotrace.trajectory.token_ids import find, packed_ids, piece, tokens

APART = 0.1
"""Allow such a difference between the logged share of cut answers and the true share."""
ROWS_APART = 3
"""... and so many rows: each batch has a longest row."""
NOISE = 0.005
"""Report an advantage above this size where the advantage should be nothing."""
SAME = 1e-3
"""Treat advantages of a group as equal up to this difference."""
PADDED = 0.01
"""Allow such a difference between a mean over all rows and the mean over rows with tokens."""

CODES = Code.each({
    "AT-PROMPT-TRAINED": 1.0, "AT-ADVANTAGE-NOISE": 0.05, "AT-CLIP-RATIO": 0.1, "AT-METRICS-PADDED": 0.05,
})  # fmt: skip


def prompt_trained(evidence: Evidence) -> Iterator[Mark]:
    """Find a response that is the prompt, with an empty mask and turns without tokens."""
    agent = evidence.agent
    if agent is None or agent.response_mask != [] or not evidence.turns or evidence.root.status != "OK":
        return
    response, prompt = agent.packed_response, packed_ids(evidence.final[0].span.prompt_ids)
    if not response or not prompt or any(call.span.response_tokens != 0 for call in evidence.final):
        return
    if find(prompt, piece(response, 0, min(32, tokens(response)))) >= 0:
        yield Mark("AT-PROMPT-TRAINED", 1, 0, f"{tokens(response)} tokens of the prompt")


def noise(group: Group, step: Step) -> Iterator[Hit]:
    """Find the remains of equal rewards: the same advantage for the whole group. (With a penalty in the reward the
    advantages differ.)"""
    having = [(record, value) for record in group.records if (value := record.advantage) is not None]
    values = [value for _, value in having]
    if step.settings.adv_estimator not in BY_GROUP or not group.is_flat or len(values) < 2:
        return
    if not all(math.isfinite(value) and abs(value) >= NOISE for value in values):
        return
    if max(values) - min(values) <= SAME * abs(values[0]):
        note = f"rewards {group.rewards[0]:.4g}, advantage {values[0]:.3g}"
        yield from (Hit("AT-ADVANTAGE-NOISE", record, note=note, kind=note) for record, _ in having)


def clip_ratio(step: Step, history: History) -> Iterator[Hit]:
    """Compare the logged share of cut answers with the real share."""
    logged = step.metrics.get("response_length/clip_ratio")
    ended = [record for record in step.training if record.truncated or _says_how_it_ended(record)]
    if logged is None or not ended or step.live:
        return
    cut = [record for record in ended if record.truncated]
    share = len(cut) / len(ended)
    if abs(share - logged) > APART and abs(share - logged) * len(ended) >= ROWS_APART:
        note = f"logged {logged:.3g}, truncated {share:.3g}"
        yield from (Hit("AT-CLIP-RATIO", record, note=note) for record in cut or ended[:1])


def _says_how_it_ended(record: Record) -> bool:
    """Return whether a cut of the last answer would be known."""
    last = record.profile.turns[-1] if record.profile.turns else None
    return last is not None and (last.finish is not None or last.last is not None)


def padded(step: Step, history: History) -> Iterator[Hit]:
    """Compare the logged mean over rows with the mean over rows with tokens."""
    name = "rollout_corr/training_log_ppl"
    logged, own = step.metrics.get(name), step.computed.get(name)
    if logged is None or own is None or step.computed.get("left") or not step.training:
        return
    if abs(logged - own) > PADDED * abs(own):
        yield Hit("AT-METRICS-PADDED", step.training[0], note=f"{name}: logged {logged:.4g}, without them {own:.4g}")


OF_TRAJECTORY = (prompt_trained,)
OF_GROUP = (noise,)
OF_STEP = (clip_ratio, padded)
