"""What a trainer does to its users unseen."""

from __future__ import annotations

from collections.abc import Iterator

from autotrace.insight.evidence import Evidence, find, packed, piece, tokens
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark
from autotrace.insight.records import Group, Hit, Step

CODES = (
    Code(
        "AT-PROMPT-TRAINED", "the prompt is trained on as if it were the answer",
        "The agent returned the prompt as its response with an empty mask. veRL pads that mask with the pad token's "
        "id, which is no zero, so the loss is taken over the prompt.",
        "The first answer was empty (AT-EMPTY-ANSWER), and the agent cuts its response off with "
        "`prompt_ids[-len(mask):]`.",
        "Give up a rollout whose first answer is empty; veRL 0.9 does this in its ToolAgentLoop.",
        "Nothing.",
        1.0,
    ),
    Code(
        "AT-GROUP-OF-ONE", "a single rollout is left of a group, and its raw reward is its advantage",
        "All other rollouts of the group failed. With one rollout there is no baseline, and GRPO takes the reward as "
        "it is.",
        "A reward or an agent that raised in the others.",
        "Drop groups of one; look at the failed rollouts.",
        "`rollout.n` of 1.",
        1.0,
    ),
)  # fmt: skip


def prompt_trained(evidence: Evidence) -> Iterator[Mark]:
    """The response is the prompt."""
    agent = evidence.agent
    if (
        agent is None
        or not agent.response_ids
        or not evidence.turns
        or agent.response_mask
        or evidence.root.status != "OK"
    ):
        return
    said = sum(call.span.response_tokens or 0 for call in evidence.turns)
    response, prompt = packed(agent.response_ids), packed(evidence.turns[0].span.prompt_ids)
    if said == 0 and response and prompt and find(prompt, piece(response, 0, min(32, tokens(response)))) >= 0:
        yield Mark("AT-PROMPT-TRAINED", 1, 0, f"{tokens(response)} tokens of the prompt")


def group_of_one(group: Group, step: Step) -> Iterator[Hit]:
    """One rollout that ended well among several."""
    n, has_failed = step.rollouts, len(group.records) > 1
    if n < 2 or step.live or group.records[0].uid is None or not (has_failed or step.has_whole_groups):
        return
    done = [record for record in group.records if record.status in ("OK", "OPEN", "CANCELLED")]
    if len(done) == 1:
        yield Hit("AT-GROUP-OF-ONE", done[0], note=f"1 of {n} rollouts")


OF_TRAJECTORY = (prompt_trained,)
OF_GROUP = (group_of_one,)
