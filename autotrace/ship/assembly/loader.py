"""One trajectory from the spool: finds its records through the state, assembles them, adds facts and losses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run.info import RunInfo
from autotrace.run.losses import losses
from autotrace.ship.assembly.assembler import Assembly, Origin
from autotrace.ship.store.row import number
from autotrace.ship.store.state import State
from autotrace.spool.reader import SegmentFile, opened, records_at
from autotrace.spool.records import Close, Header, Open
from autotrace.trajectory.jsonable import jsonable, text
from autotrace.trajectory.model import Trajectory


class Loader:
    """Assembles traces of one run. Reads the state and the segments, writes neither."""

    def __init__(self, state: State, run_folder: str | Path, info: RunInfo) -> None:
        self._state = state
        self._run_folder = run_folder
        self._info = info

    def load(self, trace_id: str, *, final: bool = False) -> Trajectory | None:
        """The trace as far as it was recorded; None when nothing of it is left.

        Raises ``OSError`` while a segment cannot be read. ``final``: calls still open count as interrupted even in
        living processes.
        """
        assembly = Assembly(trace_id)
        joined = self._state.joined_below(trace_id)
        for id, offsets in self._in_order(self._state.offsets_of(trace_id)):
            name, origin = id
            try:
                with opened(self._run_folder, name) as fd:
                    for located in records_at(fd, offsets):
                        record = located.record
                        if not isinstance(record, (Open, Close)):
                            continue
                        trace = record.trace.hex()
                        if trace in joined and isinstance(record, Open) and not record.parent:
                            record = msgspec.structs.replace(record, parent=joined[trace])
                        if trace == trace_id or trace in joined:
                            assembly.add(origin, record)
            except FileNotFoundError:
                assembly.notes[f"the segment {name} cannot be read any more"] = None
        trajectory = assembly.finish(self._info.run_id, self.ended, final)
        if trajectory is not None:
            self._describe(trajectory)
            trajectory.notes += self._losses(assembly.processes)
        return trajectory

    def _in_order(self, offsets_of: dict[int, list[int]]) -> list[tuple[tuple[str, Origin], list[int]]]:
        entries = []
        for segment, offsets in offsets_of.items():
            row = self._state.db.execute("SELECT name, header FROM segments WHERE id = ?", (segment,)).fetchone()
            if row is None or row["header"] is None:
                continue
            file = SegmentFile(row["name"], 0, 0)
            header = msgspec.msgpack.decode(row["header"], type=Header)
            targets = {
                define["id"]: (define["key"], define["name"], define["role"])
                for define in self._state.db.execute("SELECT * FROM defines WHERE segment = ?", (segment,))
            }
            origin = Origin(file.process, header, targets, anchor(self._state, file.process, header))
            entries.append(((file.process, file.sequence), ((row["name"], origin), offsets)))
        return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]

    def ended(self, process: str) -> int | None:
        """When the last record of a process was written, if the process has ended."""
        row = self._state.db.execute(
            "SELECT last_ns FROM processes WHERE process = ? AND ended IS NOT NULL", (process,)
        ).fetchone()
        return None if row is None else int(row[0])

    def _losses(self, processes: Iterable[str]) -> Iterator[str]:
        """What the processes of a trace could not record so far, so that its readers in a backend do not take it for
        complete."""
        counters: Counter[str] = Counter()
        for process in processes:
            row = self._state.db.execute("SELECT counters FROM processes WHERE process = ?", (process,)).fetchone()
            if row is not None and row["counters"] is not None:
                counters.update(msgspec.msgpack.decode(row["counters"])["drops"])
        phrases = losses(counters)
        if phrases:
            listed = text("; ".join(phrases))
            yield f"the processes of this trajectory could not record everything, perhaps of this one: {listed}"

    def _describe(self, trajectory: Trajectory) -> None:
        attributes = trajectory.attributes
        config = self._state.metas("config:")
        for name, given in (("project_name", self._info.project), ("experiment_name", self._info.experiment)):
            if given:
                attributes[name] = given
            elif attributes.get(name) is None and name in config:
                attributes[name] = config[name]
        attributes["run_id"] = self._info.run_id
        row = self._state.row(trajectory.trace_id)
        if trajectory.root.role == "trajectory":
            attributes["attempt"] = 1 if row is None else row.attempt
        if row is not None and row.late_spans:
            trajectory.notes.append(f"{row.late_spans} late calls: they began after the trajectory had ended")
        trajectory.facts = facts_of(self._state, trajectory.trace_id)


def facts_of(state: State, trace_id: str) -> dict[str, Any]:
    """The facts of a trace by name; of several with one name the latest counts; ``name.1`` for its second output."""
    facts: dict[str, Any] = {}
    for row in state.db.execute(
        "SELECT name, value, output FROM facts WHERE trace_id = ? ORDER BY at_ns, segment, offset", (trace_id,)
    ):
        name = row["name"] if row["output"] in (None, "0") else f"{row['name']}.{row['output']}"
        facts[name] = jsonable(msgspec.msgpack.decode(row["value"]))
    reward = facts.get("reward")
    if isinstance(reward, dict) and number(reward.get("score")) is not None:  # what veRL's reward functions may return
        facts["reward"] = reward["score"]
        rest = {name: value for name, value in reward.items() if name != "score"}
        if rest and "reward_extra_info" not in facts:
            facts["reward_extra_info"] = rest
    score = number(facts.get("token_level_score"))
    if score is not None:  # the trainer's reward as float32: kept only if it differs from the reward
        reward_before = number(facts.setdefault("reward", score))
        if reward_before is not None and math.isclose(reward_before, score, rel_tol=1e-5, abs_tol=1e-6):
            del facts["token_level_score"]
    return facts


def binds_of(state: State) -> list[tuple[str, dict[str, Any]]]:
    """Everything reported about the run after its start, in order."""
    rows = state.db.execute("SELECT name, value FROM binds ORDER BY id")
    return [(row["name"], msgspec.msgpack.decode(row["value"])) for row in rows]


def anchor(state: State, process: str, header: Header) -> int:
    """Nanoseconds from a segment's monotonic clock to the wall clock: one for all processes of a boot."""
    key = f"anchor:{header.boot_id or process}"
    remembered = state.meta(key)
    return header.wall_ns - header.mono_ns if remembered is None else int(remembered)
