"""Compare two sets of rollouts: find the traits that tell the sets apart, the early causes first.

    causes = compare(after, before, rollouts.traits)

One mechanism explains a fall of the reward, groups without signal, and the difference of two runs:

1. Each trait is a set of rows. A quantity is cut at its quartiles. Traits with equal sets are one *candidate*: no test
   can tell equal sets apart, so one test counts for all of them.
2. A candidate's shares in the two sets are compared by Fisher's exact test. Rollouts of one prompt are alike, so counts
   are divided by the design effect: how much more the counts of the groups vary than the counts of independent
   rollouts. Holm's correction counts all candidates. With few groups no candidate passes.
3. A candidate *explains* (difference of the shares) x (effect on the reward) of the difference of the mean rewards
   (Oaxaca's decomposition). The effect is measured within each set, between rollouts with and without the trait. A
   trait that came at the same time and changes nothing therefore explains nothing.
4. If several candidates explain about as much, the earliest in a rollout is the cause. Candidates of nearly the same
   rollouts follow from the cause, and are listed below the cause. The next cause is searched among other rollouts.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from autotrace.insight.finding import Cause, Explanation
from autotrace.insight.rollouts import Row
from autotrace.insight.traits import Stage

ALPHA = 0.05
"""Limit the chance, over all candidates, of a false cause."""
SUPPORT, SUPPORT_SHARE = 4, 0.01
"""Require so many rollouts, and such a share of the rollouts, with the trait, and without."""
APART, APART_ALONE = 0.1, 0.2
"""Require such a difference of the shares; the second number counts where the rewards do not differ."""
EXPLAINS, EXPLAINS_CHOSEN, EXPLAINS_OF_TIME, EXPLAINS_GIVEN = 0.15, 0.25, 0.5, 0.1
"""Require that a cause explains such a part of the difference; the second number counts for sets chosen by reward, the
third for a time or a place, the last for what the model is given: a prompt, sampling parameters, weights."""
AS_MUCH = 0.75
"""Let the position decide above this share of the best explanation."""
NESTED = 0.85
"""Let a candidate follow from the cause above this share of common rows."""
SURE = 2.6
"""Require an effect of so many standard errors."""
ALL = 0.9
"""Count a trait that ceased late in a rollout only if such a share of the rollouts had the trait before."""
CELL = 3
"""Count a mean only from so many rows."""
HEADS, BELOW, SYMPTOMS = 3, 5, 2
"""Name so many causes, so many traits that follow from each, and so many symptoms if no cause is found."""
_DECIDED = (Stage.ANSWER, Stage.PARSING, Stage.END, Stage.REWARD)


@dataclass(eq=False)
class _Candidate:
    """Hold traits of the same rows, turned so that the first set has more of the rows."""

    mask: int
    texts: list[tuple[bool, Stage, str]]
    """List whether the rows lack the trait, the trait's position, its words."""
    share: float
    share_before: float
    chance: float
    explains: float | None = None
    weight: float = 0.0

    @property
    def is_symptom(self) -> bool:
        """Return whether the words are about a length or a number that the model's answers decide: rollouts that fail
        are longer, or shorter, whatever made them fail."""
        return self.first[1] in _DECIDED and _CUT.search(self.first[2]) is not None

    @property
    def first(self) -> tuple[bool, Stage, str]:
        return min(self.texts, key=_rank)


def compare(
    rows: Sequence[Row], before: Sequence[Row], traits: Sequence[tuple[Stage, str]], chosen_by_reward: bool = False,
    title: str = "", other: str = "before",
) -> Explanation:  # fmt: skip
    """Find the causes for which ``rows`` differ from ``before``, the first cause first. ``chosen_by_reward``: the sets
    were chosen by reward, so an effect within a set means nothing."""
    return _Comparison(rows, before, traits, chosen_by_reward).made(title, other)


class _Comparison:
    def __init__(
        self, rows: Sequence[Row], before: Sequence[Row], traits: Sequence[tuple[Stage, str]], chosen: bool
    ) -> None:
        self._rows, self._traits, self._chosen = [*rows, *before], traits, chosen
        self._sizes = len(rows), len(before)
        self._full = (1 << len(self._rows)) - 1
        self._first = (1 << len(rows)) - 1
        # the side and the group of each row
        self._cluster_of = [(place >= len(rows), row.group) for place, row in enumerate(self._rows)]
        self._clusters = Counter(self._cluster_of)
        squares = sum(size * size for size in self._clusters.values())
        self._largest = squares / max(1, len(self._rows))
        self._means = self._mean(self._first), self._mean(self._full ^ self._first)
        rewards, mean = self._rewards(self._full), self._mean(self._full) or 0.0
        self._sd = math.sqrt(sum((one - mean) ** 2 for one in rewards) / max(1, len(rewards)))
        first, other = self._means
        self._gap = None if first is None or other is None or abs(first - other) <= 0.1 * self._sd else first - other

    def made(self, title: str, other: str) -> Explanation:
        candidates = self._candidates() if min(self._sizes) else []
        kept = self._significant(candidates)
        causes = list(self._causes(kept))
        symptoms = [] if causes else [self._cause(one, []) for one in self._explaining(kept, self._full)[:SYMPTOMS]]
        return Explanation(title, other, causes, len(candidates), *self._sizes, *self._means, symptoms=symptoms)

    # -- candidates ----------------------------------------------------------------------------------------------------

    def _candidates(self) -> list[_Candidate]:
        by_mask: dict[int, list[tuple[bool, Stage, str]]] = {}
        least = max(SUPPORT, SUPPORT_SHARE * len(self._rows))
        for position, words, places in self._sets(least):
            if least <= len(places) <= len(self._rows) - least:
                mask = _mask(places, len(self._rows))
                lacks = bool(mask & 1)  # equal sets, and their complements, have one key
                by_mask.setdefault(self._full ^ mask if lacks else mask, []).append((lacks, position, words))
        return [self._candidate(mask, texts) for mask, texts in by_mask.items()]

    def _sets(self, least: float) -> Iterator[tuple[Stage, str, list[int]]]:
        counts = Counter(chain.from_iterable(row.traits for row in self._rows))
        having = {trait: list[int]() for trait, count in counts.items() if least <= count < len(self._rows)}
        measured = defaultdict[int, list[tuple[float, int]]](list)
        for place, row in enumerate(self._rows):
            for trait in row.traits:
                if trait in having:
                    having[trait].append(place)
            for trait, value in zip(row.quantities, row.values, strict=True):
                measured[trait].append((value, place))
        for trait, places in having.items():
            yield (*self._traits[trait], places)
        for trait, pairs in measured.items():
            position, words = self._traits[trait]
            pairs.sort()
            values, places = [value for value, _ in pairs], [place for _, place in pairs]
            for cut in _cuts(values):
                at = bisect_left(values, cut)
                yield position, f"{words}: at least {cut:.4g}", places[at:]
                yield position, f"{words}: below {cut:.4g}", places[:at]

    def _candidate(self, mask: int, texts: list[tuple[bool, Stage, str]]) -> _Candidate:
        one, other = (mask & self._first).bit_count(), (mask >> self._sizes[0]).bit_count()
        shares = one / self._sizes[0], other / self._sizes[1]
        effect = self._design_effect(mask, shares)
        counts = (one / effect, self._sizes[0] / effect, other / effect, self._sizes[1] / effect)
        if shares[0] < shares[1]:
            mask, shares = self._full ^ mask, (1 - shares[0], 1 - shares[1])
            texts = [(not lacks, position, words) for lacks, position, words in texts]
        return _Candidate(mask, texts, *shares, fisher(*counts))

    def _design_effect(self, mask: int, shares: tuple[float, float]) -> float:
        expected = sum(size * share * (1 - share) for size, share in zip(self._sizes, shares, strict=True))
        if expected < 1e-9:
            return self._largest
        having = Counter(map(self._cluster_of.__getitem__, _places(mask)))
        found = sum((having[cluster] - shares[cluster[0]] * size) ** 2 for cluster, size in self._clusters.items())
        return min(max(1.0, found / expected), max(1.0, self._largest))

    # -- candidates that differ, and explain ---------------------------------------------------------------------------

    def _significant(self, candidates: list[_Candidate]) -> list[_Candidate]:
        kept, highest = [], 0.0
        for place, one in enumerate(sorted(candidates, key=lambda one: one.chance)):
            highest = one.chance = min(1.0, max(highest, one.chance * (len(candidates) - place)))
            apart = one.share - one.share_before
            if one.chance >= ALPHA or apart < (APART if self._gap is not None else APART_ALONE):
                continue
            if one.first[1] is Stage.PLACE and apart > 0.95 and not self._chosen:
                continue  # every new start has another process
            kept.append(one)
        return kept

    def _explaining(self, kept: list[_Candidate], among: int) -> list[_Candidate]:
        """Select the candidates of ``kept`` that explain enough with the rows ``among``: the rows without a cause so
        far."""
        for one in kept:
            one.weight = one.share - one.share_before
            if self._gap is not None:
                inside = one.mask & among
                apart = (inside & self._first).bit_count() / self._sizes[0]
                apart -= (inside >> self._sizes[0]).bit_count() / self._sizes[1]
                effect = self._effect(one, among)
                one.explains = None if effect is None else apart * effect / self._gap
                at = one.first[1]
                least = EXPLAINS_OF_TIME if at >= Stage.TIME else EXPLAINS if at > Stage.SAMPLING else EXPLAINS_GIVEN
                enough = max(least, EXPLAINS_CHOSEN) if self._chosen and at > Stage.SAMPLING else least
                one.weight = one.explains if one.explains is not None and one.explains >= enough else 0.0
        return sorted((one for one in kept if one.weight > 0), key=lambda one: -one.weight)

    def _effect(self, one: _Candidate, among: int) -> float | None:
        """Measure the trait's effect on the reward: within the sets, or between the sets if neither set has both kinds
        of rows."""
        sides = [among] if self._chosen else [self._first & among, among & ~self._first]
        effects = []
        for side in sides:
            with_it, without = one.mask & side, side & ~one.mask
            counts = with_it.bit_count(), without.bit_count()
            means = self._mean(with_it), self._mean(without)
            if min(counts) >= CELL and means[0] is not None and means[1] is not None:
                effect = means[0] - means[1]
                error = self._error(with_it, means[0]) + self._error(without, means[1])
                effects.append(effect if abs(effect) > SURE * math.sqrt(error) else 0.0)
        if effects:
            return sum(effects) / len(effects)
        return self._gap if one.share - one.share_before > 0.5 else None

    def _rewards(self, mask: int) -> list[float]:
        return [reward for place in _places(mask) if (reward := self._rows[place].reward) is not None]

    def _mean(self, mask: int) -> float | None:
        rewards = self._rewards(mask)
        return sum(rewards) / len(rewards) if rewards else None

    def _error(self, mask: int, mean: float) -> float:
        """Compute the squared standard error of a mean."""
        count = len(rewards := self._rewards(mask))
        return (sum((reward - mean) ** 2 for reward in rewards) / count + 0.02 * self._sd**2) / count if count else 0.0

    # -- causes and consequences ---------------------------------------------------------------------------------------

    def _causes(self, kept: list[_Candidate]) -> Iterator[Cause]:
        left, among = kept, self._full
        for _ in range(HEADS):
            explaining = self._explaining(left, among)
            # a trait that ceased says less than a trait that came, and nothing if only some rollouts had the trait
            explaining = [one for one in explaining if not one.is_symptom]
            came = [one for one in explaining if not _is_late(one.first)]
            if not came and (self._gap is None or self._chosen or among != self._full):
                return
            explaining = came or [one for one in explaining if one.share_before <= 1 - ALL]
            if not explaining:
                return
            strong = [one for one in explaining if one.weight >= AS_MUCH * explaining[0].weight]
            head = min(strong, key=lambda one: (one.first[1] >= Stage.TIME, *_rank(one.first), -one.weight))
            below = [one for one in left if one is not head and one.weight > 0 and _nested(head, one)]
            left = [one for one in left if one is not head and one not in below]
            among &= ~head.mask
            yield self._cause(head, below)

    def _cause(self, head: _Candidate, below: list[_Candidate]) -> Cause:
        lacks, position, words = head.first
        mask = self._full ^ head.mask if lacks else head.mask
        share, before = (1 - head.share, 1 - head.share_before) if lacks else (head.share, head.share_before)
        below.sort(key=lambda one: (*_rank(one.first), -one.weight))
        inside = self._first if share >= before else self._full ^ self._first
        without = self._full ^ mask
        shown, lacking, rest = (
            [self._rows[place].trace_id for place in _places(rows)[:3]]
            for rows in (mask & inside, without & self._first, without)
        )
        first, since = (min(self._rows[at].step or 0 for at in _places(rows)) for rows in (self._first, mask))
        return Cause(
            words, position.name.lower(), share, before, self._mean(mask), self._mean(without), head.explains,
            head.chance, mask.bit_count(), "" if _CUT.search(words) else f"trait = {quoted(words)}",
            _said(sorted(head.texts, key=_rank), words),
            _said([one.first for one in below], words), shown, lacking or rest,
            since if since > first and share > before else None,
        )  # fmt: skip


def _is_late(text: tuple[bool, Stage, str]) -> bool:
    """Return whether the words are about a trait that ceased, late in a rollout."""
    return text[0] and text[1] > Stage.SAMPLING


def _rank(text: tuple[bool, Stage, str]) -> tuple[bool, bool, Stage, bool, str]:
    """Sort the words for equal sets: a text before a quantity, a trait that came before a trait that ceased, the
    earliest."""
    lacks, position, words = text
    return _CUT.search(words) is not None, _is_late(text), position, lacks, words


def _said(texts: Sequence[tuple[bool, Stage, str]], but: str) -> list[str]:
    """Select the words of present traits, one cut of each quantity; absent traits are skipped."""
    by_quantity: dict[str, str] = {}
    for lacks, _, words in texts:
        if not lacks:
            by_quantity.setdefault(_CUT.sub("", words), words)
    by_quantity.pop(_CUT.sub("", but), None)
    return list(by_quantity.values())[:BELOW]


_CUT = re.compile(r": (?:at least|below) \S+\Z")


def quoted(words: str) -> str:
    """Quote ``words`` as a text of a condition."""
    return "'{}'".format(words.replace("'", "''"))


def _nested(head: _Candidate, one: _Candidate) -> bool:
    common = (head.mask & one.mask).bit_count()
    return common >= NESTED * min(head.mask.bit_count(), one.mask.bit_count())


def _cuts(values: Sequence[float]) -> list[float]:
    """Return the values at which a quantity is cut: all values if few, otherwise the quartiles
    and the edges: most rollouts may have the least or the largest value."""
    distinct = sorted(set(values))
    if len(distinct) <= 4:
        return distinct[1:]
    quartiles = {values[len(values) * part // 4] for part in (1, 2, 3)}
    return sorted(quartiles - {distinct[0]} | {distinct[1], distinct[-1]})


def _mask(places: Sequence[int], size: int) -> int:
    bits = bytearray((size + 7) // 8)
    for place in places:
        bits[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(bits, "little")


def _places(mask: int) -> list[int]:
    """List the places of the set bits."""
    parts = enumerate(mask.to_bytes((mask.bit_length() + 7) // 8, "little"))
    return [8 * at + bit for at, byte in parts if byte for bit in _BITS[byte]]


_BITS = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]


def fisher(one: float, of_one: float, other: float, of_other: float) -> float:
    """Compute the probability that shares differ so much by chance, two-sided: ``one`` of ``of_one`` against ``other``
    of ``of_other`` (Fisher's exact test; counts are rounded towards no difference)."""
    n1, n2 = max(1, round(of_one)), max(1, round(of_other))
    if one * of_other < other * of_one:
        n1, n2, one, other = n2, n1, other, one
    having = min(n1, math.floor(one + 1e-9)), min(n2, math.ceil(other - 1e-9))
    total = sum(having)
    term = math.exp(_ways(n1, having[0]) + _ways(n2, having[1]) - _ways(n1 + n2, total))
    tail, count = 0.0, having[0]
    while count <= min(n1, total) and total - count <= n2:
        tail += term
        if term < 1e-12 * tail:
            break
        term *= (n1 - count) * (total - count) / ((count + 1) * (n2 - total + count + 1))
        count += 1
    return min(1.0, 2 * tail)


def _ways(of: int, count: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(count + 1) - math.lgamma(of - count + 1)
