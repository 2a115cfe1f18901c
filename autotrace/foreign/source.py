"""Find the rollouts of other projects in a file or a folder, and provide a source for the reader.

Files that a project wrote into the same folder are a run. A rollout is built from its row on each access; memory keeps
only the position of the row.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from autotrace.config import ids
from autotrace.foreign import atif, inspect_logs, messages, slime, spans, verifiers, verl
from autotrace.foreign.containers import NAMED, SUFFIXES, Format, entries, rows
from autotrace.foreign.opened import Opened, Row
from autotrace.foreign.parquet import MOST_ROLLOUTS
from autotrace.foreign.row_reader import RowReader
from autotrace.foreign.scalars import TITLES, TrainerLog, is_wanted, scalars
from autotrace.insight.examine import examine
from autotrace.insight.profile import encode
from autotrace.insight.settings import TrainerSettings
from autotrace.run import files, layout
from autotrace.tables import metrics
from autotrace.tables.commits import FOLDER
from autotrace.tables.errors import Gone, QueryError
from autotrace.tables.metrics import OfStep
from autotrace.tables.rebuild import connected
from autotrace.tables.sources import Lines, Source, Steps, stored_info, within
from autotrace.trajectory.jsonable import integer
from autotrace.trajectory.model import Trajectory, with_names
from autotrace.trajectory.span_text import asked_words, counted

FORMATS: tuple[Format, ...] = (
    verl.FORMAT, verifiers.FORMAT, atif.FORMAT, messages.COMPLETIONS, slime.FORMAT, verl.UNI_AGENT,
    inspect_logs.FORMAT, spans.FORMAT, messages.FORMAT,
)  # fmt: skip
"""Formats in order: the first format that recognises a file reads the file."""
DEEPEST, MOST_FILES = 8, 20_000
"""Maximum depth of folders, and number of names in folders."""


class _Place(NamedTuple):
    """Hold the position of a rollout, and values that follow from all rollouts together."""

    file: int
    row: int
    number: int
    """Number within the row."""
    step: int | None
    start_ns: int
    known: dict[str, Any]
    """Group of the rollout, and number in the group."""


class ForeignRun(NamedTuple):
    """Hold a run that was found: rollouts of a format, the log of a trainer, or both."""

    title: str
    opened: list[Opened]
    format: Format | None
    logged: TrainerLog


class Foreign(Source):
    """Read the rollouts of a run. Threads must not share an instance; ``again`` makes another instance."""

    def __init__(self, path: Path, run_id: str, found: ForeignRun, others: list[str]) -> None:
        self._format, self._opened, self._logged, self._others = found.format, found.opened, found.logged, others
        self._seen = self.fingerprint()
        super().__init__(path, stored_info(run_id, max((seen[0] for seen in self._seen if seen), default=0)))
        count = len(found.opened)
        self.kind = f"{found.title} ({counted(count, 'file')})"
        self._index: list[dict[str, _Place] | QueryError] = []
        """Index of the rollouts, built on first access; shared with other readers of the same moment."""
        self._rows = RowReader()
        self._kept: tuple[tuple[int, int], list[Trajectory]] | None = None

    @property
    def problem(self) -> str:
        """See ``Source``: what cannot be shown, and the files that are not read."""
        told = [] if self._format else ["no rollouts: only metrics are here; start the training with autotrace-run"]
        if self._others:
            more = ", ..." if len(self._others) > 3 else ""
            names = ", ".join(name[:80] for name in self._others[:3])
            told.append(f"{counted(len(self._others), 'file')} in no known format: {names}{more}")
        return f"{self.path}: {'; '.join(told)}" if told else ""

    def binds(self) -> list[tuple[str, dict[str, Any]]]:
        """See ``Source``."""
        return [("config", dict(self._logged.settings))] if self._logged.settings else []

    def step_facts(self, step: int | None = None) -> Mapping[int, OfStep]:
        """See ``Source``."""
        return {at: {"metrics": found} for at, found in self._logged.metrics.items() if step in (None, at)}

    def lines(self, table: str, columns: Sequence[str], steps: Steps | None, shown: Iterable[str] = ()) -> Lines | None:
        """See ``Source``."""
        if table != metrics.METRICS.name:
            return None
        chosen = metrics.METRICS.chosen(*columns)
        rows = metrics.rows(self.info.run_id, {at: of for at, of in self.step_facts().items() if within(at, steps)})
        return (tuple(column.of(row) for column in chosen) for row in rows)

    @property
    def _places(self) -> dict[str, _Place]:
        """Return trace id -> position. Raises ``QueryError``."""
        if not self._index:
            try:
                self._index.append(self._found())
            except QueryError as error:
                self._index.append(error)
        found = self._index[0]
        if isinstance(found, QueryError):
            raise found
        return found

    def _found(self) -> dict[str, _Place]:
        found: dict[str, _Place] = {}
        counts: Counter[object] = Counter()
        ids: set[str] = set()
        for file, opened in enumerate(self._opened if self._format else ()):
            for row, value in rows(opened):
                for number, one in enumerate(self._read_row(value, opened.name)):
                    if (own := str(one.attributes.get("id", len(found)))) in ids:
                        continue
                    if len(found) >= MOST_ROLLOUTS:
                        raise QueryError(f"{self.path} has more than {MOST_ROLLOUTS:,} rollouts; name a part of it")
                    ids.add(own)
                    step, known = integer(one.attributes.get("step")), _group(one)
                    group = {**one.attributes, **known}
                    key = (step, str(group.get("uid", group.get("sample_index"))), group.get("validate") is True)
                    if "rollout_n" not in group:
                        known["rollout_n"] = counts[key]
                    counts[key] += 1
                    place = _Place(file, row, number, step, one.root.start_ns or len(found) + 1, known)
                    found[_digest(f"{self.info.run_id}\0{opened.name}\0{row}\0{number}", 16)] = place
        return found

    def ids(self, steps: Steps | None) -> Sequence[str]:
        """See ``Source``; in the order of the files, so that each file is read once."""
        return [id for id, at in self._places.items() if within(at.step, steps)]

    def size(self) -> int:
        """See ``Source``."""
        return sum(found[1] for found in self._seen if found)

    def load(self, trace_id: str, *, texts: bool = True) -> Trajectory:
        """See ``Source``."""
        place = self._places.get(trace_id)
        found = [] if place is None else self._read(place.file, place.row)
        if place is None or place.number >= len(found):
            raise Gone(f"trace {trace_id} is gone from {self.path}")
        read = found[place.number]
        one = replace(read, trace_id=trace_id, run_id=self.info.run_id, attributes={**read.attributes, **place.known})
        with_names(one.attributes)
        if not one.root.start_ns:
            for span in one.spans:
                span.start_ns += place.start_ns
        connected(one.spans)
        one.profile = encode(examine(one, TrainerSettings()))
        return one

    def _read_row(self, row: Row, path: str) -> Iterable[Trajectory]:
        """Yield the rollouts of a row. A list or an object that several rollouts share belongs to the first alone."""
        owned: dict[int, Any] = {}
        for one in self._format.read(row, path) if self._format else ():
            for name in [name for name, value in one.attributes.items() if id(value) in owned]:
                del one.attributes[name]
            owned |= {id(value): value for value in one.attributes.values() if isinstance(value, (dict, list))}
            yield one

    def _read(self, file: int, row: int) -> list[Trajectory]:
        """Return the rollouts of a row."""
        if self._kept is not None and self._kept[0] == (file, row):
            return self._kept[1]
        value = self._rows.row(self._opened[file], row)
        self._kept = (file, row), [] if value is None else list(self._read_row(value, self._opened[file].name))
        return self._kept[1]

    def fingerprint(self) -> tuple[tuple[int, int] | None, ...]:
        """See ``Source``."""
        return tuple(files.changed(opened.path) for opened in self._opened)

    def again(self) -> Foreign | None:
        """See ``Source``."""
        if self._seen != self.fingerprint():
            return None
        another = copy.copy(self)
        another.close()
        return another

    def close(self) -> None:
        """See ``Source``."""
        self._rows, self._kept = RowReader(), None


def foreign(path: Path) -> list[Source]:
    """Return the runs that other projects saved in ``path``, a file or a folder: a run for each format of rollouts, and
    for each trainer's metrics. The rollouts of one format and the metrics of one run are a single run. Raises
    ``QueryError``."""
    top = Path(os.path.abspath(path))
    is_file = top.is_file()
    if is_file:
        top = top.resolve()  # a person named the file
    found = [Opened(top.parent, top.name)] if is_file else [Opened(top, name) for name in _names(top)]
    formats: dict[str, ForeignRun] = {}
    logged: dict[str, ForeignRun] = {}
    others: dict[str, str] = {}
    for opened in found:
        if (format := recognised(opened)) is not None:
            formats.setdefault(format.name, ForeignRun(format.title, [], format, TrainerLog({}, {}))).opened.append(
                opened
            )
            continue
        try:
            if not _logged(opened, logged) and opened.path.suffix in SUFFIXES:
                others[opened.name] = opened.name
        except QueryError as error:
            if is_file:
                raise
            others[opened.name] = f"{opened.name} ({str(error).rpartition(': ')[2][:80]})"
    if len(formats) == len(logged) == 1:
        (name, rollouts), (numbers,) = *formats.items(), logged.values()
        both = ForeignRun(f"{rollouts.title} and {numbers.title}", rollouts.opened, rollouts.format, numbers.logged)
        formats, logged = {name: both}, {}
    every = {format.name: formats[format.name] for format in FORMATS if format.name in formats} | logged
    called = ids.run_id(top.name, "rollouts")
    beside = {name for of in every.values() if of.format for name in of.format.beside}
    told = [text for name, text in others.items() if Path(name).name not in beside]
    return [
        Foreign(path, ids.run_id(f"{called}-{name}", called) if len(every) > 1 else called, of, told)
        for name, of in every.items()
    ]


def _logged(opened: Opened, logged: dict[str, ForeignRun]) -> bool:
    """Add the metrics and settings in a file to the runs that were found: the files of a kind in the same folder are a
    run. Return whether the file has any."""
    number = 0
    for title, run, found in scalars(opened):
        number += 1
        named = run or f"{Path(opened.name).parent} {title}"
        of = logged.setdefault(named, ForeignRun(title, [], None, TrainerLog({}, {})))
        of.opened.append(opened)
        of.logged.settings.update(found.settings)
        for step, numbers in found.metrics.items():
            of.logged.metrics.setdefault(step, {}).update(numbers)
    return number > 0


def recognised(opened: Opened) -> Format | None:
    """Return the format of a file; None: no known format."""
    present = entries(opened)
    for format in FORMATS:
        suffix = opened.path.suffix
        if suffix not in format.suffixes or not any(_has(present, needed) for needed in format.needs):
            continue
        if format.certain or suffix not in (".json", ".traj") or _yields(format, opened):
            return format
    return None


def _has(present: frozenset[str] | bytes, needed: frozenset[str]) -> bool:
    if isinstance(present, bytes):
        return all(name.encode() in present for name in needed)
    return needed <= present


def _yields(format: Format, opened: Opened) -> bool:
    """Return whether a file has a rollout."""
    try:
        return any(True for _, row in rows(opened) for _ in format.read(row, opened.name))
    except QueryError:
        return False


def refusal(path: Path) -> str:
    """Return a sentence about a file, or a folder without any rollout: the contents, and the accepted formats. Empty
    for a folder without files. Raises ``QueryError`` for a damaged file."""
    if path.is_dir():
        found = _names(path)
        told = "; ".join(f"{name[:80]}, {_seen(Opened(path, name))}" for name in found[:3])
        seen = f"a folder of {counted(len(found), 'file')}: {told}{'; ...' * (len(found) > 3)}" if found else ""
    else:
        seen = f"a file {_seen(Opened(path.parent, path.name))}"
    accepted = f"Accepted are a run folder, {', '.join((*(format.title for format in FORMATS), *TITLES))}"
    return f"{path} is in no format that autotrace open accepts: it is {seen}. {accepted}" if seen else ""


def _seen(opened: Opened) -> str:
    """Describe the contents of a file in no known format: the names in the first row, or the end of the file's name."""
    if opened.path.suffix not in SUFFIXES:
        return "without a metric" if is_wanted(str(opened.path)) else f"that ends in none of {', '.join(SUFFIXES)}"
    row = next(rows(opened), (0, {}))[1] if opened.path.suffix in NAMED else {"other members": None}
    return "with " + (", ".join(f"{name[:40]!r}" for name in sorted(row)[:6]) or "no names")


def _names(top: Path) -> list[str]:
    """Return the files below ``top`` that may be rollouts, sorted by the numbers in file names. Runs of autotrace are
    skipped."""
    found: list[str] = []
    left = MOST_FILES
    for folder, below, names in os.walk(top):
        inside = Path(folder).relative_to(top)
        left -= len(below) + len(names)
        if left < 0:
            raise QueryError(f"{top} has more than {MOST_FILES:,} names in it; name the folder of the rollouts")
        is_own = layout.RUN_JSON in names or FOLDER in below
        if is_own or len(inside.parts) >= DEEPEST:
            below.clear()
        is_trial = inside.name in ("agent-logs", "agent")  # Terminal-Bench's episodes are read with the trial
        below[:] = [name for name in below if name[:1] != "." and not (is_trial and name.startswith("episode-"))]
        if not is_own:
            paths = (inside / name for name in names if not name.startswith(".") and is_named(str(top / inside / name)))
            found += [str(path) for path in paths if not (top / path).is_symlink()]
    return sorted(found, key=_in_order)


def is_named(path: str) -> bool:
    """Return whether a file at this path may be read."""
    return Path(path).suffix in SUFFIXES or is_wanted(path)


def _in_order(name: str) -> list[tuple[int, str]]:
    """Sort key: ``2.jsonl`` before ``10.jsonl``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split("([0-9]+)", name)]


def _group(one: Trajectory) -> dict[str, Any]:
    """Return the group of a rollout if the file names no group: rollouts of the same prompt are a group."""
    if not one.attributes.keys().isdisjoint(("uid", "sample_index")):
        return {}
    asked = asked_words(one.llm_spans[0] if one.llm_spans else one.root, whole=True)
    return {} if asked is None else {"uid": _digest(asked, 6)}


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=size).hexdigest()
