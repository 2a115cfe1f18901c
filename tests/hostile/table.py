"""The table: which program, in which variants, and what must be the same, arrive, or not be there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from . import measure
from .measure import Observed

MEMORY_LIMIT = 64 << 20
"""``Settings.memory_limit`` of a run."""
OWN_MEMORY = 24 << 20
"""What the modules, threads and buffers of the agent take in a process that waits for nothing."""
LATER = 0.001
"""Seconds of its thread's own time that the exception of a signal handler may arrive later than without tracing: the
median, as the latest is the machine's."""

Check = Callable[[Observed, Observed], Iterator[str]]
"""Bare run, traced run -> what is wrong."""


@dataclass(frozen=True)
class Case:
    """A row."""

    program: str
    variant: str
    check: Check
    traced: Callable[[Case, Path], Observed] | None = None
    """How the program is run traced, where that is not simply with the prefix."""
    in_tests: bool = False
    """Also a test of ``make test``: one of each kind."""

    @property
    def name(self) -> str:
        """Of the row."""
        return f"{self.program} {self.variant}"

    def run(self, folder: Path) -> tuple[Observed, Observed, list[str]]:
        """The program without and with tracing, and what is wrong."""
        run_dir = folder / "runs"
        bare = measure.bare(self.program, self.variant, folder / "none")
        if self.traced is not None:
            traced = self.traced(self, run_dir)
        else:
            traced = measure.traced(self.program, self.variant, run_dir)
        problems = []
        for what, observed in (("bare", bare), ("traced", traced)):
            if observed.code or not observed.report:
                problems.append(f"{what}: exit code {observed.code}, {observed.complaint}")
        if ours := [reason for reason in traced.spool[2] if reason.startswith("fault:")]:
            problems.append(f"failures of autotrace's own: {', '.join(ours)}")
        return bare, traced, problems or list(self.check(bare, traced))


def all_arrive(bare: Observed, traced: Observed) -> Iterator[str]:
    """Every timeout reaches the host, as without us, and every call is closed. On Python 3.10, which raises between the
    return of what opens a call and its assignment, one for ten timeouts may stay open."""
    for what, report in (("bare", bare.report), ("traced", traced.report)):
        if report["arrived"] != report["fired"]:
            yield f"{what}: {report['fired'] - report['arrived']} of {report['fired']} timeouts swallowed"
    opened, closed, _ = traced.spool
    if not closed:
        yield "nothing was recorded"
    if opened - closed > (traced.report["fired"] // 10 if sys.version_info < (3, 11) else 0):
        yield f"{opened - closed} calls never closed"
    # a busy machine delivers less in the time
    if not closed <= traced.spans <= opened and "still on disk" not in traced.stderr:
        yield f"{closed} written, {traced.spans} delivered, and nobody says so"
    if "late" in traced.report and traced.report["late"] - bare.report["late"] > LATER:
        yield f"arrives {(traced.report['late'] - bare.report['late']) * 1000:.2f} ms later than without tracing"


def same(key: str) -> Check:
    """The program saw the same."""

    def check(bare: Observed, traced: Observed) -> Iterator[str]:
        if bare.report[key] != traced.report[key]:
            yield f"{key}: {traced.report[key]!r}, without tracing {bare.report[key]!r}"
        if not traced.spool[1]:
            yield "nothing was recorded"

    return check


def intact(bare: Observed, traced: Observed) -> Iterator[str]:
    """Nothing in the host's files, and what came after was written."""
    if not traced.report["intact"]:
        yield "something of ours is in a file of the host's"
    _, closed, drops = traced.spool
    missing = traced.report["calls"] - closed
    if missing > traced.report["calls"] // 2 or missing > sum(drops.values()) + 200:
        yield f"{missing} of {traced.report['calls']} calls not written, {drops}"


def bounded(bare: Observed, traced: Observed) -> Iterator[str]:
    """Peak memory over the bare run: what the limit allows, 20 % and the agent itself."""
    more = traced.report["peak"] - bare.report["peak"]
    if more > MEMORY_LIMIT * 1.2 + OWN_MEMORY:
        yield f"{more >> 20} MB more than bare, the limit is {MEMORY_LIMIT >> 20} MB"
    if not traced.spool[1]:
        yield "nothing was recorded"


def all_delivered(bare: Observed, traced: Observed) -> Iterator[str]:
    """As many spans at the backend as calls were made."""
    calls = traced.report["calls"]
    if traced.spans != calls:
        yield f"{calls - traced.spans} of {calls} calls not delivered ({traced.spool[1]} written), {traced.spool[2]}"


def not_on_disk(bare: Observed, traced: Observed) -> Iterator[str]:
    """None of the secrets is in a file."""
    if leaked := traced.on_disk(traced.report["secrets"]):
        yield f"in clear on disk: {', '.join(leaked)}"
    if not traced.spool[1]:
        yield "nothing was recorded"


def bounded_rows(bare: Observed, traced: Observed) -> Iterator[str]:
    """As the name says; and what came after a huge one is delivered."""
    yield from not_on_disk(bare, traced)
    size = sum(path.stat().st_size for folder in traced.folders for path in folder.glob("spool/*.seg"))
    if size > 1 << 20:
        yield f"{size >> 10} KB on disk for a list that is cut to 256 items, or a text to 64 KB"
    if traced.spans != traced.spool[1]:
        yield f"{traced.spool[1]} written, {traced.spans} delivered"


def delivered_early(bare: Observed, traced: Observed) -> Iterator[str]:
    """While the worker still lived."""
    if not traced.report["delivered"]:
        yield "the root's trajectory was not delivered within 20 s"


def traced_or_said(bare: Observed, traced: Observed) -> Iterator[str]:
    """The calls are there, or ``autotrace status`` says that the target is not traced."""
    if traced.spans == traced.report["calls"]:
        return
    status = [(folder / "status.json").read_text() for folder in traced.folders]
    if not any("hooked" in text and '"reasons":["' in text for text in status):
        yield f"{traced.spans} of {traced.report['calls']} calls, and nothing says why"


def private(bare: Observed, traced: Observed) -> Iterator[str]:
    """Nobody else can read what we made."""
    if others := traced.readable_by_others():
        yield f"others can read {', '.join(others[:6])}"
    if not traced.spool[1]:
        yield "nothing was recorded"


def private_or_said(bare: Observed, traced: Observed) -> Iterator[str]:
    """A directory of the user's that others can read: its files are ours alone, and one line says so."""
    yield from private(bare, traced)
    if str(traced.run_dir) not in traced.stderr or "read" not in traced.stderr:
        yield "no line about the run directory, which others can read"


def in_the_new_run(bare: Observed, traced: Observed) -> Iterator[str]:
    """Delivered by a shipper that lives: six calls in all, three a run."""
    if traced.spans != 6:
        yield f"{traced.spans} of 6 calls delivered, in {len(traced.folders)} run folders"


def undropped(bare: Observed, traced: Observed) -> Iterator[str]:
    """Every trajectory and every call."""
    yield from all_delivered(bare, traced)
    if dropped := {reason: count for reason, count in traced.spool[2].items() if reason.startswith("drop:")}:
        yield f"dropped: {dropped}"
    if dropped and not any(reason.split(":")[1] in traced.stderr for reason in dropped) and "drop" not in traced.stderr:
        yield "and the exit line does not say so"


def all_recorded(bare: Observed, traced: Observed) -> Iterator[str]:
    """What the program passed was delivered."""
    delivered = str(traced.trajectories)
    if missing := [name for name, text in traced.report["expected"].items() if text not in delivered]:
        yield f"not recorded: {', '.join(missing)}"


def refused(bare: Observed, traced: Observed) -> Iterator[str]:
    """Targets in libraries that recording uses are not wrapped, and that is said."""
    yield from all_recorded(bare, traced)
    status = "".join((folder / "status.json").read_text() for folder in traced.folders)
    if status.count("to record a call, which would record itself") < 3:
        yield "nothing says why the libraries' functions are not traced"


def _after_another(case: Case, run_dir: Path, *, by_environment: bool = False, gone: bool = False) -> Observed:
    """Traced from a shell that has the variables of a run that is over."""
    first = measure.traced(case.program, "first", run_dir)
    inherited = dict(first.report["inherited"])
    if gone:
        for folder in first.folders:
            folder.rename(folder.with_name(f"gone-{folder.name}"))
    if by_environment:
        inherited["AUTOTRACE_BACKEND"] = "jsonl"
        inherited["AUTOTRACE_RUN_DIR"] = str(run_dir)
        inherited["AUTOTRACE_SPECS"] = measure.SPEC
        return measure.by_environment(case.program, "second", run_dir, inherited)
    return measure.traced(case.program, "second", run_dir, variables=inherited)


def _after_another_by_environment(case: Case, run_dir: Path) -> Observed:
    return _after_another(case, run_dir, by_environment=True)


def _after_one_that_is_gone(case: Case, run_dir: Path) -> Observed:
    return _after_another(case, run_dir, gone=True)


def _in_an_open_directory(case: Case, run_dir: Path) -> Observed:
    run_dir.mkdir(parents=True)
    os.chmod(run_dir, 0o755)
    return measure.traced(case.program, case.variant, run_dir)


def _with_libraries(case: Case, run_dir: Path) -> Observed:
    options = ("--backend", "jsonl", "--spec", "tests/hostile/libraries.yaml")
    return measure.traced(case.program, case.variant, run_dir, options=options)


def _into_mlflow(case: Case, run_dir: Path) -> Observed:
    return measure.traced(case.program, case.variant, run_dir, options=("--backend", "mlflow"))


def _rows(program: str, check: Check, *variants: str, in_tests: bool = True) -> list[Case]:
    """A row for each of ``variants``; the first is also a test."""
    return [Case(program, variant, check, in_tests=in_tests and variant == variants[0]) for variant in variants]


WORK = ("history", "small", "generator", "error")

CASES = [
    *_rows("timeouts", all_arrive, *(f"signal-{work}" for work in WORK)),
    *_rows("timeouts", all_arrive, *(f"thread-{work}" for work in WORK)),
    *_rows("descriptors", intact, "sqlite", "file", "socket"),
    *_rows("memory", bounded, "string", "strings", "result", "bytes"),
    *_rows("started", same("seen"), "generator"),
    *_rows("started", same("seen"), "async-generator", "finished"),
    *_rows("rows", bounded_rows, "secret"),
    *_rows("rows", bounded_rows, "huge", "long"),
    *_rows("backlog", all_delivered, "small", "histories", "threads"),
    *_rows("secrets", not_on_disk, "arguments"),
    *_rows("secrets", not_on_disk, "structures", "results", "errors"),
    *_rows("dunders", same("called"), "nested", "arguments", "methods"),
    *_rows("forks", same("seen"), "alone", "thread", "later"),
    *_rows("globs", all_delivered, "override", "base", "super"),
    *_rows("lingering", delivered_early, "pool", "task", "thread"),
    Case("plain", "finished-run", in_the_new_run, _after_another, in_tests=True),
    Case("plain", "finished-run-by-environment", in_the_new_run, _after_another_by_environment),
    Case("plain", "deleted-run", in_the_new_run, _after_one_that_is_gone),
    Case("plain", "umask", private, in_tests=True),
    Case("plain", "modes", private),
    Case("plain", "open-directory", private_or_said, _in_an_open_directory, in_tests=True),
    *([Case("plain", "mlflow", private, _into_mlflow, in_tests=True)] if measure.has_mlflow() else []),
    *_rows("hooks", traced_or_said, "front", "replaced", "alone"),
    *_rows("smaller", all_recorded, "keys", "deep", "numbers"),
    Case("smaller", "libraries", refused, _with_libraries),
    *_rows("load", undropped, "400", "400-busy", "1600", in_tests=False),
]
