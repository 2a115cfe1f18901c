"""Explain changes and differences: choose sets of rollouts to compare, find their differences, and put the answer in
words.

    watch = Why(most=512)
    for step in steps:
        watch.add(step)
    for answer in watch.answers():
        print(*words(answer), sep="\n")

The sets: after and before a change of the mean reward; the rollouts that score below, and above, the mean of their
group; groups without signal and others. A command adds sets of a person's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from autotrace.insight.changes import Change, changes
from autotrace.insight.contrast import compare
from autotrace.insight.finding import Cause, Explanation
from autotrace.insight.rollouts import Rollouts, Row
from autotrace.insight.step_records import Step, grouped
from autotrace.insight.traits import Stage

WINDOW = 16
"""Compare so many steps on each side of a change."""
UNKNOWN = "the recorded data does not explain this"


class Why:
    """Receive the steps of a run in order, and keep ``most`` rollouts of each step as rows."""

    def __init__(self, most: int, steps: int | None = None, window: int = WINDOW) -> None:
        """Start without steps. ``steps``: keep only the last steps; ``window``: compare so many steps on each side of a
        change."""
        self._most, self._steps, self._window = most, steps, window
        self.rollouts = Rollouts()
        self.by_step: dict[int, list[Row]] = {}
        self._known: dict[tuple[int, int], Explanation] = {}

    def add(self, step: Step) -> None:
        """Keep the training rollouts of a step; the same step again replaces the earlier rollouts."""
        if step.number is None or step.number < 0:
            return
        self.by_step[step.number] = self.rollouts.rows_of(step, step.training, self._most)
        while self._steps is not None and len(self.by_step) > self._steps:
            del self.by_step[min(self.by_step)]

    def changes_up_to(self, step: int | None) -> list[Change]:
        """Return the changes that the steps up to ``step`` show; empty if ``step`` has no rollout."""
        return changes({n: rows for n, rows in self.by_step.items() if n <= step}) if step in self.by_step else []

    def answers(self) -> Iterator[Explanation]:
        """Yield the causes of changes of the mean reward, the largest change first. Without a change, compare low and
        high rewards of the same groups."""
        found = sorted(changes(self.by_step), key=lambda one: -abs(one.mean - one.mean_before))
        yield from map(self.of_change, found)
        if not found:
            yield from self._within_groups()

    def of_change(self, change: Change) -> Explanation:
        """Explain why the mean reward changed."""
        last = min(change.last, change.step + self._window - 1)
        if (known := self._known.get((change.step, last))) is not None:
            return known
        after = self._between(change.step, last)
        before = self._between(max(change.since, change.step - self._window), change.step - 1)
        title = f"mean reward {'fell' if change.is_drop else 'rose'} from {change.mean_before:.4g} to {change.mean:.4g}"
        answer = compare(after, before, self.rollouts.traits, title=f"{title} at step {change.step}")
        answer.step, answer.mean, answer.mean_before = change.step, change.mean, change.mean_before
        self._known[change.step, last] = answer
        return answer

    def of_groups(self, title: str, groups: Collection[str], step: int) -> Explanation | None:
        """Explain why ``groups`` of a step differ from the other groups of the run; None: nothing tells the groups
        apart."""
        numbers = {self.rollouts.group(group) for group in groups}
        rows = [row for row in self.by_step.get(step, ()) if row.group in numbers]
        rest = [row for row in self._last() if row.group not in numbers]
        answer = compare(rows, rest, self.rollouts.traits, False, title, "in other groups")
        answer.causes = [one for one in answer.causes if one.position != Stage.TIME.name.lower()]
        return answer if answer.causes else None

    def _between(self, first: int, last: int) -> list[Row]:
        return [row for number, rows in self.by_step.items() if first <= number <= last for row in rows]

    def _last(self) -> list[Row]:
        """Return the rollouts of the last steps."""
        return [row for number in sorted(self.by_step)[-self._window :] for row in self.by_step[number]]

    def _within_groups(self) -> Iterator[Explanation]:
        low, high = split_by_group(self._last())
        title = "rollouts below the mean reward of their group"
        if low and high:
            yield compare(low, high, self.rollouts.traits, True, title, "above it")


def of_two(title: str, other: str, sets: tuple[Sequence[Row], Sequence[Row]], table: Rollouts) -> Explanation:
    """Explain why two sets of a person differ, whose traits are in ``table``."""
    rewards = [{row.reward for row in rows} for rows in sets]
    answer = compare(*sets, table.traits, not rewards[0] & rewards[1], title, other)
    if answer.mean is not None and answer.mean_before is not None:
        answer.title += f": mean reward {answer.mean:.4g} and {answer.mean_before:.4g}"
    return answer


def split_by_group(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Select the rollouts that score below, and above, the mean of their group."""
    by_group = grouped((row for row in rows if row.reward is not None), lambda row: row.group)
    if by_group and max(map(len, by_group.values())) == 1:  # no groups: the run is a single group
        by_group = {0: [row for (row,) in by_group.values()]}
    low, high = [], []
    for own in by_group.values():
        mean = sum(row.reward or 0.0 for row in own) / len(own)
        low += [row for row in own if (row.reward or 0.0) < mean - 1e-9]
        high += [row for row in own if (row.reward or 0.0) > mean + 1e-9]
    return low, high


def words(answer: Explanation, of: Callable[[Cause], Iterable[str]] | None = None) -> Iterator[str]:
    """Print an answer for people: its title, then each cause with its consequences. ``of``: more lines about a
    cause."""
    yield answer.title
    if not answer.causes:
        yield f"  {unexplained(answer)}"
    for cause in answer.causes:
        yield f"  {headline(cause, answer.other)}"
        yield from (f"    {line}" for line in details(cause))
        yield from (f"    {line}" for line in (of(cause) if of is not None else ()))
    if answer.note:
        yield f"  {answer.note}"


def unexplained(answer: Explanation) -> str:
    """Say that nothing tells the sets apart."""
    if not answer.tested:
        return f"{UNKNOWN}: no trait of these rollouts is recorded, or they are too few to compare"
    if answer.symptoms:
        seen = "; ".join(headline(one, answer.other) for one in answer.symptoms)
        return f"{UNKNOWN}; these differences may be consequences: {seen}"
    sets = f"{answer.rollouts:,} rollouts from {answer.rollouts_before:,}"
    return f"{UNKNOWN}: none of {answer.tested} recorded traits tells these {sets} others apart"


def headline(cause: Cause, other: str) -> str:
    """Return ``83% of the rollouts (0% before), since step 12: search answers "..."``; without the step if it is the
    first one that is compared."""
    since = f", since step {cause.since}" if cause.since is not None else ""
    return f"{share(cause.share)} of the rollouts ({share(cause.share_before)} {other}){since}: {cause.words}"


def details(cause: Cause) -> Iterator[str]:
    """Yield the explained part, and the traits that come with the cause."""
    parts = []
    if cause.mean_with is not None and cause.mean_without is not None:
        parts.append(f"reward of these rollouts {cause.mean_with:.2f}, of others {cause.mean_without:.2f}")
    if cause.explains is not None:
        parts.append(f"explains {min(1.0, cause.explains):.0%} of the difference")
    if parts:
        yield "; ".join(parts)
    if cause.also:
        yield f"the same rollouts: {'; '.join(cause.also)}"
    if cause.follows:
        yield f"consequences: {'; '.join(cause.follows)}"


def share(value: float) -> str:
    """Format a share: ``83%``, ``0.4%``."""
    return f"{value:.0%}" if value in (0.0, 1.0) or 0.01 <= value <= 0.99 else f"{100 * value:.3g}%"
