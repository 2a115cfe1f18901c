"""What a trainer does to its users unseen."""

from __future__ import annotations

import math
from collections.abc import Iterator

from autotrace.insight.evidence import Evidence, find, packed, piece, tokens
from autotrace.insight.families.signal import BY_GROUP
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark
from autotrace.insight.records import Group, History, Hit, Record, Step

APART = 0.1
"""Between the logged share of cut answers and the true one."""
ROWS_APART = 3
"""... and so many rows, of which one is always the longest of its batch."""
NOISE = 0.005
"""An advantage from which one that should be nothing is not."""
SAME = 1e-3
"""By which such advantages of a group differ at most."""
PADDED = 0.01
"""Of a mean over rows, by which it differs from that over rows with tokens."""

CODES = (
    Code(
        "AT-PROMPT-TRAINED", "the prompt is trained on as if it were the answer",
        "The agent returned the prompt as its response, with an empty mask. veRL pads that mask with the pad token's "
        "id, which is not zero, so the loss is taken over the prompt.",
        "The first answer was empty (AT-EMPTY-ANSWER), and the agent cuts its response off with "
        "`prompt_ids[-len(mask):]`.",
        "Drop a rollout whose first answer is empty. veRL 0.9 does this in its ToolAgentLoop.",
        "Nothing.",
        1.0,
    ),
    Code(
        "AT-GROUP-OF-ONE", "a group has a single rollout left, and its raw reward is its advantage",
        "All other rollouts of the group failed. With one rollout there is no baseline, and GRPO uses the raw reward.",
        "The reward or the agent raised in the other rollouts.",
        "Drop groups of one. Look at the failed rollouts.",
        "`rollout.n` of 1.",
        1.0,
    ),
    Code(
        "AT-ADVANTAGE-NOISE", "groups of equal rewards have advantages that are not zero",
        "All rollouts of a group got the same reward, but each has the same small advantage. The update goes in an "
        "arbitrary direction.",
        "GRPO subtracts the mean and divides by the deviation. In float32 the mean of equal numbers may differ in the "
        "last digit (0.7, 0.9, 1/3), and the remainder is divided by an equally small deviation.",
        "Use rewards that float32 holds exactly (0, 0.25, 0.5, 1), or drop groups without variance "
        "(`algorithm.filter_groups`).",
        "Advantages of exactly zero.",
        0.05,
    ),
    Code(
        "AT-CLIP-RATIO", "the logged clip_ratio is not the share of truncated answers",
        "`response_length/clip_ratio` does not count the answers that were cut at a limit. Its curve hides "
        "truncation, or shows truncation that did not happen.",
        "veRL counts the rows that are as long as the batch is wide. With its classic trainer the width is "
        "`data.max_response_length`, so answers that `rollout.max_model_len` cut earlier do not count. With the V1 "
        "trainer it is the longest row, so one row always counts.",
        "Watch the column `cut` of `autotrace steps` instead. Set `rollout.max_model_len` to prompt and response "
        "together.",
        "Differences of a few percent, for example from answers that end by themselves at the limit.",
        0.1,
    ),
    Code(
        "AT-METRICS-PADDED", "rows that only fill the batch are in the trainer's metrics",
        "The trainer adds rows to fill the batch. `rollout_corr/*` and other means over rows include them; each "
        "counts as a row of perplexity 1.",
        "The number of rollouts is not a multiple of the number of workers and micro-batches.",
        "Choose `train_batch_size * rollout.n` as a multiple of the workers and micro-batches.",
        "Nothing.",
        0.05,
    ),
)  # fmt: skip


def prompt_trained(evidence: Evidence) -> Iterator[Mark]:
    """The response is the prompt, and the mask is known to be empty and the turns to have said nothing."""
    agent = evidence.agent
    if agent is None or agent.response_mask != [] or not evidence.turns or evidence.root.status != "OK":
        return
    response, prompt = agent.packed_response, packed(evidence.turns[0].span.prompt_ids)
    if not response or not prompt or any(call.span.response_tokens != 0 for call in evidence.turns):
        return
    if find(prompt, piece(response, 0, min(32, tokens(response)))) >= 0:
        yield Mark("AT-PROMPT-TRAINED", 1, 0, f"{tokens(response)} tokens of the prompt")


def group_of_one(group: Group, step: Step) -> Iterator[Hit]:
    """One rollout that ended well among several. Where nothing says how many there should be, the others must have
    been seen to fail."""
    n, has_failed = step.rollouts, len(group.records) > 1
    lacks = step.settings.rollout_n is not None and step.has_whole_groups
    if n < 2 or step.live or group.records[0].uid is None or not (has_failed or lacks):
        return
    done = [record for record in group.records if record.status in ("OK", "OPEN", "CANCELLED")]
    if len(done) == 1:
        yield Hit("AT-GROUP-OF-ONE", done[0], note=f"1 of {n} rollouts")


def noise(group: Group, step: Step) -> Iterator[Hit]:
    """What is left of equal rewards: one number for the whole group. (With a penalty in the reward they differ.)"""
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
    """What is logged against what was cut."""
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
    """Whether the last answer was cut would be known."""
    last = record.profile.turns[-1] if record.profile.turns else None
    return last is not None and (last.finish is not None or last.last is not None)


def padded(step: Step, history: History) -> Iterator[Hit]:
    """The mean over rows as logged against that over rows with tokens."""
    name = "rollout_corr/training_log_ppl"
    logged, own = step.metrics.get(name), step.computed.get(name)
    if logged is None or own is None or step.computed.get("left") or not step.training:
        return
    if abs(logged - own) > PADDED * abs(own):
        yield Hit("AT-METRICS-PADDED", step.training[0], note=f"{name}: logged {logged:.4g}, without them {own:.4g}")


OF_TRAJECTORY = (prompt_trained,)
OF_GROUP = (group_of_one, noise)
OF_STEP = (clip_ratio, padded)
