"""Show one trajectory as a tree with turns, tokens, times, texts and findings at their turns: ``autotrace show``."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from dataclasses import fields
from typing import Any

import click
from rich.console import Group
from rich.text import Text
from rich.tree import Tree

from autotrace.cli import runs, terminal
from autotrace.cli.listing import time_sentence
from autotrace.cli.terminal import block, line, seconds, status_text
from autotrace.insight.families.mismatch import by_token
from autotrace.insight.profile import Mark
from autotrace.insight.words import of_turns as said_of_turns
from autotrace.tables.columns import ID
from autotrace.tables.conditions import equals
from autotrace.tables.errors import NotFound
from autotrace.tables.reader import Reader
from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.divergence import shared
from autotrace.trajectory.durations import times
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.receipt import words as receipt_words
from autotrace.trajectory.span_text import (
    answered_ids,
    asked_ids,
    ids_text,
    input_text,
    one_line,
    output_text,
    swallowed,
    thoughts,
)

WIDEST = 1 << 20
"""Columns where no terminal limits them."""
AROUND = 60
"""Limits the characters of each of two texts where the texts part."""
FEW_IDS = 12
_FORKS = ("AT-RETOKENIZED", "AT-THINKING-STRIPPED")


def marks_of_turns(trajectory: Trajectory) -> dict[int | None, list[Text]]:
    """Map a turn (None: the whole trajectory) to lines."""
    lines: dict[int | None, list[Text]] = {}
    for turn, mark, words in said_of_turns(trajectory):
        lines.setdefault(turn, []).extend(_said(trajectory, mark, words))
    return lines


def _said(trajectory: Trajectory, mark: Mark, words: str) -> list[Text]:
    lines = [line(f"! {mark.code}  ", "bold red") + line(words, "red")]
    if mark.code in _FORKS and mark.turn is not None and (sides := _parted(trajectory, mark.turn)):
        lines += [
            line(f"  {name} ", "dim") + Text(terminal.one_line(side))
            for name, side in zip(("was", "is "), sides, strict=True)
        ]
    return lines


def _parted(trajectory: Trajectory, turn: int) -> tuple[str, str] | None:
    """Return both texts from the point where a turn's prompt leaves the earlier text; token ids if no text is known.

    None if neither is known.
    """
    before, after = trajectory.llm_spans[turn - 2 : turn]
    if before.prompt_text and before.response_text is not None and after.prompt_text:
        was, now = before.prompt_text + before.response_text, after.prompt_text
        at = shared(was, now)
        return was[at : at + AROUND], now[at : at + AROUND]
    if before.prompt_ids is None or before.response_ids is None or after.prompt_ids is None:
        return None
    had, has = before.prompt_ids + before.response_ids, after.prompt_ids
    at = shared(had, has)
    one, other = (" ".join(map(str, ids[at : at + FEW_IDS])) for ids in (had, has))
    return one, other


_HTML = '<pre style="white-space:pre-wrap;overflow-wrap:anywhere;line-height:normal">{code}</pre>'
LINES, WIDTH = 6, 160
"""Limits a text without ``--full``: lines, characters of a line."""
MOST_CALLS, DEEPEST = 2_000, 50
"""Maximum calls of a tree; levels of a tree, below which a call is printed beside its parent."""

ROLE_STYLE = {
    "trajectory": "bold",
    "agent": "bold",
    "llm": "cyan",
    "tool": "magenta",
    "reward": "green",
    "env": "magenta",
}
IDENTITY = ("step", "sample_index", "rollout_n", "validate", "uid", "data_source", "project_name", "experiment_name")


@click.command(short_help="Show one trajectory as a tree: turns, tokens, times, texts.")
@click.argument("words", nargs=-1, metavar="[TRACE] [RUN]...")
@runs.options
@click.option("--worst", is_flag=True, help="Show the trajectory with the lowest reward.")
@click.option("--full", is_flag=True, help="Do not cut texts.")
@terminal.json_option("Print the whole trajectory as one JSON object.")
def show(words: tuple[str, ...], selection: runs.Selection, worst: bool, full: bool, as_json: bool) -> None:
    """Show one trajectory as a tree. TRACE is a trace id or the beginning of a trace id (see autotrace ls).

    Instead of TRACE, choose with --step, --where and so on (the first that matches), or with --worst. Without any
    choice, show the newest trajectory; a RUN instead of TRACE lists the trajectories of the run.
    """
    trace = None if selection or worst else next((word for word in words if not runs.is_run(word)), None)
    named = [word for word in words if word is not trace]
    if named and trace is None and not selection and not worst:
        from autotrace.cli.ls import ls

        click.get_current_context().invoke(ls, named=named, as_json=as_json)
        return
    reader = runs.reader(named)
    trajectory = reader.one(_first(reader, selection, worst)) if trace is None else reader.load(trace)
    out = terminal.console()
    if as_json:
        from autotrace.trajectory.jsonable import jsonable

        out.file.write(terminal.json_line(jsonable(as_dict(trajectory))))
        return
    if not out.is_terminal:
        out.width = WIDEST  # a tree is cut at the console's width
    out.print(tree(trajectory, full), soft_wrap=not out.is_terminal)
    source = reader.source(trajectory.run_id)
    for backend, (delivered_ns, page, rejected) in source.deliveries(trajectory.trace_id).items():
        state = page or ("" if delivered_ns is None else f"delivered {terminal.clock(delivered_ns)}")
        if rejected:
            state = f"rejected: {rejected}" + (f"; it has an earlier version: {state}" if state else "")
        out.print(line(f"{backend}  ", "dim") + line(state), soft_wrap=True)


def _first(reader: Reader, selection: runs.Selection, worst: bool) -> Any:
    """Find the first trajectory that matches, or the worst; print the number of other matches."""
    wanted = selection.condition
    chosen = bool(selection) or worst
    rows = reader.select(wanted, (*ID, "reward"), sort="reward" if worst else "start", descending=not chosen, limit=1)
    if worst and rows:
        if rows[0].reward is None:
            raise NotFound("no trajectory that matches has a reward")
        wanted &= equals(reward=rows[0].reward)
    if not rows:
        raise NotFound(selection.nothing(reader))
    if not chosen:
        return rows[0]
    others = reader.count(wanted) - 1
    if others:
        which = f"have the lowest reward, {rows[0].reward:.4g}" if worst else "match"
        click.echo(f"the first of {others + 1:,} trajectories that {which}; autotrace ls lists them all", err=True)
    return rows[0]


def tree(trajectory: Trajectory, full: bool = False) -> Tree:
    """Build the tree of the trajectory for a terminal."""
    children: dict[str | None, list[Span]] = defaultdict(list)
    for span in trajectory.spans:
        children[span.parent_id if span.parent_id in trajectory.by_id else None].append(span)
    top = Tree(_heading(trajectory), guide_style="dim")

    found = marks_of_turns(trajectory)
    turns = {span.span_id: number for number, span in enumerate(trajectory.llm_spans, 1)}

    waiting = [(top, span, 1) for span in reversed(children[None])]
    count = 0
    while waiting and (count := count + 1) <= MOST_CALLS:
        branch, span, depth = waiting.pop()
        said = found.get(turns.get(span.span_id, 0), [])
        lines = _span(span, trajectory, full)
        if (turn := turns.get(span.span_id)) and (chain := tree_of(trajectory).words(turn)):
            lines[0] += line(f"  {chain}", "bold yellow" if tree_of(trajectory).begins(turn) else "dim")
        node = branch.add(Group(*lines, *said))
        below = node if depth < DEEPEST else branch
        waiting += [(below, child, depth + 1) for child in reversed(children[span.span_id])]
    if waiting:
        top.add(line(f"and {len(trajectory.spans) - MOST_CALLS:,} more calls; autotrace show --json has all", "dim"))
    for text in found.get(None, []):
        top.add(text)
    for note in trajectory.notes:
        top.add(line(f"note: {note}", "yellow"))
    return top


def as_html(trajectory: Trajectory) -> str:
    """Return the printed tree as HTML, for a notebook."""
    out = terminal.SafeConsole(file=io.StringIO(), record=True, width=WIDTH, highlight=False, force_jupyter=False)
    out.print(tree(trajectory))
    return out.export_html(inline_styles=True, code_format=_HTML)


def _heading(trajectory: Trajectory) -> Text:
    text = Text("trajectory ", style="dim") + Text(trajectory.trace_id, style="bold")
    for name in IDENTITY:
        if trajectory.attributes.get(name) is not None:
            text += Text(f"  {name} ", style="dim") + line(trajectory.attributes[name])
    if shown := time_sentence(times(trajectory)):
        text += Text("\ntime ", style="dim") + Text(shown)
    if len(tree_of(trajectory).chains) > 1:
        text += Text("\nchains ", style="dim") + Text(str(len(tree_of(trajectory).chains)))
        if shown := receipt_words(trajectory):
            text += Text("\ntokens ", style="dim") + Text(shown)
    for name, value in sorted(trajectory.facts.items(), key=lambda fact: (fact[0] != "reward", fact[0])):
        text += Text("\n") + line(f"{name} ", "dim") + line(one_line(value), "green" if name == "reward" else "")
    return text


def _span(span: Span, of: Trajectory, full: bool) -> list[Text]:
    """Return the lines of a call: name, ending, duration, tokens; then texts. Only the outermost call that an
    error ended shows the error."""
    head = Text() if span.title is None else line(f"{span.title}  ", f"bold {ROLE_STYLE.get(span.role, '')}")
    head += line(span.name, ROLE_STYLE.get(span.role, "")) + line(f"  {span.role}", "dim")
    head += Text(f"  +{seconds(span.start_ns - of.root.start_ns) or '0 ms'}", style="dim")
    head += Text(f"  {seconds(span.duration_ns)}") if span.duration_ns is not None else Text("")
    tokens = _tokens(span)
    if tokens:
        head += Text(f"  {tokens}", style="dim")
    if span.status != "OK":
        head += Text("  ") + status_text(span.status)
    lines = [head]
    above = of.by_id.get(span.parent_id or "")
    if span.error is not None and (above is None or above.error is None or above.error[:2] != span.error[:2]):
        lines.append(block(span.error_text, "red", lines=None if full else LINES))
        if full and span.error[2]:
            lines.append(block(span.error[2], "dim"))
    for note, words in swallowed(span):
        times = f" ({note.get('times')} times)" if note.get("times") != 1 else ""
        lines.append(line(f"swallowed: {words}{times}", "yellow"))
    for mark, value, style in _texts(span):
        body = block(value, style, lines=None if full else LINES, width=None if full else WIDTH)
        lines.append(Text(f"{mark} ", style="dim") + body)
    return lines


def _tokens(span: Span) -> str:
    parts = []
    if span.prompt_tokens is not None:
        parts.append(f"{span.prompt_tokens:,} in")
    if span.response_tokens is not None:
        parts.append(f"{span.response_tokens:,} out")
    counts = f"{' + '.join(parts)} tokens" if parts else ""
    mask = span.response_mask if span.role != "llm" else None  # a whole response, tools included
    distances = {
        at: abs(mismatch)
        for at, mismatch in enumerate(by_token(span) or ())
        if math.isfinite(mismatch) and (not mask or mask[at : at + 1] == [1])
    }
    if not distances:
        return counts
    mean, at = sum(distances.values()) / len(distances), max(distances, key=lambda at: distances[at])
    return f"{counts}  mean |Δ logprob| {mean:.2g}, max {distances[at]:.2g} at token {at}".strip()


def _texts(span: Span) -> list[tuple[str, Any, str]]:
    """Return the texts that a person wants to read: an LLM's new prompt and answer, a tool's arguments and result."""
    if span.role in ("trajectory", "agent"):
        return []
    if span.role == "llm":
        asked, answered = asked_ids(span), answered_ids(span)
        texts = [
            (">", input_text(span), "dim"),
            (">", asked and ids_text(asked), "dim"),
            ("~", thoughts(span), "dim"),
            ("<", output_text(span), ""),
            ("<", answered and ids_text(answered), ""),
        ]
    else:
        texts = [
            (">", one_line(span.inputs) if span.inputs else None, "dim"),
            ("<", None if span.output is None else one_line(span.output), ""),
        ]
    return [(mark, value, style) for mark, value, style in texts if value]


def as_dict(trajectory: Trajectory) -> dict[str, Any]:
    """Return the trajectory as one plain value."""
    from msgspec import structs

    from autotrace.insight.profile import Profile, decode

    found = [structs.asdict(mark) for mark in (decode(trajectory.profile) or Profile()).all_marks]
    value = {**_fields(trajectory), "spans": [_fields(span) for span in trajectory.spans]}
    value |= {"status": trajectory.status, "turns": trajectory.turns, "findings": found}
    if len(tree_of(trajectory).chains) > 1:
        value["chains"] = [structs.asdict(chain) for chain in tree_of(trajectory).chains]
    del value["profile"], value["settings"]
    return value


def _fields(of: Trajectory | Span) -> dict[str, Any]:
    """Return the fields quickly: ``dataclasses.asdict`` asks each token whether the token is a dataclass."""
    return {field.name: getattr(of, field.name) for field in fields(of)}
