"""The files of one run, as they grow: each trajectory is in them once, in its newest version.

A delivery becomes one new file a table and step. A trajectory that was there before replaces itself: the files that
have it are written anew without it, together with its new rows. What is known of a trajectory later (reward, advantage)
changes its rows in ``trajectories`` and ``facts`` only; the large tables are left as they are.

A step's small files are merged when there are many, and when the run has gone on to later steps.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from autotrace.sinks.parquet import journal
from autotrace.sinks.parquet.partition import File, Partition, batches, located, new_name
from autotrace.sinks.parquet.store import Store, failed
from autotrace.sinks.parquet.writing import TableFile
from autotrace.tables import arrow
from autotrace.tables.rollout import Rollout
from autotrace.tables.schema import OF_TRAJECTORIES
from autotrace.trajectory.model import Trajectory

LARGE = ("turns", "spans")
"""Tables whose rows are the same whatever becomes known of a trajectory later."""
MANY = 32
"""Small files of one table and step that are merged while the step goes on."""
FULL_BYTES = 64 << 20
FULL_ROWS = {"trajectories": 2_048, "facts": 32_768, "tokens": 2_048}
"""A file that has as much is not merged any more. Fewer rows where a late fact rewrites the file."""
FEW = {"trajectories": 2, "facts": 2, "tokens": 2, "turns": 4, "spans": 4}
"""Small files that are merged once a step is behind; of large tables a few more may stay: merging costs as much as
writing."""
USEFUL_BYTES = 2 << 20
"""A file of a large table that has as much is left as it is once its step is behind: a step then ends with fewer than
``MANY`` of them."""
BEHIND = 2
"""A step is behind once there are trajectories of a step that much later."""
MOST_PARTITIONS = 8
"""Steps of which it is kept in memory which file has which trajectory."""


@dataclass
class _Change:
    """New files, and those that they replace."""

    parts: dict[str, Path] = field(default_factory=dict)
    replaced: list[str] = field(default_factory=list)
    done: list[Callable[[], object]] = field(default_factory=list)
    """What to remember once it is done."""
    bytes: int = 0
    """Before compression."""


class Dataset:
    """The files of one run. ``exclusive`` is held while files are replaced. All methods raise ``SinkError``."""

    def __init__(
        self, store: Store, project: str | None, run_id: str, exclusive: Callable[[], AbstractContextManager[object]]
    ) -> None:
        self._store = store
        self._project, self._run_id = project, run_id
        self._exclusive = exclusive
        self._is_alone = False
        self._writer = os.urandom(4).hex()
        self._partitions: OrderedDict[int | None, Partition] = OrderedDict()
        self._unmerged: dict[int | None, None] = {}
        self._begun = False
        self._settled = False
        """No change is known that was begun and did not end."""

    def write(self, trajectories: Sequence[Trajectory]) -> int:
        """Store ``trajectories``; bytes that were written, before compression."""
        rollouts = [Rollout(trajectory) for trajectory in trajectories]
        try:
            self._settle()
            if not self._begun:
                self._begin()
            return self._write(rollouts)
        except BaseException:
            self._partitions.clear()  # what is there is read again
            raise
        finally:
            for rollout in rollouts:
                rollout.release()

    def _write(self, rollouts: list[Rollout]) -> int:
        by_step: dict[int | None, list[Rollout]] = {}
        for rollout in rollouts:
            by_step.setdefault(rollout.step, []).append(rollout)
        ids = frozenset(rollout.trace_id for rollout in rollouts)
        known = any(not ids.isdisjoint(self._partition(step).ids) for step in {None, *by_step})
        change = _Change()
        try:
            if not known:
                for step, of_step in by_step.items():
                    self._add(change, self._partition(step), of_step)
                with self._alone():
                    self._commit(change)
            else:
                with self._alone():
                    for step in {None, *by_step}:
                        self._partition(step).load(self._store)
                        self._replace(change, self._partition(step), by_step.get(step, []), ids)
                    self._commit(change)
        except BaseException:
            self._store.discard(change.parts)
            raise
        self._unmerged |= dict.fromkeys(by_step)
        self._merge_behind(max((step for step in by_step if step is not None), default=None))
        return change.bytes

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else replaces files now. What is replaced may turn out to need a repair first, so it nests."""
        if self._is_alone:
            yield
            return
        with self._exclusive():
            self._is_alone = True
            try:
                yield
            finally:
                self._is_alone = False

    def _partition(self, step: int | None) -> Partition:
        """The step's files; read from the store where they are not known."""
        partition = self._partitions.get(step)
        if partition is None:
            partition = self._partitions[step] = Partition.of(self._project, self._run_id, step)
            partition.load(self._store)
            self._repair(partition)
        self._partitions.move_to_end(step)
        while len(self._partitions) > MOST_PARTITIONS:
            self._partitions.popitem(last=False)
        return partition

    # -- one change ----------------------------------------------------------------------------------------------------

    def _add(self, change: _Change, partition: Partition, rollouts: list[Rollout]) -> None:
        for name in OF_TRAJECTORIES:
            self._put(change, partition, name, arrow.table_of(OF_TRAJECTORIES[name], rollouts), {})
        change.done.append(lambda: partition.contents.update({one.trace_id: _content(one) for one in rollouts}))

    def _replace(self, change: _Change, partition: Partition, rollouts: list[Rollout], ids: frozenset[str]) -> None:
        """Put ``rollouts`` into ``partition``, in the place of whatever it has of ``ids``."""
        same = {one.trace_id for one in rollouts if partition.contents.get(one.trace_id) == _content(one)}
        for name in OF_TRAJECTORIES:
            kept = same if name in LARGE else set()
            gone = ids - kept
            new = [one for one in rollouts if one.trace_id not in kept]
            old = {path: gone for path in partition.holding(name, gone)}
            self._put(change, partition, name, arrow.table_of(OF_TRAJECTORIES[name], new) if new else None, old)
        change.done.append(lambda: partition.contents.update({one.trace_id: _content(one) for one in rollouts}))

    def _put(
        self, change: _Change, partition: Partition, name: str, new: pa.Table | None, old: dict[str, frozenset[str]]
    ) -> None:
        """One new file of the table ``name`` with ``new`` and with what the files ``old`` have, less some ids."""
        if not old and (new is None or not new.num_rows):
            return
        path = f"{partition.folders[name]}/{new_name(self._writer)}"
        part = change.parts[path] = self._store.part(path)
        try:
            with TableFile(part, name, self._run_id) as file:
                for source, without in old.items():
                    for rows in batches(self._store, source, without):
                        file.add(rows)
                if new is not None and new.num_rows:
                    file.add(new)
                    change.bytes += new.nbytes
        except (OSError, pa.ArrowException) as error:
            raise failed(self._store.root, error) from error
        if file.rows:
            written = File(part.stat().st_size, file.rows, frozenset(file.ids))
            change.done.append(lambda: partition.files[name].update({path: written}))
        else:
            self._store.discard({path: change.parts.pop(path)})
        change.replaced += old
        change.done.append(lambda: [partition.files[name].pop(source, None) for source in old])

    def _commit(self, change: _Change) -> None:
        """All of it, ``trajectories`` last: whoever sees a trajectory there finds it in the other tables.

        To be called by one process at a time, as ``_settle`` relies on it.
        """
        self._settle()
        order = sorted(change.parts, key=lambda path: path.startswith("trajectories/"))
        self._settled = False
        journal.begin(self._store, self._run_id, journal.Change(order, change.replaced))
        self._store.commit({path: change.parts[path] for path in order}, change.replaced)
        journal.end(self._store, self._run_id)
        self._settled = True
        for remember in change.done:
            remember()

    def _settle(self) -> None:
        """Bring a change to an end that a process of this run began, or take it back."""
        if self._settled:
            return
        with self._alone():
            if (change := journal.begun(self._store, self._run_id)) is not None:
                self._store.commit({}, journal.superfluous(self._store, change))
                journal.end(self._store, self._run_id)
                self._partitions.clear()
            self._settled = True

    # -- small files ---------------------------------------------------------------------------------------------------

    def _merge_behind(self, newest: int | None) -> None:
        for step in list(self._unmerged):
            over = newest is not None and step is not None and step <= newest - BEHIND
            self._merge(step, over)
            if over:
                del self._unmerged[step]

    def merge_all(self) -> None:
        """The run is over: merge what is left."""
        for step in list(self._unmerged):
            self._merge(step, over=True)
            del self._unmerged[step]

    def _merge(self, step: int | None, over: bool) -> None:
        """Merge the small files of a step where a table has many of them; ``over``: where it has a few."""
        if not any(self._small(self._partition(step), name, over) for name in OF_TRAJECTORIES):
            return
        with self._alone():
            partition = self._partition(step)
            partition.load(self._store)
            for name in OF_TRAJECTORIES:
                if paths := self._small(partition, name, over):
                    self._rewrite(partition, name, {path: frozenset() for path in paths})

    @staticmethod
    def _small(partition: Partition, name: str, over: bool) -> list[str]:
        """The files to merge; none where there are too few."""
        full, rows = USEFUL_BYTES if over and name in LARGE else FULL_BYTES, FULL_ROWS.get(name)
        small = [
            path
            for path, file in partition.files[name].items()
            if file.size < full and (rows is None or file.rows < rows)
        ]
        return small if len(small) >= (FEW[name] if over else MANY) else []

    def _rewrite(self, partition: Partition, name: str, old: dict[str, frozenset[str]]) -> None:
        """One file in the place of ``old``."""
        change = _Change()
        try:
            self._put(change, partition, name, None, old)
            self._commit(change)
        except BaseException:
            self._store.discard(change.parts)
            self._partitions.clear()
            raise

    def _begin(self) -> None:
        """Sweep up what a killed process of this run left, and look for steps whose small files it had not merged."""
        changed: dict[int | None, int] = {}
        for folder in Partition.of(self._project, self._run_id, None).folders.values():
            self._store.sweep(os.path.dirname(folder))
            for path in self._store.sizes(os.path.dirname(folder)):
                step, at = located(self._store, path)
                changed[step] = max(at, changed.get(step, 0))
        latest = sorted(changed, key=lambda step: changed[step])[-MOST_PARTITIONS:]
        self._unmerged |= dict.fromkeys(latest)
        self._begun = True

    def _repair(self, partition: Partition) -> None:
        """Take away what a newer file has, too: without a journal, as earlier releases were."""
        if not any(partition.repeated(name) for name in OF_TRAJECTORIES):
            return
        with self._alone():
            partition.load(self._store)
            for name in OF_TRAJECTORIES:
                if again := partition.repeated(name):
                    self._rewrite(partition, name, again)


def _content(rollout: Rollout) -> int:
    """A digest of what its rows in ``LARGE`` depend on, for this process."""
    spans = tuple(
        (span.span_id, span.parent_id, span.status, span.end_ns, span.prompt_tokens, span.response_tokens,
         span.new_prompt_text is None, span.response_text is None, len(span.attributes))
        for span in rollout.trajectory.spans
    )  # fmt: skip
    return hash((rollout.step, rollout.uid, rollout.rollout_n, rollout.validate, spans))
