"""Build the tree of a trajectory's turns: which turn each turn continues, the resulting chains, why each chain begins.

A turn continues the last turn whose prompt and answer its own prompt keeps: by token ids (``Span.prompt_base``), else
by messages. A chain is a path from a first turn to a turn that no turn continues. Most trajectories are a single chain.
A turn that keeps no answer whole, without a known reason for a branch, counts as the same conversation, rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from autotrace.trajectory.deferred import Continued
from autotrace.trajectory.durations import ABORTED, finish_reason, reported
from autotrace.trajectory.model import DEPTH, Span, Trajectory, above
from autotrace.trajectory.span_text import COMPARED, Said, turns_before
from autotrace.trajectory.token_ids import PROBE, TRIMMED, find, found, kept_of, packed_ids, piece, tokens

SUB_AGENT, COMPACTION, REWRITE, RETRY, BEST_OF, RESTART = (
    "sub-agent", "compaction", "rewrite", "retry", "best-of", "restart",
)  # fmt: skip
"""Reasons why a chain begins: another system prompt or other tools; a summary replaces the history; the history was
rolled back and goes on differently; a failed call is repeated; a prompt is sampled again; an unrelated prompt."""
LOOKED_AT, MOST = 4, 1 << 25
"""Number of latest ends of chains whose tokens a turn is compared with; maximum tokens compared in all."""
SUMMARIES = 32
"""Number of latest turns whose answer may be the summary."""


class Chain(msgspec.Struct, array_like=True, gc=False):
    """Describe a chain. A chain's own turns belong to no earlier chain."""

    number: int
    """Number from 0, in the order of the first own turns."""
    parent: int | None = None
    """Chain that this chain leaves; None for a chain that leaves no chain."""
    after: int = 0
    """Turn (from 1) after which this chain leaves the parent; 0: at the beginning of the parent."""
    kind: str | None = None
    """Reason why the chain leaves the parent; None without a parent."""
    turns: list[int] = []
    """Turns of the chain itself, from 1, in order."""
    before: int = 0
    """Turn that the first own turn continues: the chain shares that turn and all earlier turns. 0: no such turn."""
    ended: int = 0
    """Rank of the chain by the end of the last turn."""


def path(chains: Sequence[Chain], chain: Chain) -> list[int]:
    """Return all turns of a chain, shared turns first."""
    turns, before = chain.turns, chain.before
    for _ in chains:  # chains of a stranger's profile may form a circle
        earlier = next((one for one in chains if before in one.turns), None) if before else None
        if earlier is None:
            break
        turns, before = [turn for turn in earlier.turns if turn <= before] + turns, earlier.before
    return turns


class Tree:
    """Build the tree of a trajectory. Turn numbers count from 1; 0 means no turn."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._reported = reported(trajectory)
        self._turns = trajectory.llm_spans
        self._by_id = trajectory.by_id
        self._numbers = {span.span_id: number for number, span in enumerate(self._turns, 1)}
        self._said = Said(self._turns)
        self._told = next((turn for turn, span in enumerate(self._turns, 1) if self._has_tokens(span)), MOST)
        """First turn that has tokens."""
        self._left = MOST
        self._grow(1)
        main = max(self.chains, key=self._lasted, default=None)
        if main is not None and main.number and main.kind == SUB_AGENT:  # the agent asked for a title first
            self._grow(main.turns[0])

    def _grow(self, main: int) -> None:
        """Build the chains. ``main``: the agent's first turn; another system prompt marks a sub-agent."""
        self._main = main
        self._begun: dict[int, tuple[str, int, int]] = {}
        """First turn of a chain -> reason, turn after which the chain begins, and a turn of the parent."""
        self.before = [0]
        """Turn -> the turn that it continues."""
        self.changed: set[int] = set()
        """Turns that continue a conversation without keeping the conversation's tokens."""
        self._next: dict[int, list[int]] = {}
        """Turn -> the turns that continue it."""
        self._last: dict[int, None] = {}
        """Turns that no turn continues yet, in order."""
        for number in range(1, len(self._turns) + 1):
            before = 0 if number == main else self._continued(number)
            self.before.append(before)
            self._next.setdefault(before, []).append(number)
            self._last.pop(before, None)
            self._last[number] = None
        for turn, (why, after, _) in self._begun.items():
            if why == SUB_AGENT:
                self._begun[turn] = why, self._last_ended(turn, waits=True) or after, 0
        self.of = [0]
        """Turn -> the number of its chain."""
        self.chains: list[Chain] = []
        for turn in range(1, len(self._turns) + 1):
            if turn in (1, main) or turn in self._begun:
                kind, after, _ = self._begun.get(turn, (None, 0, 0))
                self.chains.append(Chain(len(self.chains), None, after, kind, [], self.before[turn]))
                self.of.append(len(self.chains) - 1)
            else:
                self.of.append(self.of[self.before[turn]])
            self.chains[self.of[turn]].turns.append(turn)
        ends = sorted(self.chains, key=lambda chain: (self._turns[chain.turns[-1] - 1].end_ns or 0, chain.number))
        for place, chain in enumerate(ends):
            chain.ended = place
            if chain.kind is not None:
                chain.parent = self.of[chain.after or self._begun[chain.turns[0]][2] or main]

    def _lasted(self, chain: Chain) -> int:
        first, last = self._turns[chain.turns[0] - 1], self._turns[chain.turns[-1] - 1]
        return 0 if chain.before else (last.end_ns or last.start_ns) - first.start_ns

    def paths(self) -> list[list[int]]:
        """Return the turns of each chain, the chain that ended last first."""
        return [path(self.chains, chain) for chain in sorted(self.chains, key=lambda chain: -chain.ended)]

    def begins(self, turn: int) -> Chain | None:
        """Return the chain that leaves another chain with this turn."""
        chain = self.chains[self.of[turn]]
        return chain if chain.kind is not None and chain.turns[0] == turn else None

    def words(self, turn: int) -> str:
        """Return ``chain 2: rewrite after turn 4`` if a turn leaves another chain; ``chain 2`` elsewhere in a
        trajectory that branches; empty in others."""
        if len(self.chains) < 2:
            return ""
        chain, place = self.begins(turn), f"chain {self.of[turn]}"
        if chain is None:
            return place
        return f"{place}: {chain.kind} " + (f"after turn {chain.after}" if chain.after else "at the beginning")

    # -- one turn ------------------------------------------------------------------------------------------------------

    def _continued(self, turn: int) -> int:
        """Return the turn that ``turn`` continues; record the beginning of a chain."""
        span = self._turns[turn - 1]
        if turn == 1:
            return self._begin(turn, SUB_AGENT, 0) if self._main > 1 else 0
        if not self._has_tokens(span) or self._told >= turn:
            return self._by_messages(turn)
        base, keep = self._base(turn)
        before = base
        while before and self._total(before) > keep:
            before = self.before[before]
        if before and before not in self._next:
            return before
        if (twin := self._twin(turn, base, keep, before)) is not None:
            return self._begin(turn, RETRY if self._failed(twin) else BEST_OF, before, before, twin)
        for end in self._ends(turn, before):
            if self._is_same(turn, end, base, keep, before):
                self.changed.add(turn)
                return end
        return self._leave(turn, before, before) if before else self._anew(turn, base)

    def _begin(self, turn: int, kind: str, after: int, before: int = 0, left: int = 0) -> int:
        self._begun[turn] = kind, after, left
        return before

    def _leave(self, turn: int, before: int, kept: int) -> int:
        """Begin a chain that continues ``before`` with other words, or ``kept`` with a summary of later turns."""
        summary = self._summary(turn, kept=True) if self._said.has_whole_history(turn) else 0
        return self._begin(turn, COMPACTION, summary, kept) if summary else self._begin(turn, REWRITE, before, before)

    def _anew(self, turn: int, base: int = 0) -> int:
        """Begin a chain that keeps no earlier answer; ``base``: a turn whose prompt is kept."""
        if self._said.is_another(turn, self._main) or self._other_agent(turn):
            return self._begin(turn, SUB_AGENT, self._last_ended(turn))
        if summary := self._summary(turn, kept=bool(base) and self._said.has_whole_history(turn)):
            return self._begin(turn, COMPACTION, summary)
        return self._begin(turn, REWRITE, 0, 0, base) if base else self._begin(turn, RESTART, self._last_ended(turn))

    # -- by tokens -----------------------------------------------------------------------------------------------------

    def _has_tokens(self, span: Span) -> bool:
        return span.prompt_base is not None or span.packed_prompt is not None

    def _total(self, turn: int) -> int:
        span = self._turns[turn - 1]
        return (span.prompt_tokens or 0) + (span.response_tokens or 0)

    def _base(self, turn: int) -> tuple[int, int]:
        """Return the earlier turn with whose prompt this turn begins, and the number of kept tokens; 0: none."""
        span: Span | None = self._turns[turn - 1]
        keep = span.prompt_keep if span is not None else 0
        for _ in range(DEPTH):
            span = None if span is None else self._by_id.get(span.prompt_base or "")
            if span is None:
                break
            if 0 < (number := self._number(span)) < turn:
                return number, keep
            keep = min(keep, span.prompt_keep)
        return self._begins_with(turn)

    def _number(self, span: Span) -> int:
        """Return the turn of a call or of an engine request; 0: no turn."""
        if span.role == "engine" and span.span_id not in self._numbers:
            span = above(span, self._by_id, ("llm",)) or span
        return self._numbers.get(span.span_id, 0)

    def _begins_with(self, turn: int) -> tuple[int, int]:
        """Find the base if none was recorded: another process wrote the earlier turn, or another project the run."""
        span = self._turns[turn - 1]
        prompt = span.packed_prompt if span.prompt_base is None else None
        if prompt is None or span.prompt_tokens not in (None, tokens(prompt)):
            return 0, 0
        best, most = 0, 0
        for number in turns_before(turn):
            other, total = self._turns[number - 1], self._total(number)
            answered = other.packed_response
            start = total - tokens(answered or b"")
            if not answered or not most < total <= tokens(prompt) or piece(prompt, start, total) != answered:
                continue
            if _prompt(other) == piece(prompt, 0, start):
                best, most = number, total
        return best, most

    def _twin(self, turn: int, base: int, keep: int, before: int) -> int | None:
        """Return an earlier turn with the same prompt."""
        span = self._turns[turn - 1]
        for number in reversed(self._next.get(before, [])[-COMPARED:]):
            other = self._turns[number - 1]
            if span.prompt_tokens is None or other.prompt_tokens != span.prompt_tokens:
                continue
            if (number == base and keep == span.prompt_tokens) or (
                span.packed_prompt is not None
                and (span.packed_prompt, span.prompt_base, span.prompt_keep)
                == (other.packed_prompt, other.prompt_base, other.prompt_keep)
            ):
                return number
        return None

    def _is_same(self, turn: int, end: int, base: int, keep: int, before: int) -> bool:
        """Return whether the turn continues the conversation that ends with ``end``, with other tokens."""
        span, last = self._turns[turn - 1], self._turns[end - 1]
        if self._left <= 0:
            return False
        answered, asked, prompt = last.packed_response, _prompt(last), _prompt(span)
        self._left -= tokens((asked or b"") + (prompt or b""))
        if answered is None or asked is None or prompt is None or self._said.goes_otherwise(turn, end):
            return False
        if before and span.prompt_base and not (base == end and keep >= tokens(asked)):
            new, added = last.packed_prompt, span.packed_prompt
            if self.before[end] != before or not new or not added:
                return False
            if added.startswith(new) or find(added, new[-PROBE // 2 * 4 :] + piece(answered, 0, PROBE)) < 0:
                return False
        first = self._turns[0].prompt_tokens or 0
        return kept_of(asked + answered, prompt, tokens(asked), first) is not None

    # -- by messages ---------------------------------------------------------------------------------------------------

    def _by_messages(self, turn: int) -> int:
        span, said = self._turns[turn - 1], self._said
        prompt = vars(span).get("_prompt_text")
        if isinstance(prompt, Continued) and 0 < (base := self._numbers.get(prompt.base or "", 0)) < turn:
            return base if base not in self._next else self._begin(turn, REWRITE, base, base)
        ends = list(self._ends(turn, 0))
        latest = ends[0] if ends else turn - 1
        if not said.is_whole(turn):
            return latest
        before, twin = said.continued(turn)
        if before and (before not in self._next or before == twin):
            return before
        if twin:
            return self._begin(turn, BEST_OF, self.before[twin], self.before[twin], twin)
        if before:
            return self._leave(turn, before, before if said.keeps(turn, before) else self.before[before])
        if said.is_another(turn, self._main):
            return self._begin(turn, SUB_AGENT, self._last_ended(turn))
        if said.has_history(turn) or not said.system(turn):
            if summary := self._summary(turn, kept=True):
                return self._begin(turn, COMPACTION, summary)
            return next((end for end in ends if said.system(end) == said.system(turn)), latest)
        return self._anew(turn)

    def _ends(self, turn: int, below: int) -> Iterator[int]:
        """Yield ended turns that no turn continues yet, latest first; ``below``: only continuations of that turn."""
        found = 0
        for number in islice(reversed(self._last), COMPARED):
            ended, at = self._turns[number - 1].end_ns, number
            if number <= below or ended is None or ended > self._turns[turn - 1].start_ns:
                continue
            while below and at > below:
                at = self.before[at]
            if at == below or not below:
                found += 1
                yield number
            if found == LOOKED_AT:
                return

    def _last_ended(self, turn: int, waits: bool = False) -> int:
        """Return the turn that ended last before ``turn`` began; 0: none. ``waits``: look only at turns that a later
        turn continues, as in an agent that waits for ``turn``."""
        start = self._turns[turn - 1].start_ns
        ends = (
            (self._turns[number - 1].end_ns, number)
            for number in turns_before(turn)
            if not waits or any(following > turn for following in self._next.get(number, ()))
        )
        return max(((end, number) for end, number in ends if end is not None and end <= start), default=(0, 0))[1]

    def _failed(self, turn: int) -> bool:
        span = self._turns[turn - 1]
        return span.status != "OK" or finish_reason(self._reported.get(span.span_id, span.attributes)) in ABORTED

    def _other_agent(self, turn: int) -> bool:
        """Return whether an agent that the first turn's agent called made the turn."""
        first, own = (above(self._turns[n - 1], self._by_id, ("agent", "trajectory")) for n in (self._main, turn))
        return own is not None and own is not first and above(own, self._by_id, ("agent",)) is not None

    def _summary(self, turn: int, kept: bool) -> int:
        """Return the latest turn whose answer replaces the history here; 0: none. ``kept``: see ``summary``."""
        earlier = turns_before(turn)[:SUMMARIES]
        prompt = self._turns[turn - 1].packed_prompt
        if kept or prompt is None:
            return self._said.summary(turn, earlier, kept)
        for one in earlier:
            answered = self._turns[one - 1].packed_response
            if answered is None and self._said.summary(turn, (one,)):
                return one
            places = range(0, tokens(answered or b"") - TRIMMED - PROBE + 1, PROBE)
            if places and 2 * len(found(answered or b"", prompt, places, 0)) > len(places):
                return one
        return 0


def tree_of(trajectory: Trajectory) -> Tree:
    """Return the tree of the turns; built once, because ``spans`` no longer changes."""
    made = vars(trajectory).get("_tree")
    if not isinstance(made, Tree):
        made = trajectory.__dict__["_tree"] = Tree(trajectory)
    return made


def _prompt(span: Span) -> bytes | None:
    """Return the whole prompt, without building a list if the whole prompt was recorded."""
    new = span.packed_prompt
    if new is not None and not span.prompt_keep and span.prompt_tokens == tokens(new):
        return new
    return packed_ids(span.prompt_ids)
