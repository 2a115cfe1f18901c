"""Show rollouts beside each other, turn by turn, and where each rollout leaves the first: ``autotrace compare``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from string import ascii_uppercase
from typing import Any

import click
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from autotrace.cli import listing, runs, terminal
from autotrace.cli.listing import Cells
from autotrace.cli.terminal import block, line, seconds, status_text
from autotrace.tables.columns import ID
from autotrace.tables.errors import NotFound
from autotrace.tables.reader import Reader
from autotrace.trajectory.divergence import UNKNOWN, Divergence, group
from autotrace.trajectory.durations import ending
from autotrace.trajectory.jsonable import number as as_number
from autotrace.trajectory.model import OK, OPEN, Trajectory
from autotrace.trajectory.span_text import shown_answer
from autotrace.trajectory.tool_calls import ToolCall, tool_calls

LINES = 4
"""Limits the lines of a text without ``--full``."""
FEW_IDS = 24
"""Limits the token ids of an answer without text, without ``--full``."""
AROUND = 60
"""Limits the characters of each side where two trajectories part."""
MAX_STEPS = 5
"""Limits the named steps if a sample is in several."""
HEADS, NARROWEST = 13, 18
"""Columns of a terminal for the names of rows, and for each trajectory; with less room, trajectories are listed."""
MOST = 64
"""Limits the trajectories beside each other."""
Parts = tuple[Divergence | None, tuple[int, Divergence] | None]
"""Where a trajectory leaves the first, by tokens and by tool calls."""
FACTS = ("reward", "advantage", "trained_in_step", "dropped")


@click.command(short_help="Compare rollouts: turns, first difference, reward, advantage.")
@click.argument("traces", nargs=-1, metavar="[A B ...] [RUN]...")
@click.option("--run", "named", multiple=True, metavar="RUN", help="The same as RUN; repeatable.")
@runs.options
@click.option("--full", is_flag=True, help="Do not cut texts.")
@terminal.json_option("Print one JSON object.")
def compare(traces: Sequence[str], named: Sequence[str], selection: runs.Selection, full: bool, as_json: bool) -> None:
    """Compare trajectories A, B, ... (ids or their beginnings), or a whole group: [RUN] --step 3 --sample 17.

    If a sample is in one step only, or the run has no steps, --sample alone is enough. --where chooses, too. Validation
    is left out without --validate.
    """
    named = (*named, *(word for word in traces if runs.is_run(word)))
    traces = [word for word in traces if not runs.is_run(word)]
    is_group = selection.sample is not None or bool(selection.where)
    if is_group and len(traces) == 1 and not named:
        named, traces = tuple(traces), []
    if not (len(traces) >= 2 or (not traces and is_group)):
        raise click.UsageError("name at least two trajectories, or a group: --step 3 --sample 17")
    if traces and selection:
        raise click.UsageError("name trajectories, or choose them with --step, --where, ...; not both")
    trajectories = _of_run(runs.reader(named), traces, selection)
    if len(trajectories) < 2:
        what = "no trajectory" if not trajectories else "only one trajectory"
        if selection.where:
            raise terminal.fail(f"{what} matches; autotrace ls, with the same options, shows what there is")
        step = selection.step
        at, option = ("", "") if step is None else (f" in step {step}", f" --step {step}")
        raise terminal.fail(f"{what} of sample {selection.sample}{at}; autotrace ls{option} shows what there is")
    out = terminal.console()
    if as_json:
        out.file.write(terminal.json_line(as_dict(trajectories)))
        return
    fits = len(trajectories) * (NARROWEST + 2) + HEADS <= out.width
    parts, places = group(trajectories), range(len(trajectories))
    for chosen in [places] if fits else [[place] for place in places]:
        terminal.table(out, beside(trajectories, full, chosen, parts))
    if sides := winners(trajectories):
        listing.show(out, sides)
    for text in parting(parts):
        out.print(text, soft_wrap=not out.is_terminal)


def _of_run(reader: Reader, traces: Sequence[str], selection: runs.Selection) -> list[Trajectory]:
    if traces:
        return [reader.load(trace) for trace in traces]
    wanted = dataclasses.replace(selection, validate=bool(selection.validate)).condition
    rows = reader.select(wanted, (*ID, "step", "uid", "rollout_n"), limit=MOST + 1)
    _check_one_step(selection, (row.step for row in rows))
    if len(rows) > MOST:
        raise NotFound(f"more than {MOST} trajectories match, too many to compare; narrow --where")
    rows.sort(key=lambda row: (row.uid or "", row.rollout_n or 0))
    return [reader.one(row) for row in rows]


def _check_one_step(selection: runs.Selection, steps: Iterable[int | None]) -> None:
    """Check that the trajectories of a sample without a step have a single step. Raises ``NotFound`` otherwise."""
    if selection.step is not None or selection.where or len(steps := {*steps}) < 2:
        return
    known = sorted(step for step in steps if step is not None)
    named = ", ".join(map(str, known[:MAX_STEPS])) + (", ..." if len(known) > MAX_STEPS else "")
    raise NotFound(f"sample {selection.sample} is in several steps ({named}): name one, --step {known[-1]}")


def beside(trajectories: Sequence[Trajectory], full: bool, chosen: Sequence[int], parts: Sequence[Parts]) -> Table:
    """Build a table with a column for each of the ``chosen`` trajectories; the first turn in which any of all
    trajectories leaves the first is marked."""
    turns = max(one.turns for one in trajectories)
    marked = {where.turn for where, _ in parts if where is not None and where.part != UNKNOWN}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_lines=False)
    table.add_column("", no_wrap=True)
    for place in chosen:
        table.add_column(Text(f"{LETTERS[place]}  {trajectories[place].trace_id[:12]}"), overflow="fold", ratio=1)

    def add(head: Text, cells: Iterable[Text | Group]) -> None:
        every = list(cells)
        shown = [every[place] for place in chosen]
        if len(shown) < len(every) and chosen[0] and _plain(shown[0]) == _plain(every[0]):
            shown = [Text("as A", style="dim")]
        table.add_row(head, *shown)

    heads = list(map(_head, trajectories))
    for name in heads[0]:
        cells = [_cell(name, head[name]) for head in heads]
        if any(cell.plain for cell in cells) and (name != "run" or len({cell.plain for cell in cells}) > 1):
            table.add_row(Text(name, style="dim"), *(cells[place] for place in chosen))
    called = [tool_calls(one) for one in trajectories]
    for turn in range(turns + 1):
        mark = Text(f"≠ turn {turn}" if turn in marked else f"  turn {turn}")
        mark.stylize("bold red" if turn in marked else "dim")
        if turn:
            add(mark, (_answer(one, turn, full) for one in trajectories))
        rows = [[call for call in made if call.turn == turn] for made in called]
        for number in range(max(len(made) for made in rows)):
            column = [made[number] if number < len(made) else None for made in rows]
            differ = len({None if call is None else (str(call), call.told) for call in column}) > 1
            style = "bold red" if differ else "dim"
            add(Text("≠ tool" if differ else "  tool", style=style), (_call(call, full) for call in column))
    return table


def _plain(cell: Text | Group) -> str:
    return cell.plain if isinstance(cell, Text) else "\n".join(str(part) for part in cell.renderables)


def _answer(one: Trajectory, turn: int, full: bool) -> Text | Group:
    if turn > one.turns:
        return Text("—", style="dim")
    span = one.llm_spans[turn - 1]
    count = f"{span.response_tokens:,} tokens" if span.response_tokens is not None else ""
    answer = block(shown_answer(span, None if full else FEW_IDS) or "", lines=None if full else LINES)
    return Group(answer, Text(count, style="dim")) if count else answer


def _call(call: ToolCall | None, full: bool) -> Text | Group:
    if call is None:
        return Text("—", style="dim")
    request, result = line(str(call), "magenta"), block(call.told, lines=None if full else LINES)
    return Group(request, Text("→ ", style="dim") + result)


def _head(one: Trajectory) -> dict[str, object]:
    """Return the rows above a trajectory's turns; None means unknown."""
    written = [span.response_tokens for span in one.llm_spans if span.response_tokens is not None]
    return {
        "run": one.run_id,
        "step": one.attributes.get("step"),
        "sample": one.attributes.get("sample_index"),
        "rollout": one.attributes.get("rollout_n"),
        "status": one.status,
        **{name: one.facts.get(name) for name in FACTS},
        "turns": one.turns,
        "tool calls": len(tool_calls(one)),
        "tokens written": f"{sum(written):,}" if written else None,
        "duration": seconds(one.root.duration_ns),
    }


def winners(trajectories: Sequence[Trajectory]) -> list[Cells]:
    """Build a table of means: the trajectories with the best reward beside the others; empty if all rewards are
    equal."""
    rewards = [as_number(one.facts.get("reward")) for one in trajectories]
    known = [reward for reward in rewards if reward is not None]
    if len(set(known)) < 2:
        return []
    rated = [(reward, _figures(one)) for one, reward in zip(trajectories, rewards, strict=True) if reward is not None]
    sides = [[figures for reward, figures in rated if (reward == max(known)) is best] for best in (True, False)]
    names = [name for name in sides[0][0] if any(one[name] is not None for side in sides for one in side)]
    columns = [Cells("mean", names)]
    for what, side in zip(("winners", "losers"), sides, strict=True):
        values = [[one[name] for one in side if one[name] is not None] for name in names]
        means = [sum(each) / len(each) if each else None for each in values]  # type: ignore[arg-type]
        columns.append(Cells(f"{what} ({len(side)})", listing.aligned(means), True))
    return columns


def _figures(one: Trajectory) -> dict[str, float | None]:
    calls, written = tool_calls(one), [span.response_tokens for span in one.llm_spans]
    tokens = [count for count in written if count is not None]
    return {
        "reward": as_number(one.facts.get("reward")), "turns": one.turns, "tool calls": len(calls),
        "failed tool calls": sum((call.failed or call.span).status not in (OK, OPEN) for call in calls),
        "tokens written": sum(tokens) if tokens else None,
        "cut at a limit": float(any(ending(one, span) == "length" for span in one.llm_spans)),
        "seconds": None if one.root.duration_ns is None else one.root.duration_ns / 1e9,
    }  # fmt: skip


def _cell(name: str, value: object) -> Text:
    if value is None:
        return Text("")
    if name == "status":
        return status_text(str(value))
    return line(f"{value:.6g}" if isinstance(value, float) else value, "green" if name == "reward" else "")


def parting(parts: Sequence[Parts]) -> list[Text]:
    """Return a line for each trajectory that says where the trajectory leaves the first."""
    lines = []
    for letter, (where, call) in zip(LETTERS[1:], parts, strict=False):
        text = Text(f"{letter}  ", style="bold")
        if where is None and call is None:
            text += Text("is identical to A", style="dim")
        if where is not None and where.part == UNKNOWN:
            missing = f"the answer of turn {where.turn}" if where.turn else "what they returned"
            text += Text(f"cannot be compared with A further: {missing} was not recorded", style="dim")
        elif where is not None:
            turn = (
                f"differs from A in turn {where.turn}, {_position(where)}"
                if where.turn
                else "returns something other than A"
            )
            text += line(turn) + _sides(where)
        if call is not None:
            text += Text("\n   " if where is not None else "")
            text += line(f"tool call {call[0]}, {_CALL[call[1].part]}") + _sides(call[1])
        lines.append(text)
    return lines


def _position(where: Divergence) -> str:
    if where.part == "end":
        return "which only one of them has"
    token = "" if where.token is None else f"token {where.token} of "
    return f"{token}the {where.part}"


_CALL = {
    "tool": "another tool",
    "arguments": "other arguments",
    "result": "another result",
    "end": "which only one of them makes",
}


def _sides(where: Divergence) -> Text:
    shown = [side if len(side) <= AROUND else side[: AROUND - 1] + "…" for side in (where.here, where.there)]
    return Text(": ") + line(shown[0] or "(nothing)", "cyan") + Text(" | ", style="dim") + line(shown[1] or "(nothing)")


LETTERS = [*ascii_uppercase, *(first + second for first in ascii_uppercase for second in ascii_uppercase)]
"""Names of the columns: A to Z, then AA and so on."""


def as_dict(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """Return everything that is printed, as one plain value."""
    from autotrace.trajectory.jsonable import jsonable

    shown = [
        {
            "trace_id": one.trace_id,
            "status": one.status,
            "attributes": one.attributes,
            "facts": one.facts,
            "turns": [shown_answer(span) for span in one.llm_spans],
            "tool_calls": [
                {"turn": call.turn, "name": call.name, "arguments": call.arguments, "result": call.told,
                 "status": call.span.status}
                for call in tool_calls(one)
            ],
        }
        for one in trajectories
    ]  # fmt: skip
    parts = [
        {
            "tokens": None if where is None else asdict(where),
            "tool_calls": None if call is None else {"number": call[0], **asdict(call[1])},
        }
        for where, call in group(trajectories)
    ]
    value: dict[str, Any] = jsonable({"trajectories": shown, "divergence": [None, *parts]})
    return value
