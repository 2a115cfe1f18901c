"""Lead from a metric at step S to that step's best, worst and longest trajectories in one command: ``autotrace ls``."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import click
from rich.text import Text

from autotrace.cli import listing, runs, terminal
from autotrace.cli.diagnose import incomplete
from autotrace.cli.listing import Cells
from autotrace.cli.terminal import line, safe
from autotrace.insight.profile import Profile, decode
from autotrace.ship import pace
from autotrace.tables import hung
from autotrace.tables.columns import id_of
from autotrace.tables.conditions import Condition, equals
from autotrace.tables.errors import unknown
from autotrace.tables.reader import LINE, SORTS, Reader
from autotrace.tables.trajectories import HEADED
from autotrace.tables.words import OF_FINDINGS
from autotrace.trajectory.durations import PARTS
from autotrace.trajectory.model import OPEN

TREE_LIMIT = 100
"""Limits the rows of ``--tree`` without ``--limit``, because each row is read from its segments."""

COLUMNS = (*LINE, "is_trajectory", "findings")
"""Columns of a shown row, besides the columns of the chosen form and ``HEADED``."""


IDENTIFIED = Condition("step IS NOT NULL OR sample_index IS NOT NULL", (), frozenset({"step", "sample_index"}))
"""Trajectories that are known by more than their prompt."""


@click.command(short_help="List the trajectories of a run: the best, the worst, the longest.")
@runs.argument
@runs.options
@click.option(
    "--sort",
    callback=lambda _, __, name: _column(name),
    default="start",
    metavar="COLUMN",
    help="Sort by a column of --where, largest first (start: earliest first). duration also splits the time up.",
)
@click.option("--reverse", is_flag=True, help="Reverse the order: the lowest reward first.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show at most this many rows.")
@click.option("--all", "everything", is_flag=True,
              help="Also show traces that are not trajectories (always, if the run has no trajectory).")  # fmt: skip
@click.option("--tree", "as_tree", is_flag=True,
              help=f"Show turns and tool calls, too; at most {TREE_LIMIT} rows without --limit.")  # fmt: skip
@terminal.json_option("Print one JSON object a line.")
def ls(
    named: tuple[str, ...], selection: runs.Selection, sort: str, reverse: bool, limit: int | None, everything: bool,
    as_tree: bool, as_json: bool,
) -> None:  # fmt: skip
    """List the trajectories of a run, or of all that are named, and name the best, the worst and the longest."""
    reader = runs.reader(named)
    wanted = selection.condition
    roots = everything or not reader.count(wanted)  # an engine alone, a program without RL
    if as_tree and limit is None:
        limit = TREE_LIMIT
    form = (*PARTS, "facts", "attributes") if as_json else PARTS if sort == "duration" else ("profile",)
    rows = reader.select(
        wanted, (*COLUMNS, *form), sort=sort, descending=descending(sort, reverse), limit=limit, roots=roots,
        shown=[*(column.name for column in HEADED), *(() if reader.count(IDENTIFIED) else ("prompt",))],
    )  # fmt: skip
    out = terminal.console()
    for text in [*warnings(reader), *unexamined(reader, selection)]:
        terminal.console(stderr=as_json).print(text, soft_wrap=True)
    if not rows and selection and reader.count(roots=True):
        raise terminal.fail(selection.nothing(reader))
    if as_json:
        pages = reader.pages()
        inside = open_for(rows, reader)
        out.file.writelines(
            terminal.json_line({**as_dict(row, pages), "open": inside.get(row.trace_id)}) for row in rows
        )
        return
    if not rows:
        out.print(Text(selection.nothing(reader)), soft_wrap=True)
        return
    if as_tree:
        out.print(listing.overview(rows, reader))
    elif sort == "duration":
        listing.show(out, listing.time_columns(rows, reader), listing.TIME_LEGEND)
    else:
        listing.show(out, columns(rows, reader, reader.pages() if out.is_terminal else {}))
    if limit is not None and len(rows) == limit and (count := reader.count(wanted, roots=roots)) > limit:
        out.print(Text(f"{limit} of {terminal.counted(count, 'trajectory')}", style="dim"))
    for text in [*remarkable(reader, wanted, roots), *destinations(reader)]:
        out.print(text, soft_wrap=True)


def _column(name: str) -> str:
    """Check that rows can be sorted by the column. Raises ``click.BadParameter`` with the nearest name."""
    if name not in SORTS:
        raise click.BadParameter(str(unknown("column", name, SORTS)))
    return name


def warnings(reader: Reader) -> Iterator[Text]:
    """Yield warnings of each run: lost records, slow delivery, and the call in which a rollout hangs."""
    for source in reader.sources:
        status = source.status()
        of = f"{status.run_id}: " if len(reader.sources) > 1 else ""
        yield from (line(f"! {of}{gap}", "bold red") for gap in incomplete(status, source.living))
        yield from (line(f"! {of}{behind}", "yellow") for behind in pace.warnings(status))
    if len(reader.sources) == 1:
        yield from (line(f"! {sentence}", "yellow") for sentence in hung.sentences(hung.hanging(reader)))


def descending(sort: str, reverse: bool) -> bool:
    """Tell whether the largest value comes first."""
    return (sort != "start") != reverse


def columns(rows: Sequence[Any], reader: Reader, pages: Mapping[tuple[str, str], str]) -> list[Cells]:
    """Build a line for each trace; the id links to the backend's page if the terminal supports links.

    The column of roots appears only if the rows have different trajectory functions.
    """

    head, called = listing.called(reader)
    profiles = [decode(row.profile) for row in rows]
    inside = open_for(rows, reader)
    where = Cells.of("open", rows, lambda row: _open_words(inside.get(row.trace_id)), style=lambda _: "yellow")
    found = Cells.of("findings", rows, lambda row: " ".join(row.findings or ()), style=lambda each: "red")
    return [
        Cells.of(head, rows, called, style=lambda row: _link(pages.get(id_of(row)))),
        *([] if all(row.is_trajectory for row in rows) else [Cells.of("root", rows, attrgetter("name"))]),
        *listing.figures(rows, step="step", sample="sample_index", n="rollout_n"),
        Cells.of("", rows, lambda row: "val" if row.validate else None),
        *listing.figures(rows, turns="llm_calls", tools="tool_calls"),
        Cells("tokens", list(map(_tokens, rows, profiles)), True),
        Cells("reward", listing.aligned([row.reward for row in rows]), True),
        Cells.of("duration", rows, lambda row: listing.duration(row.duration_s), True),
        listing.status_column(rows),
        *([Cells.of("prompt", rows, attrgetter("prompt"))] if rows and "prompt" in rows[0]._fields else []),
        Cells.of("error", rows, attrgetter("error"), style=lambda row: "red"),
        *(
            column
            for column in (where, *(Cells.of(each.head, rows, attrgetter(each.name)) for each in HEADED), found)
            if any(column.cells)
        ),
    ]


def _tokens(row: Any, profile: Profile | None) -> str:
    """Sum the tokens read and generated over all turns, as backends do; of an incomplete trajectory, the known
    tokens."""
    turns = [(turn.prompt, turn.response) for turn in profile.turns] if profile is not None else []
    tokens = [
        count for turn in turns or [(row.prompt_tokens, row.response_tokens)] for count in turn if count is not None
    ]
    return f"{sum(tokens):,}" if tokens else ""


def remarkable(reader: Reader, wanted: Condition, roots: bool) -> list[Text]:
    """Describe the best, worst and longest trajectories that satisfy ``wanted``, each with the backend's page."""

    def first(sort: str, largest: bool) -> Any:
        return reader.select(
            wanted, ("run_id", "trace_id", "reward", "duration_s"), sort=sort, descending=largest, limit=1, roots=roots
        )[0]

    pages, (_, called) = reader.pages(), listing.called(reader)
    best, worst, longest = first("reward", True), first("reward", False), first("duration_s", True)
    named = [("longest", longest, listing.duration(longest.duration_s))] if longest.duration_s is not None else []
    if best.reward != worst.reward:
        named = [(name, row, shared(reader, wanted, row)) for name, row in (("best", best), ("worst", worst))] + named
    lines = []
    for name, row, shown in named:
        text = Text(f"{name:8}", style="bold") + Text(f"{called(row)}  {shown}")
        if page := pages.get(id_of(row)):
            text += Text("  ") + Text(safe(page), style="dim")
        lines.append(text)
    return lines


def shared(reader: Reader, wanted: Condition, row: Any) -> str:
    """Describe a reward, ``reward 0.1``, and how many other trajectories have the same reward."""
    others = reader.count(wanted & equals(reward=row.reward)) - 1
    tied = f", tied with {terminal.counted(others, 'other')}" if others else ""
    return f"reward {row.reward:.4g}{tied}"


def destinations(reader: Reader) -> list[Text]:
    """List each backend's place, or the command that opens the backend's page, once."""
    backends = [each for source in reader.sources for each in source.backends().items()]
    told = dict.fromkeys((name, one.get("open_with") or one.get("place")) for name, one in backends)
    return [Text(f"{name:8}", style="bold") + Text(safe(shown)) for name, shown in told if shown]


def unexamined(reader: Reader, selection: runs.Selection) -> list[Text]:
    """Count the trajectories that a condition about findings cannot judge."""
    words = set(re.findall(r"\w+", " ".join(selection.where).lower()))
    if not words & OF_FINDINGS:
        return []
    from autotrace.insight import registry

    stamp = json.dumps([registry.stamp()])[:-1]
    of_another = "complete AND NOT coalesce(starts_with(profile, ?), false)"
    count = reader.count(Condition(of_another, (stamp,), frozenset({"complete", "profile"})))
    if not count:
        return []
    many = terminal.counted(count, "trajectory was", "trajectories were")
    return [line(f"! {many} not examined by this release and its detectors; autotrace diagnose examines all", "yellow")]


def as_dict(row: Any, pages: Mapping[tuple[str, str], str]) -> dict[str, object]:
    """Return the row as one plain value."""
    value: dict[str, object] = row._asdict()
    value["times"] = {name: seconds for name in PARTS if (seconds := value.pop(name)) is not None}
    for name in ("facts", "attributes"):
        value[name] = json.loads(str(value[name] or "{}"))
    took = None if row.duration_s is None else round(row.duration_s * 1e9)
    return {**value, "turns": row.llm_calls, "duration_ns": took, "page": pages.get(id_of(row))}


def open_for(rows: Sequence[Any], reader: Reader) -> dict[str, dict[str, Any]]:
    """Return trace id -> how long the trajectory has been open, and the name of the call that it is in."""
    calls = hung.open_calls(reader) if any(row.status == OPEN for row in rows) else {}
    now = time.time_ns()
    return {id: {"seconds": (now - one.since_ns) / 1e9, "in": one.name} for id, one in calls.items()}


def _open_words(known: dict[str, Any] | None) -> str | None:
    return None if known is None else f"for {listing.duration(known['seconds'])} in {known['in']}"


def _link(page: str | None) -> str:
    """Return the style of a link to ``page``, if ``page`` is a URL that is allowed in a terminal's link sequence."""
    if page is None or not page.startswith(("http://", "https://")) or safe(page) != page or " " in page:
        return ""
    return f"link {page}"
