"""Show bound and called targets, drops with reasons, the state of delivery, and advice: ``autotrace status``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotrace.cli import runs, terminal
from autotrace.cli.advice import advice, clients, gated, latest_of, library, own_targets
from autotrace.cli.terminal import counted, line
from autotrace.config.plan import Plan
from autotrace.run import files, layout
from autotrace.run.info import RunInfo
from autotrace.run.losses import losses, skipped
from autotrace.run.status import Status, TargetStatus
from autotrace.ship.report import origin_of as origin_of
from autotrace.sinks import DEFAULT_PROJECT
from autotrace.tables import hung
from autotrace.tables.sources import STORED, Source

STATE_STYLE = {
    "bound": "green", "never called": "yellow", "shadowed": "yellow", "pending": "dim", "failed": "red",
    "refused": "red",
}  # fmt: skip
_ABOUT = ("backends", "tracking_uri", "project", "experiment", "drain_timeout", "run_dir", "supervise", "quiet")
"""Settings that are shown elsewhere, or that no longer matter after the run."""
SHOWN = 3
"""Limits the definitions and reasons shown of a target."""
COMMAND = 200
"""Limits the characters of the command: veRL's have thousands; ``--json`` prints the whole command."""


@click.command(short_help="Show what was wrapped, called, dropped and delivered, and what to change.")
@runs.argument
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also show targets whose module was never imported, and those for other releases.",
)
@terminal.json_option("Print one JSON object.")
def status(named: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Show what happened to every target of a run, how far delivery is, which calls hang, and what to change."""
    reader = runs.reader_of_one(named)
    source = reader.run
    current, plan = source.status(), plan_of(source)
    if current.state == STORED:
        raise terminal.fail(f"{source.path} has tables alone; what was bound and delivered is told in the run folder")
    sentences = hung.sentences(hung.hanging(reader))
    rows = reader.select(columns=("step", "uid", "sample_index", "validate"))
    sentences += advice(source.info, current, plan, rows, latest_of(source.binds()))
    if as_json:
        whole = {"run": msgspec.to_builtins(source.info), "status": msgspec.to_builtins(current), "advice": sentences}
        sys.stdout.write(terminal.json_line(whole))
        return
    out = terminal.console()
    for loss in losses(current.drops) + skipped(current.skipped):
        out.print(line(f"! {loss}", "bold red"), soft_wrap=True)
    _about(out, source, current, plan)
    _delivery(out, current)
    print_targets(out, current, plan, everything)
    for sentence in sentences:
        out.print(Text("! ", style="yellow") + line(sentence), soft_wrap=not out.is_terminal)


def plan_of(source: Source) -> Plan | None:
    """Read the run's plan; None if the plan cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return Plan.loads(files.read(source.path, layout.PLAN_JSON))
    return None


def states_of(target: TargetStatus) -> list[str]:
    """Return a target's states; ``bound`` without a call reads ``never called``."""
    return ["never called" if state == "bound" and not target.calls else state for state in target.states]


def print_targets(out: Console, current: Status, plan: Plan | None, everything: bool) -> None:
    """Print the table of targets, the user's own first, and count the targets in modules that were never imported."""
    reported = {target.key: target for target in current.targets}
    names = [target.key for target in plan.targets] if plan is not None else []
    names += [key for key in reported if key not in names]
    own = own_targets(plan)
    names.sort(key=lambda key: key not in own)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("target", "state", "calls", "processes", "where, why"):
        table.add_column(name, justify="right" if name in ("calls", "processes") else "left", overflow="fold")
    waiting: list[str] = []
    inside: list[str] = []
    others: list[str] = []
    elsewhere, alone = gated(current, plan), clients(plan)
    for key in names:
        target = reported.get(key) or TargetStatus(key)
        states = states_of(target) or (["bound"] if target.calls else ["pending"])
        unseen = states == ["pending"] and not target.reasons
        if key not in own and (key in elsewhere or unseen):
            (others if key in elsewhere else inside if library(key) in alone else waiting).append(key)
            if not everything:
                continue
        table.add_row(
            line(key),
            Text(", ").join(Text(state, style=STATE_STYLE.get(state, "")) for state in states),
            Text(f"{target.calls:,}" if target.calls else ""),
            Text(str(target.processes or "")),
            line(f"no traced process imported its module ({own[key]})" if unseen and key in own else _where(target)),
        )
    if table.row_count:
        terminal.table(out, table)
    for keys, what in (
        (waiting, "in modules that no traced process imported"),
        (inside, "of calls that are recorded only inside of others, and none was"),
        (others, "for other releases of their library"),
    ):
        if keys and not everything:
            modules = ", ".join(sorted({library(key) for key in keys}))
            out.print(line(f"{counted(len(keys), 'target')} ({modules}) {what}; shown with --all", "dim"))


def _where(target: TargetStatus) -> str:
    """Explain why a target was not wrapped, and name defining classes that the key does not name; a few of each."""
    key = target.key.replace(":", ".")
    names = [definition.rpartition(":")[2] for definition in target.places if definition.replace(":", ".") != key]
    more = [f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    outside = ["called outside of a trajectory"] if target.outside else []
    return "; ".join([*outside, *target.reasons[:SHOWN], *names[:SHOWN], *more])


def _about(out: Console, source: Source, current: Status, plan: Plan | None) -> None:
    info = source.info
    command = " ".join(info.command)
    command = command if len(command) <= COMMAND else command[:COMMAND] + " ..."
    out.print(Text(info.run_id, style="bold") + line(f"  {current.state}  {command}"), soft_wrap=True)
    out.print(line(f"started {info.created} on {info.host} (pid {info.main_pid}), autotrace {info.version}", "dim"))
    binds = dict(source.binds())
    config, trace = binds.get("config", {}), binds.get("verl_trace", {})
    for name, value in (
        ("backends", ", ".join(info.backends) or "none: a run is its folder"),
        ("tracking_uri", info.tracking_uri), ("project", info.project),
        ("experiment", info.experiment), ("drain_timeout", f"{info.drain_timeout:g} s"),
    ):  # fmt: skip
        origin = info.origins.get(name, "")
        if value is None and name == "tracking_uri":
            value = "a local SQLite store unless veRL's own logger names one"
        elif value is None:
            value, origin = _named(name, config, bool(current.traces))
        out.print(line(f"  {name:14}{value}") + line(f"  ({origin})" if origin else "", "dim"), soft_wrap=True)
    settings = {name: (value, info.origins[name]) for name, value in chosen(info, plan).items()}
    own = plan.settings.sampling if plan is not None else {}
    for name in ("token2text", "max_samples_per_step_per_worker"):  # veRL's own tracer is off, but the settings hold
        if trace.get(name) not in (None, False) and own.get(name) is None:
            settings[name] = trace[name], origin_of(trace, name)
    for name, (value, origin) in settings.items():
        out.print(line(f"  {name}  {value}") + line(f"  ({origin})", "dim"), soft_wrap=True)


def _named(name: str, config: Mapping[str, Any], begun: bool) -> tuple[str, str]:
    """Return the project or experiment without an option, and the origin: veRL's, once veRL has begun."""
    key = f"trainer.{name}_name"
    reported = config.get(f"{name}_name")
    default = DEFAULT_PROJECT if name == "project" else "none"
    if reported is not None or not begun:
        return reported or f"{default} unless veRL's configuration names one", f"veRL's {key}"
    return default, f"default; no veRL ran, --{name} names one"


def chosen(info: RunInfo, plan: Plan | None) -> dict[str, Any]:
    """Return the recording and delivery settings of options and variables (``launch.options``), by name."""
    settings = plan.settings if plan is not None else None
    own = settings.sampling if settings is not None else {}
    sampling = {"sample_rate" if name == "rate" else name: value for name, value in own.items()}
    decided = {}
    for name, origin in info.origins.items():
        value = sampling.get(name, getattr(info, name, getattr(settings, name, None)))
        if name not in _ABOUT and origin != "default" and value is not None:
            decided[name] = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
    return decided


def _delivery(out: Console, current: Status) -> None:
    lag = f", the oldest waits for {current.lag_seconds:.0f} s" if current.pending else ""
    kept = f", {current.kept_here:,} kept here by the keep-rules" if current.kept_here else ""
    out.print(line(
        f"{counted(current.trajectories, 'trajectory')} ({counted(current.traces, 'trace')}), "
        f"{current.open} open, {current.pending} to deliver{lag}{kept}; "
        f"{counted(current.processes, 'process', 'processes')} ({current.living} living), "
        f"spool {current.spool_bytes / 1e6:.1f} MB"
    ))  # fmt: skip
    for name, backend in current.backends.items():
        text = line(f"  {name:8} {backend.delivered} delivered, {backend.pending} to deliver")
        if backend.rejected_count:
            text += line(f", {backend.rejected_count} rejected", "red")
        if backend.over_budget:
            text += line(f", {backend.over_budget} over the budget", "yellow")
        if backend.place:
            text += line(f"  {backend.place}", "dim")
        if backend.sent_bytes:
            rate = f", {backend.gb_a_day:,.2f} GB a day at this rate" if backend.gb_a_day > 0 else ""
            text += Text("\n") + line(f"           {terminal.size(backend.sent_bytes)} sent{rate}", "dim")
        if backend.error:
            text += Text("\n") + line(f"           {backend.state}: {backend.error}", "red")
        out.print(text, soft_wrap=True)
    ended = [f"--stop-on asked the command to end: {current.found.ended_run}"] if current.found.ended_run else []
    for note in [*ended, *current.notes, *([current.error] if current.error else [])]:
        out.print(line(f"  {note}", "yellow"), soft_wrap=True)
