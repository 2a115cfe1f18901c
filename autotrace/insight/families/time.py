"""Find where the time goes: stragglers and their causes, the prefix cache, preemptions, idle steps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from statistics import median

from autotrace.insight.finding import Code
from autotrace.insight.step_records import History, Hit, Record, Step

STRAGGLER = 3.0
"""Count a rollout as a straggler above so many times the median of its step."""
LOST_SECONDS = 0.5
LOST_SHARE = 0.2
"""Ignore a wait below this share of the step's time."""
FEW = 0.1
"""Limit the share of stragglers; if many are slow, slow is usual."""
CACHED = 0.5
"""Require such a share of the tokens that the turn before left in the engine."""
PREFIX = 64
"""Ignore a shorter prefix, which fills no block of the cache."""
CACHE_SHARE, CACHE_TURNS = 0.025, 3
PREEMPTED_SHARE = 0.05
IDLE, IDLE_SECONDS, IDLE_ROWS = 0.6, 20.0, 16
"""Report a step with such a share of empty places for rollouts, so many seconds and so many trajectories."""
PARTS = {
    "queue_s": "waiting in the engine's queue", "prefill_s": "prefill", "decode_s": "decoding",
    "way_s": "router and network", "llm_s": "LLM calls", "tool_s": "tools", "reward_s": "the reward",
    "other_s": "the agent's own work",
}  # fmt: skip

CODES = Code.each({
    "AT-STRAGGLER": 0.2, "AT-STEP-IDLE": 0.2, "AT-CACHE-LOST": 0.3, "AT-PREEMPTED": 0.3, "AT-HUNG": 1.0,
})  # fmt: skip


def stragglers(step: Step, history: History) -> Iterator[Hit]:
    """Find trajectories that the step waits for; without steps, nobody waits."""
    if step.number is None or step.number < 0:
        return
    done = [(record, seconds) for record in step.training if (seconds := record.seconds) is not None]
    if len(done) < 4:
        return
    usual, wall = median(seconds for _, seconds in done), step.wall_s
    late = [(record, seconds) for record, seconds in done if seconds > STRAGGLER * usual]
    if not late or len(late) > max(1, FEW * len(done)):
        return
    ends = sorted(record.end_ns or 0 for record, seconds in done if seconds <= STRAGGLER * usual)
    others_end = ends[-1] if ends else 0
    for record, seconds in late:
        lost = ((record.end_ns or 0) - others_end) / 1e9
        if lost > LOST_SECONDS and lost > LOST_SHARE * wall:
            kind, note = _cause(record, [other for other, _ in done])
            yield Hit("AT-STRAGGLER", record, None, None, f"{seconds:.1f} s, usually {usual:.2g} s; {note}", kind, lost)


def idle(step: Step, history: History) -> Iterator[Hit]:
    """Find steps whose places for rollouts were empty, and not because of a few stragglers."""
    if step.number is None or step.number < 0 or any(stragglers(step, history)):
        return
    known = [(seconds, record) for record in step.training if (seconds := record.seconds) is not None]
    wall = step.wall_s
    if len(known) < IDLE_ROWS or wall < IDLE_SECONDS:
        return
    moments = sorted(moment for _, one in known for moment in ((one.start_ns or 0, 1), (one.end_ns or 0, -1)))
    most = max(accumulate(change for _, change in moments))
    empty = 1 - sum(seconds for seconds, _ in known) / (most * wall)
    if empty <= IDLE:
        return
    longest = sorted(known, key=lambda one: -one[0])[: max(1, len(known) // 20)]
    for seconds, record in longest:
        kind, _ = _cause(record, [other for _, other in known])
        note = f"{seconds:.1f} s of the step's {wall:.1f} s; {empty:.0%} of {most} places were empty"
        yield Hit("AT-STEP-IDLE", record, note=note, kind=kind, seconds=empty * wall / len(longest))


def _cause(record: Record, others: list[Record]) -> tuple[str, str]:
    """Return the part of the time in which the record most exceeds the others, and the excess in words."""
    over = {
        name: seconds - median(other.times.get(name, 0.0) for other in others)
        for name, seconds in record.times.items()
        if name in PARTS
    }
    if not over:
        return "unknown", "where the time went is not known"
    part = max(over, key=lambda name: over[name])
    return PARTS[part], f"{over[part]:.1f} s more in {PARTS[part]}"


def cache(step: Step, history: History) -> Iterator[Hit]:
    """Find prefixes that were computed again."""
    lost: list[Hit] = []
    judged = found = 0
    for record in step.records:
        hit = None
        for number, (before, turn) in enumerate(zip(record.profile.turns, record.profile.turns[1:], strict=False), 2):
            if turn.cached is None or turn.shared < PREFIX or before.weights != turn.weights:
                continue
            judged += 1
            found += turn.cached > 0
            if turn.cached < CACHED * turn.shared:
                moved = before.server and turn.server and before.server != turn.server
                kind = "another replica" if moved else "the same engine"
                note = f"{turn.cached:,} of {turn.shared:,} tokens were cached, {kind}"
                hit = hit or Hit("AT-CACHE-LOST", record, number, turn.cached, note, kind)
        lost += [hit] if hit else []
    if found and len(lost) >= CACHE_TURNS and len(lost) >= CACHE_SHARE * judged:
        yield from lost


def preempted(step: Step, history: History) -> Iterator[Hit]:
    """Find requests that had to wait in the middle."""
    turns = sum(len(record.profile.turns) for record in step.records)
    hits = []
    for record in step.records:
        number = next((n for n, turn in enumerate(record.profile.turns, 1) if turn.preempted), None)
        if number is not None:
            note = f"{record.profile.turns[number - 1].preempted} times"
            hits.append(Hit("AT-PREEMPTED", record, number, note=note))
    if hits and len(hits) > PREEMPTED_SHARE * turns:
        yield from hits


OF_STEP = (stragglers, idle, cache, preempted)
