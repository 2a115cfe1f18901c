"""``autotrace open``: what was recorded at a place, by whomever, what is wrong with it, and how to go on."""

from __future__ import annotations

import contextlib
import shlex

import click
from rich.text import Text

from autotrace.cli import runs, terminal
from autotrace.cli.diagnose import diagnose
from autotrace.cli.terminal import counted, line, safe
from autotrace.cli.view import view
from autotrace.tables.reader import Reader

RECORDED = {
    "trajectories": {"rewards": "reward", "advantages": "advantage", "times": "duration_s"},
    "turns": {
        "texts": "coalesce(response_text, messages)", "token ids": "response_ids",
        "log-probabilities": "rollout_log_probs", "why answers ended": "finish_reason",
    },
}  # fmt: skip
"""Table -> what may not have been recorded, and the column that then has no value."""


@click.command("open", short_help="Open rollouts that another project saved: veRL, TRL, verifiers, slime, ...")
@click.argument("path", metavar="PATH")
@click.option("--view", "opens", is_flag=True, help="Then read them in the browser.")
@click.pass_context
def open_path(context: click.Context, path: str, opens: bool) -> None:
    """Say what PATH holds and what is wrong with it. Nothing is written, and nothing in it is run.

    PATH is a file or a folder that another project wrote: veRL's rollout_data_dir, ATIF, verifiers, prime-rl, slime,
    Miles, uni-agent, Inspect, TRL's completions, or rows of OpenAI's messages. ls, show, view, diagnose, compare, sql
    and export take it, too.
    """
    out = terminal.console()
    with contextlib.closing(runs.reader(path)) as reader:
        count, steps = reader.count(), [step for step in reader.steps() if step is not None]
        within = f" in {counted(len(steps), 'step')}" if steps else ""
        kind, missing = reader.run.kind or "a run that autotrace recorded", ", ".join(_missing(reader))
        out.print(line(f"{path}: {kind}: {counted(count, 'trajectory', 'trajectories')}{within}"), soft_wrap=True)
        if missing:
            out.print(line(f"not recorded: {missing}", "dim"), soft_wrap=True)
    out.print(Text(""))
    context.invoke(diagnose, run=path)
    shown = safe(shlex.quote(path))
    out.print(Text("\nNext:"))
    for words in (f"view {shown}", f"ls {shown} --sort reward", f"show --worst {shown}", f"sql 'SELECT ...' {shown}"):
        out.print(Text(f"    autotrace {words}"), soft_wrap=True)
    if opens:
        context.invoke(view, run=path, host="127.0.0.1")


def _missing(reader: Reader) -> list[str]:
    missing = []
    for table, columns in RECORDED.items():
        (counts,) = reader.sql(
            f"SELECT {', '.join(f'count({column})' for column in columns.values())} FROM {table}"
        ).rows()
        missing += [name for name, count in zip(columns, counts, strict=True) if not count]
    return missing
