"""``autotrace ls``: from a metric at step S to that step's best, worst and longest trajectories, in one command."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import click
from rich import box
from rich.table import Table
from rich.text import Text

from autotrace.cli import runs, terminal
from autotrace.cli.terminal import line, seconds, status_text
from autotrace.run.losses import losses
from autotrace.ship.run_reader import RunReader
from autotrace.ship.store.row import Row

ID_LENGTH = 12
"""Characters of a trace id that are shown; any unique beginning can be given to ``autotrace show``."""

TRAJECTORIES = ("", "trajectory")
"""Roles of the root that are listed, where any root is a trajectory; empty: not read yet."""

SORTS: dict[str, tuple[Callable[[Row], float | int | None], bool]] = {
    "start": (lambda row: row.start_ns, False),
    "reward": (lambda row: row.reward, True),
    "duration": (lambda row: row.duration_ns, True),
    "turns": (lambda row: row.turns, True),
}
"""Order -> key and whether the largest comes first; what has no value comes last."""


def known_status(text: str) -> str:
    """``text`` in capitals. Raises ``BadParameter`` with the possible statuses."""
    if text.upper() not in terminal.STATUS_STYLE:
        raise click.BadParameter(f"{text!r} is not a status; choose from {', '.join(terminal.STATUS_STYLE)}")
    return text.upper()


@click.command(short_help="List the trajectories of a run; name the best, worst and longest.")
@runs.run_argument
@click.option("--step", type=int, metavar="N", help="Show only this training step.")
@click.option(
    "--sort",
    type=click.Choice(list(SORTS)),
    default="start",
    help="Largest first, except for start; duration also shows what the time was spent on.",
)
@click.option("--reverse", is_flag=True, help="Reverse the order (the worst reward first).")
@click.option("--status", "statuses", multiple=True, metavar="STATUS",
              type=known_status,
              help=f"Show only this status; repeatable. One of {', '.join(terminal.STATUS_STYLE)}.")  # fmt: skip
@click.option("--validate/--train", "validate", default=None, help="Show only validation, or only training.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show at most this many rows.")
@click.option("--all", "everything", is_flag=True,
              help="Show other traces than trajectories, too (always, if there are no trajectories).")  # fmt: skip
@click.option("--tree", "as_tree", is_flag=True, help="Show each trajectory with its turns and tool calls.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def ls(
    run: str | None, step: int | None, sort: str, reverse: bool, statuses: Sequence[str], validate: bool | None,
    limit: int | None, everything: bool, as_tree: bool, as_json: bool,
) -> None:  # fmt: skip
    """List the trajectories of a run, and name the best, worst and longest of them."""
    reader = RunReader.open(runs.locate(run))
    pages = reader.pages()
    candidates = reader.rows(step=step, validate=validate)
    # an engine alone, a program without RL
    everything = everything or all(row.role != "trajectory" for row in candidates)
    rows = [
        row
        for row in candidates
        if (everything or row.role in TRAJECTORIES) and (not statuses or row.status in statuses)
    ]
    rows = ordered(rows, sort, reverse)
    shown = rows[:limit]
    out = terminal.console()
    for loss in losses(reader.status().drops):
        terminal.console(stderr=as_json).print(line(f"! {loss}", "bold red"), soft_wrap=True)
    if as_json:
        for row in shown:
            out.file.write(json.dumps(as_dict(row, pages), ensure_ascii=False) + "\n")
        return
    if not rows:
        out.print(nothing(reader, step))
        return
    if as_tree:
        from autotrace.cli.overview import overview

        out.print(overview(shown, reader))
    elif sort == "duration":
        from autotrace.cli import time_breakdown

        out.print(time_breakdown.table(shown, ID_LENGTH))
    else:
        out.print(table(shown, pages))
    if len(shown) < len(rows):
        out.print(Text(f"{len(shown)} of {len(rows)} trajectories", style="dim"))
    for text in [*remarkable(rows, pages), *destinations(reader)]:
        out.print(text, soft_wrap=True)


def ordered(rows: Sequence[Row], sort: str, reverse: bool = False) -> list[Row]:
    """``rows`` in the order called ``sort``; rows without the value last, whichever way."""
    key, largest_first = SORTS[sort]
    having = [row for row in rows if key(row) is not None]
    having.sort(key=lambda row: (key(row) or 0, row.trace_id), reverse=largest_first != reverse)
    return having + [row for row in rows if key(row) is None]


def table(rows: Sequence[Row], pages: Mapping[str, str]) -> Table:
    """One line a trace; the id links to the backend's page where the terminal can. The root is named where it is not
    the same trajectory function for all."""
    named = any(row.role not in TRAJECTORIES for row in rows)
    listing = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, right in (
        ("trace", False), *([("root", False)] if named else []), ("step", True), ("sample", True), ("n", True),
        ("", False), ("turns", True), ("tools", True), ("tokens", True),
        ("reward", True), ("duration", True), ("status", False), ("error", False),
    ):  # fmt: skip
        listing.add_column(name, justify="right" if right else "left", no_wrap=name != "error", max_width=60)
    for row in rows:
        page = pages.get(row.trace_id)
        tokens = [count for count in (row.prompt_tokens, row.response_tokens) if count is not None]
        listing.add_row(
            Text(row.trace_id[:ID_LENGTH], style=f"link {page}" if _linkable(page) else ""),
            *([line(row.name)] if named else []),
            line("" if row.step is None else row.step),
            line(row.sample_index or ""),
            line("" if row.rollout_n is None else row.rollout_n),
            Text("val" if row.validate else ""),
            Text(str(row.turns)),
            Text(str(row.tool_calls)),
            Text(f"{sum(tokens):,}" if tokens else ""),
            Text("" if row.reward is None else f"{row.reward:.4g}"),
            Text(seconds(row.duration_ns)),
            status_text(row.status),
            line(row.error or "", "red"),
        )
    return listing


def remarkable(rows: Sequence[Row], pages: Mapping[str, str]) -> list[Text]:
    """The best, worst and longest of ``rows``, each with what opens it."""
    lines = []
    alike = len({row.reward for row in rows}) == 1  # no best and no worst then
    for name, sort, reverse in (("best", "reward", False), ("worst", "reward", True), ("longest", "duration", False)):
        first = ordered(rows, sort, reverse)[0]
        value = SORTS[sort][0](first)
        if value is None or (alike and sort == "reward"):
            continue
        shown = f"reward {value:.4g}" if sort == "reward" else seconds(first.duration_ns)
        text = Text(f"{name:8}", style="bold") + Text(f"{first.trace_id[:ID_LENGTH]}  {shown}")
        if page := pages.get(first.trace_id):
            text += Text("  ") + Text(terminal.safe(page), style="dim")
        lines.append(text)
    return lines


def destinations(reader: RunReader) -> list[Text]:
    """Where the backends keep the trajectories, and the command that opens their page."""
    lines = []
    for name, backend in reader.backends().items():
        shown = backend.get("open_with") or backend.get("place")
        if shown:
            lines.append(Text(f"{name:8}", style="bold") + Text(terminal.safe(shown)))
    return lines


def nothing(reader: RunReader, step: int | None) -> Text:
    """Why the list is empty."""
    rows = reader.rows()
    if not rows:
        return Text("this run has no trajectory; what was bound, called and dropped: autotrace status")
    steps = sorted({row.step for row in rows if row.step is not None})
    if step is not None and steps:
        available = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
        return Text(f"no trajectory of step {step}; this run has steps {available}")
    return Text("no trajectory matches; what was bound, called and dropped: autotrace status")


def as_dict(row: Row, pages: Mapping[str, str]) -> dict[str, object]:
    """The row as one plain value."""
    import msgspec

    value: dict[str, object] = msgspec.to_builtins(row)
    for name in ("facts", "attributes", "times"):
        value[name] = json.loads(getattr(row, name))
    value["duration_ns"], value["page"] = row.duration_ns, pages.get(row.trace_id)
    return value


def _linkable(page: str | None) -> bool:
    """True for a URL that may stand inside a terminal's link sequence."""
    return (
        page is not None
        and page.startswith(("http://", "https://"))
        and terminal.safe(page) == page
        and " " not in page
    )
