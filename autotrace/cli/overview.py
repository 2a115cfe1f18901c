"""``autotrace ls --tree``: steps, prompts, rollouts, and what each rollout did, one line a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text
from rich.tree import Tree

from autotrace.cli.terminal import counted, line, seconds, status_text
from autotrace.tables.reader import Reader
from autotrace.trajectory.model import Span

SHOWN_ROLES = ("llm", "tool", "env")


def overview(rows: Sequence[Any], reader: Reader) -> Tree:
    """``rows`` in their order, below the step and prompt that they belong to."""
    top = Tree(Text(reader.run.info.run_id, style="bold"), guide_style="dim")
    branches: dict[object, Tree] = {}
    for row in rows:
        step, prompt = (row.validate, row.step), (row.validate, row.step, *_prompt_id(row))
        if step not in branches:
            branches[step] = top.add(_step(row))
        if prompt not in branches:
            branches[prompt] = branches[step].add(_prompt(row))
        node = branches[prompt].add(_rollout(row))
        _add_calls(node, reader, row)
    return top


def _step(row: Any) -> Text:
    name = "no step" if row.step is None else f"step {row.step}"
    return line(f"{name}  validation" if row.validate else name, "bold")


def _prompt_id(row: Any) -> tuple[str, str | None]:
    """What the rollouts of one prompt share, also over steps."""
    return ("uid", row.uid) if row.uid is not None else ("sample", row.sample_index)


def _prompt(row: Any) -> Text:
    return line("prompt " + (row.sample_index or "?"), "bold") + line(f"  {row.uid or ''}", "dim")


def _rollout(row: Any) -> Text:
    number = "" if row.rollout_n is None else f"rollout {row.rollout_n}  "
    text = Text(f"{number}{row.trace_id[:12]}")
    text += Text("" if row.reward is None else f"  reward {row.reward:.4g}", style="green")
    text += Text(f"  {counted(row.llm_calls or 0, 'turn')}  {_took(row)}", style="dim")
    return text if row.status == "OK" else text + Text("  ") + status_text(row.status)


def _took(row: Any) -> str:
    return seconds(None if row.duration_s is None else round(row.duration_s * 1e9))


def _add_calls(tree: Tree, reader: Reader, row: Any) -> None:
    """The LLM and tool calls of a trajectory, below what a list gives a name (a node of a graph); of tools inside tools
    the outer one."""
    try:
        spans = {span.span_id: span for span in reader.load(row.trace_id, texts=False).spans}
    except KeyError:
        return
    trees: dict[str | None, Tree] = {}
    for span in spans.values():  # a call stands before those below it
        above = trees.get(span.parent_id, tree)
        inside = span.parent_id in spans and spans[span.parent_id].role == span.role
        named = span.title is not None and span.parent_id in spans
        shown = not inside if span.role in SHOWN_ROLES else named
        trees[span.span_id] = above.add(_call(span)) if shown else above


def _call(span: Span) -> Text:
    style = {"llm": "cyan", "agent": "", "span": ""}.get(span.role, "magenta")
    counts = [span.prompt_tokens, span.response_tokens]
    tokens = ""
    if span.role == "llm" and counts != [None, None]:
        tokens = f"  {' + '.join('?' if count is None else str(count) for count in counts)} tokens"
    text = line(span.shown_name, style) + line(f"{tokens}  {seconds(span.duration_ns)}", "dim")
    return text if span.status == "OK" else text + Text("  ") + status_text(span.status)
