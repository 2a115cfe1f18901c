"""Match late facts to trajectories: by trace id, or by a key that both report; an unmatched fact waits in the state.
Store numbers about steps of training by step and name.

A classic trainer's rows have neither the rollout's number nor an id, only uid, response and score. Rollouts of a group
with exactly the same answer are told apart by reward. Facts and rollouts are read in any order, so the facts of an
answer are dealt out anew whenever another fact or rollout of the answer becomes known (``deal``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from autotrace.ship.store.row import TraceRow
from autotrace.ship.store.state import State
from autotrace.spool import token_facts
from autotrace.spool.records import Fact, StepFacts, TokenFacts
from autotrace.trajectory.jsonable import jsonable, number, text
from autotrace.trajectory.model import has_score

UNKNOWN = 1e-9
"""Distance of an unknown reward; smaller than the tolerance of ``isclose``."""


@dataclass(frozen=True)
class Candidate:
    """Describe a rollout that gave the answer."""

    trace_id: str
    start_ns: int
    reward: float | None


@dataclass(frozen=True)
class Claim:
    """Describe the rollout to which a fact belongs, as far as the fact tells."""

    name: str
    output: str | None
    score: float | None
    at_ns: int


def deal(claims: Sequence[Claim], rollouts: Sequence[Candidate]) -> list[str | None]:
    """Return the trace of each fact; None: the fact waits for a rollout that was not read yet.

    A fact goes to the rollout with its reward. If several rollouts have that reward, the rollout with the fewest facts
    of this name gets the fact, then a rollout that got facts of the same score before, then the latest that had begun.
    If no rollout has that reward (the trainer may have changed the reward), the nearest rollout gets the fact, unless
    another fact of this name matches there: then the fact is about a rollout that nobody has read.
    """
    by_age = sorted(rollouts, key=lambda rollout: rollout.start_ns)
    distances = [[distance(rollout.reward, claim.score) for rollout in by_age] for claim in claims]
    dealt: list[str | None] = [None] * len(claims)
    had: Counter[tuple[str, str, str | None]] = Counter()
    matched: set[tuple[str, str, str | None]] = set()
    assumed: dict[str, float] = {}
    """Score of the first fact that a rollout got: the row's other facts have the same score."""
    for at in sorted(range(len(claims)), key=lambda at: (min(distances[at]), claims[at].at_ns)):
        claim, nearest = claims[at], min(distances[at])
        places = [
            (rollout, (rollout.trace_id, claim.name, claim.output))
            for rollout, away in zip(by_age, distances[at], strict=True)
            if away == nearest
        ]
        if nearest > UNKNOWN:
            places = [(rollout, place) for rollout, place in places if place not in matched]
            if not places:
                continue
        counts = [(had[place], distance(assumed.get(rollout.trace_id), claim.score)) for rollout, place in places]
        least = min(counts)
        places = [one for one, count in zip(places, counts, strict=True) if count == least]
        begun = [(rollout, place) for rollout, place in places if rollout.start_ns <= claim.at_ns]
        rollout, place = begun[-1] if begun else places[0]
        dealt[at] = rollout.trace_id
        had[place] += 1
        if claim.score is not None:
            assumed.setdefault(rollout.trace_id, claim.score)
        if nearest <= UNKNOWN:
            matched.add(place)
    return dealt


def distance(reward: float | None, score: float | None) -> float:
    """Return the distance of a rollout's reward from the trainer's reward, which went through a float32. An unknown
    reward comes after matching rewards, and before other rewards."""
    if score is None:
        return 0.0
    if reward is None:
        return UNKNOWN
    return 0.0 if math.isclose(reward, score, rel_tol=1e-5, abs_tol=1e-6) else abs(reward - score)


FORGET_EVERY = 20_000
"""Number of facts of unknown trajectories between two checks of the age of waiting facts."""
KEPT_NS = 3_600 * 10**9
"""Minimum time in ns that a fact waits for its trajectory, in the run's own time."""


_REPORTED = """
WITH mine AS (SELECT value AS digest FROM json_each(:digests))
SELECT uid, digest FROM facts INDEXED BY facts_digest WHERE uid IS NULL AND digest IN mine
UNION SELECT uid, digest FROM facts WHERE trace_id IS NULL AND uid = :uid AND digest IN mine
UNION SELECT facts.uid, facts.digest FROM digests CROSS JOIN facts USING (trace_id, digest)
    WHERE digests.digest IN mine AND facts.uid = :uid
"""
"""Select uid and digest of the facts about some answers, including dealt facts: a single query instead of some queries
for each of hundreds of answers in a long trajectory."""

_ANSWERED = """
SELECT trace_id, start_ns, (
    SELECT value FROM facts WHERE facts.trace_id = traces.trace_id AND name = 'reward' AND digest IS NULL
    AND (output IS NULL OR output = '0') ORDER BY at_ns DESC, segment DESC, offset DESC LIMIT 1
) FROM digests JOIN traces USING (trace_id) WHERE digest = ? AND (? IS NULL OR uid = ?)
"""


def _word(value: Any) -> str | None:
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return None if value is None else text(str(value))[:1000]


class FactBook:
    """Store the facts of a run.

    A key is (``uid``, ``session_id`` or ``rollout_n``[, ``output``]) or (``uid``, ``digest``[, ``score``]), where
    ``digest`` is the first 8 bytes (or their hex digits) of blake2b with digest_size 16 over the response as
    little-endian int32, and ``score`` the reward of the row, which tells apart rollouts with the same answer; or
    (``digest``[, ``score``]) alone, over all tokens up to the end of the last response; or (``of``), the host's name of
    the trajectory.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._unknown = 0
        self._by_answer = bool(state.count("SELECT EXISTS (SELECT 1 FROM facts WHERE digest IS NOT NULL)"))
        """Whether any fact names a trajectory by the answer."""

    def add(self, segment: int, offset: int, fact: Fact | TokenFacts, at_ns: int) -> set[str]:
        """Store a fact; return the traces whose facts changed: the new owner, if already read, and any previous
        owner."""
        if isinstance(fact, TokenFacts):
            fact = Fact(b"", fact.key, token_facts.TOKEN_FACTS, _summary(fact), fact.at)
        key = fact.key or {}
        uid, output = _word(key.get("uid")), _word(key.get("output"))
        session = _word(key.get("session_id", key.get("rollout_n")))
        digest = (_word(key.get("digest")) or "")[:16] or None
        trace_id: str | None = fact.trace.hex() if len(fact.trace) == 16 else None
        score = number(key.get("score"))
        name = text(fact.name)[:250] or "fact"
        named = _word(key.get("of"))
        rollouts: list[Candidate] = []
        if trace_id is not None:
            digest = None
        elif named is not None:
            row = self._state.db.execute("SELECT trace_id FROM requests WHERE request = ?", (named,)).fetchone()
            trace_id = None if row is None else row["trace_id"]
        elif digest is None:
            trace_id = self._search(uid, session, at_ns)
        else:
            rollouts = self._answered(uid, digest)
            if len(rollouts) == 1 and distance(rollouts[0].reward, score) <= UNKNOWN:
                first = "SELECT 1 FROM facts WHERE trace_id = ? AND name = ? AND digest = ?"
                if self._state.db.execute(first, (rollouts[0].trace_id, name, digest)).fetchone() is None:
                    trace_id = rollouts[0].trace_id  # the common case; no fact has to be taken back
        if trace_id is None:
            self._forget(at_ns)
        self._by_answer = self._by_answer or digest is not None
        self._state.db.execute(
            "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (segment, offset, trace_id, uid, session, digest, output, name,
             msgspec.msgpack.encode(_stored(jsonable(fact.value))), at_ns, score, named),
        )  # fmt: skip
        if trace_id is None and digest is not None and rollouts:
            return self._deal(uid, digest, rollouts)
        if trace_id is None:
            return set()
        return {trace_id, *(self._dealt_anew(trace_id) if name == "reward" and digest is None else ())}

    def _dealt_anew(self, trace_id: str) -> set[str]:
        """Match the facts about a trace's answers anew: a new reward tells the trace from other traces with the same
        answers. Return the traces whose facts changed."""
        db = self._state.db
        row = db.execute("SELECT uid FROM traces WHERE trace_id = ? AND complete = 1", (trace_id,)).fetchone()
        if row is None or not self._by_answer:
            return set()
        digests = [digest for (digest,) in db.execute("SELECT digest FROM digests WHERE trace_id = ?", (trace_id,))]
        return self.digested(TraceRow(trace_id, uid=row["uid"]), digests)

    def _forget(self, now_ns: int) -> None:
        """Drop, from time to time, old facts about trajectories that were not recorded (a trainer reports on all
        rollouts)."""
        self._unknown += 1
        if self._unknown % FORGET_EVERY == 0:
            self._state.db.execute("DELETE FROM facts WHERE trace_id IS NULL AND at_ns < ?", (now_ns - KEPT_NS,))

    def _search(self, uid: str | None, session: str | None, at_ns: int) -> str | None:
        """Return the latest trajectory with the key that had begun when the fact was reported."""
        if uid is None:
            return None
        candidates = self._state.db.execute(
            "SELECT trace_id, start_ns FROM traces WHERE uid = ? AND (? IS NULL OR session = ?) ORDER BY start_ns",
            (uid, session, session),
        ).fetchall()
        if session is None and len(candidates) != 1:
            return None  # the uid alone names a group
        begun = [row for row in candidates if (row["start_ns"] or 0) <= at_ns]
        chosen = begun[-1:] or candidates[:1]
        return chosen[0]["trace_id"] if chosen else None

    def _answered(self, uid: str | None, digest: str) -> list[Candidate]:
        """Return the trajectories that gave this answer, of ``uid`` unless None, with recorded rewards. A dealt reward
        proves nothing: the first rollout that got the reward would keep the facts."""
        rollouts = []
        for trace_id, start_ns, packed in self._state.db.execute(_ANSWERED, (digest, uid, uid)):
            reward: Any = None if packed is None else msgspec.msgpack.decode(packed)
            reward = number(reward["score"] if has_score(reward) else reward)
            rollouts.append(Candidate(trace_id, start_ns or 0, reward))
        return rollouts

    def _deal(self, uid: str | None, digest: str, rollouts: list[Candidate]) -> set[str]:
        """Match the facts about this answer with rollouts, including facts with an owner; return the traces whose facts
        changed."""
        db, own = self._state.db, [rollout.trace_id for rollout in rollouts]
        fields = "SELECT segment, offset, trace_id, name, output, score, at_ns FROM facts"
        if uid is None:
            facts = db.execute(
                f"{fields} INDEXED BY facts_digest WHERE uid IS NULL AND digest = ?", (digest,)
            ).fetchall()
        else:
            facts = db.execute(f"{fields} WHERE trace_id IS NULL AND uid = ? AND digest = ?", (uid, digest)).fetchall()
            for trace_id in own:
                facts += db.execute(f"{fields} WHERE trace_id = ? AND uid = ? AND digest = ?", (trace_id, uid, digest))
        facts.sort(key=lambda fact: (fact["at_ns"], fact["segment"], fact["offset"]))
        claims = [Claim(fact["name"], fact["output"], fact["score"], fact["at_ns"]) for fact in facts]
        changed: set[str | None] = set()
        for fact, owner in zip(facts, deal(claims, rollouts), strict=True):
            if owner != fact["trace_id"]:
                changed |= {owner, fact["trace_id"]}
                db.execute(
                    "UPDATE facts SET trace_id = ? WHERE segment = ? AND offset = ?",
                    (owner, fact["segment"], fact["offset"]),
                )
        return {trace_id for trace_id in changed if trace_id is not None}

    def arrived(self, row: TraceRow) -> None:
        """Match earlier facts with the key of a root that has begun."""
        if row.uid is not None and row.session is not None:
            self._state.db.execute(
                "UPDATE facts SET trace_id = ? WHERE trace_id IS NULL AND uid = ? AND session = ? AND digest IS NULL",
                (row.trace_id, row.uid, row.session),
            )

    def named(self, fact: Fact) -> list[str]:
        """Match facts that waited for the host's name of a trace (``records.REQUEST``); return the trace, if facts
        waited."""
        name, trace_id = (fact.key or {}).get("request"), fact.trace.hex()
        if not isinstance(name, str) or len(fact.trace) != 16:
            return []
        waiting = "UPDATE facts SET trace_id = ? WHERE trace_id IS NULL AND named = ?"
        return [trace_id] if self._state.db.execute(waiting, (trace_id, name[:1000])).rowcount > 0 else []

    def digested(self, row: TraceRow, digests: Iterable[str]) -> set[str]:
        """Match the facts that name a trace by the digest of a response that was read. Returns the traces whose facts
        changed: a trace with the same answer may have had the facts."""
        changed: set[str] = set()
        if not self._by_answer:
            return changed
        given = {"uid": row.uid, "digests": msgspec.json.encode(list(digests)).decode()}
        for uid, digest in self._state.db.execute(_REPORTED, given).fetchall():
            changed |= self._deal(uid, digest, self._answered(uid, digest))
        return changed


def _summary(facts: TokenFacts) -> dict[str, Any]:
    """Return the summary, figures of the columns, and the number of columns: the columns stay in the segment."""
    of_row = token_facts.summary(facts.value.get(token_facts.SUMMARY))
    return {**of_row, **token_facts.along(facts.value), "columns": len(facts.value) - 1}


def _stored(value: Any) -> Any:
    """Convert whole numbers that msgpack cannot hold to text."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value


MAX_NUMBERS = 2_000
"""Maximum numbers of a step and name."""
_KEY = "step:"
_decode = msgspec.json.Decoder(dict[str, float]).decode


def store_step(state: State, facts: StepFacts) -> None:
    """Add recorded numbers to the numbers of a step. Numbers that are not finite are left out."""
    key = f"{_KEY}{facts.step}:{text(facts.name)[:100]}"
    before = state.meta(key)
    known = {} if before is None else _decode(before)
    known |= {text(name)[:250]: value for name, value in facts.value.items() if math.isfinite(value)}
    state.put_meta(key, msgspec.json.encode(dict(list(known.items())[:MAX_NUMBERS])).decode())


def step_numbers(state: State) -> list[int]:
    """Return the steps with recorded numbers."""
    keys = state.db.execute("SELECT key FROM meta WHERE key >= ? AND key < ?", (_KEY, _KEY[:-1] + ";")).fetchall()
    return sorted({int(key[len(_KEY) :].partition(":")[0]) for (key,) in keys})


def read_steps(state: State, step: int | None = None) -> dict[int, dict[str, dict[str, float]]]:
    """Return step -> name -> numbers; only of ``step`` if given."""
    prefix = _KEY if step is None else f"{_KEY}{step}:"
    made: dict[int, dict[str, dict[str, float]]] = {}
    for key, value in state.metas(prefix).items():
        number, _, name = (f"{step}:{key}" if step is not None else key).partition(":")
        made.setdefault(int(number), {})[name] = _decode(value)
    return made
