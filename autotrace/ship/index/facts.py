"""Late facts find their trajectory: by its id, or by a key that both report; until then they wait in the state."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from autotrace.ship.store.row import Row
from autotrace.ship.store.state import State
from autotrace.spool import token_facts
from autotrace.spool.records import Fact, TokenFacts
from autotrace.trajectory.jsonable import jsonable, text
from autotrace.trajectory.numbers import number

FORGET_EVERY = 20_000
"""Facts of unknown trajectories between two looks at how old the waiting ones are."""
KEPT_NS = 3_600 * 10**9
"""How long a fact waits for its trajectory at least, in the run's own time."""


def _word(value: Any) -> str | None:
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return None if value is None else text(str(value))[:1000]


UNKNOWN = 1e-9
"""See ``_distance``; below what ``isclose`` takes for equal."""


class FactBook:
    """Facts of one run.

    A key is (``uid``, ``session_id`` or ``rollout_n``[, ``output``]) or (``uid``, ``digest``[, ``score``]), where
    ``digest`` is the first 8 bytes (or their hex digits) of blake2b with digest_size 16 over the response as
    little-endian int32, and ``score`` the reward of the row, which tells rollouts apart that answered the same; or
    (``of``), what the host calls the trajectory.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._unknown = 0

    def add(self, segment: int, offset: int, fact: Fact | TokenFacts, at_ns: int) -> str | None:
        """Store a fact; return the trace it belongs to, if that was read already."""
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
        if trace_id is None and named is not None:
            row = self._state.db.execute("SELECT trace_id FROM requests WHERE request = ?", (named,)).fetchone()
            trace_id = None if row is None else row["trace_id"]
        elif trace_id is None:
            trace_id = self._search(uid, session, digest, score, name, at_ns)
        if trace_id is None:
            self._forget(at_ns)
        self._state.db.execute(
            "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (segment, offset, trace_id, uid, session, digest, output, name,
             msgspec.msgpack.encode(_stored(jsonable(fact.value))), at_ns, score, named),
        )  # fmt: skip
        return trace_id

    def _forget(self, now_ns: int) -> None:
        """Drop, now and then, facts about trajectories that were not recorded (a trainer reports on all of them)."""
        self._unknown += 1
        if self._unknown % FORGET_EVERY == 0:
            self._state.db.execute("DELETE FROM facts WHERE trace_id IS NULL AND at_ns < ?", (now_ns - KEPT_NS,))

    def _search(
        self, uid: str | None, session: str | None, digest: str | None, score: float | None, name: str, at_ns: int
    ) -> str | None:
        """The latest trajectory of that key which had begun when the fact was reported.

        Of rollouts that answered the same, word for word, the one with that reward; of several, the one of which this
        was reported least often: what is reported of each of them is dealt out among them.
        """
        if uid is None:
            return None
        if digest is not None:
            sql = "SELECT * FROM digests JOIN traces USING (trace_id) WHERE digest = ? AND uid = ?"
            values: tuple[Any, ...] = (digest, uid)
        elif session is not None:
            sql = "SELECT trace_id, start_ns FROM traces WHERE uid = ? AND session = ?"
            values = (uid, session)
        else:
            sql = "SELECT trace_id, start_ns FROM traces WHERE uid = ?"
            values = (uid,)
        candidates = self._state.db.execute(sql, values).fetchall()
        if session is None and digest is None and len(candidates) != 1:
            return None  # the uid alone names a group
        candidates.sort(key=lambda row: row["start_ns"] or 0)
        if digest is not None and len(candidates) > 1:
            nearest = min(_distance(row["reward"], score) for row in candidates)
            candidates = [row for row in candidates if _distance(row["reward"], score) == nearest]
            reported = {row["trace_id"]: self._count_of(row["trace_id"], name, digest) for row in candidates}
            candidates = [row for row in candidates if reported[row["trace_id"]] == min(reported.values())]
        begun = [row for row in candidates if (row["start_ns"] or 0) <= at_ns]
        chosen = begun[-1:] or candidates[:1]
        return chosen[0]["trace_id"] if chosen else None

    def arrived(self, row: Row) -> None:
        """A root began: assign the facts that were read before it and match its key."""
        if row.uid is not None and row.session is not None:
            self._state.db.execute(
                "UPDATE facts SET trace_id = ? WHERE trace_id IS NULL AND uid = ? AND session = ? AND digest IS NULL",
                (row.trace_id, row.uid, row.session),
            )

    def named(self, fact: Fact) -> list[str]:
        """The host says what it calls a trace (``records.REQUEST``): assign the facts that waited for it; the trace, if
        there are any."""
        name, trace_id = (fact.key or {}).get("request"), fact.trace.hex()
        if not isinstance(name, str) or len(fact.trace) != 16:
            return []
        waiting = "UPDATE facts SET trace_id = ? WHERE trace_id IS NULL AND named = ?"
        return [trace_id] if self._state.db.execute(waiting, (trace_id, name[:1000])).rowcount > 0 else []

    def digested(self, row: Row) -> bool:
        """The responses of a trace were read: assign the facts that name it by digest; True when there are any."""
        if row.uid is None:
            return False
        waiting = self._state.db.execute(
            "SELECT * FROM facts WHERE trace_id IS NULL AND uid = ? AND digest IN "
            "(SELECT digest FROM digests WHERE trace_id = ?)",
            (row.uid, row.trace_id),
        ).fetchall()
        # the best match of each comes last, and stays
        waiting.sort(key=lambda fact: (_distance(row.reward, fact["score"]), fact["offset"]), reverse=True)
        own = {(fact["segment"], fact["name"], fact["digest"], fact["output"]): fact["offset"] for fact in waiting}
        for (segment, *_), offset in own.items():
            self._state.db.execute(
                "UPDATE facts SET trace_id = ? WHERE segment = ? AND offset = ?", (row.trace_id, segment, offset)
            )
        return bool(own)

    def _count_of(self, trace_id: str, name: str, digest: str) -> int:
        sql = "SELECT count(*) FROM facts WHERE trace_id = ? AND name = ? AND digest = ?"
        return self._state.count(sql, (trace_id, name, digest))

    def waiting(self) -> int:
        """Number of facts whose trajectory was not read yet."""
        return self._state.count("SELECT count(*) FROM facts WHERE trace_id IS NULL")


def _summary(facts: TokenFacts) -> dict[str, Any]:
    """The summary, and how many columns there are besides: those stay in the segment."""
    return {**token_facts.summary(facts.value.get(token_facts.SUMMARY)), "columns": len(facts.value) - 1}


def _distance(reward: float | None, score: float | None) -> float:
    """How far a trajectory's reward is from the trainer's, which went through a float32. One that is not known yet is
    behind those that match, and before those that do not."""
    if score is None:
        return 0.0
    if reward is None:
        return UNKNOWN
    return 0.0 if math.isclose(reward, score, rel_tol=1e-5, abs_tol=1e-6) else abs(reward - score)


def _stored(value: Any) -> Any:
    """Whole numbers that msgpack cannot hold become text."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value
