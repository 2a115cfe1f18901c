"""Describe a place's rollouts, from any writer, the problems, and the next commands: ``autotrace open``.

``autotrace demo`` does the same for a recorded run that the package carries.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

import click
from rich.text import Text

from autotrace.cli import runs, terminal
from autotrace.cli.diagnose import diagnose
from autotrace.cli.show import show
from autotrace.cli.terminal import counted, line
from autotrace.cli.view import view
from autotrace.config.installation import carried, has_page
from autotrace.run import files
from autotrace.run.info import RunInfo
from autotrace.run.status import Status
from autotrace.tables.reader import Reader

TWINS, METRICS = "twins.json", "metrics.csv"
"""Name the files of recorded faults: a map from fault to clean twin, and a run without rollouts."""
RECORDED = {
    "trajectories": {"rewards": "reward", "advantages": "advantage", "times": "duration_s"},
    "turns": {
        "texts": "coalesce(response_text, messages)", "token ids": "response_ids",
        "log-probabilities": "rollout_log_probs", "why answers ended": "finish_reason",
    },
}  # fmt: skip
"""Maps a table to texts for values that may be missing, and the column that then has no value."""


@click.command("open", short_help="Open rollouts that another project saved: veRL, TRL, verifiers, slime, ...")
@click.argument("path", metavar="PATH")
@click.option("--view", "opens", is_flag=True, help="Then read them in the browser.")
@click.pass_context
def open_path(context: click.Context, path: str, opens: bool) -> None:
    """Say what PATH holds and what is wrong with the rollouts. Nothing is written, and nothing in PATH is run.

    PATH is a file or a folder that another project wrote. Rollouts: veRL's rollout_data_dir, ATIF, verifiers, prime-rl,
    slime, Miles, uni-agent, Inspect, TRL's completions, or any list of messages, as SWE-agent, OpenHands and tau-bench
    write it. Metrics: W&B's offline folder, TensorBoard, trainer_state.json, veRL's loggers, trackio, MLflow's SQLite,
    CSV. ls, show, view, diagnose, compare, sql and export take PATH, too.
    """
    out = terminal.console()
    with contextlib.closing(runs.reader_of_one([path])) as reader:
        count, steps = reader.count(), [step for step in reader.steps() if step is not None]
        within = f" in {counted(len(steps), 'step')}" if steps else ""
        kind = reader.run.kind or "a run that autotrace recorded"
        missing = ", ".join(_missing(reader)) if count else ""
        out.print(line(f"{path}: {kind}: {counted(count, 'trajectory')}{within}"), soft_wrap=True)
        if missing:
            out.print(line(f"not recorded: {missing}", "dim"), soft_wrap=True)
    out.print(Text(""))
    context.invoke(diagnose, named=(path,))
    rollouts = ("ls {} --sort reward", "show --worst {}", "sql 'SELECT ...' {}")
    following = rollouts if count else ("steps {}", "sql 'SELECT step, name, value FROM metrics' {}")
    _go_on(context, path, ("view {}", *following), opens)


def _missing(reader: Reader) -> list[str]:
    missing = []
    for table, columns in RECORDED.items():
        counts_of = ", ".join(f"count({column})" for column in columns.values())
        (counts,) = reader.sql(f"SELECT {counts_of} FROM {table}").rows()
        missing += [name for name, count in zip(columns, counts, strict=True) if not count]
    return missing


def _go_on(context: click.Context, path: str, commands: Iterable[str], opens: bool) -> None:
    """Print the next commands, and open the page on request."""
    click.echo("\nNext:")
    for words in commands:
        if has_page() or not words.startswith("view"):
            click.echo(f"    autotrace {words.format(shlex.quote(path))}")
    if opens:
        context.invoke(view, named=(path,), host="127.0.0.1")


@click.command(short_help="Try the commands on a recorded run: no GPU, no trainer, no network.")
@click.argument("name", required=False)
@click.option("--run-dir", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
              help="Put the run into this folder of runs; default: a new temporary folder.")  # fmt: skip
@click.option("--view", "opens", is_flag=True, help="Then open the run in the browser.")
@click.pass_context
def demo(context: click.Context, name: str | None, run_dir: Path | None, opens: bool) -> None:
    """Try the commands on a recorded run of veRL's agent loops: 3 steps of 16 prompts with 8 rollouts each.

    NAME is a finding, such as AT-RETOKENIZED: a small run with this fault is read in place, beside its clean twin.

    Prints what is wrong with the run and one trajectory, and says what to run next. Needs no GPU, no trainer and no
    network. examples/recorded_run/program.py in the repository says how the run was made.
    """
    if name is not None:
        _fault(context, name, opens)
        return
    source = Path(carried("recorded_run", "examples/recorded_run/run"))
    if not source.is_dir():
        raise terminal.fail("this installation does not carry the recorded run; install the wheel")
    try:
        folder = _copied(source, run_dir)
    except OSError as error:
        raise terminal.fail(f"the recorded run cannot be copied: {error}") from None
    out, shown = terminal.console(), shlex.quote(str(folder))
    told = f"A recorded run of a veRL agent that answers questions about jam sales with SQL: {shown}"
    out.print(line(told), soft_wrap=True)
    out.print(Text("\n") + line(f"$ autotrace diagnose {shown}", "bold"), soft_wrap=True)
    context.invoke(diagnose, named=(str(folder),))
    worst = Status.read(folder).found.trace_id[:12]
    out.print(Text("\n") + line(f"$ autotrace show {worst} {shown}", "bold"), soft_wrap=True)
    context.invoke(show, words=(worst, str(folder)))
    following = ("steps {}", "ls {} --step 2 --sort reward", "compare {} --step 2 --sample 206", "grep KeyError {}")
    _go_on(context, str(folder), (*following, "view {}"), opens)


def _fault(context: click.Context, name: str, opens: bool) -> None:
    """Diagnose the recorded run with a fault, and name the commands that compare the run with its twin."""
    place = Path(carried("faults", "examples/faults"))
    try:
        twins = json.loads((place / TWINS).read_text())
    except OSError:
        raise terminal.fail("this installation does not carry the recorded faults; install the wheel") from None
    chosen = name.lower().removeprefix("at-")
    if chosen not in twins:
        raise terminal.fail(f"there is no recorded fault {name!r}; there are {', '.join(twins)}")
    fault, clean = (str(place / path) for path in (f"{chosen}/fault", twins[chosen]))
    context.invoke(diagnose, named=(fault,))
    has_rollouts = not (place / chosen / "fault" / METRICS).exists()
    following = ("view {}", "show --worst {}" if has_rollouts else "steps {}", f"diff {shlex.quote(clean)} {{}}")
    _go_on(context, fault, following, opens)


def _copied(source: Path, run_dir: Path | None) -> Path:
    """Copy the run into a folder that only this user can read. The folder appears when the copy is whole; an existing
    folder stays."""
    name = RunInfo.read(source).run_id
    run_dir = Path(run_dir or files.temporary_folder("autotrace-demo-"))
    files.folder(run_dir)
    folder = (run_dir / name).absolute()
    if not os.path.lexists(folder):
        making = files.temporary_folder(f".{name}-", run_dir)
        try:
            for path in source.rglob("*"):
                if path.is_file():
                    to = Path(making, path.relative_to(source))
                    files.folder(to.parent)
                    files.replace(to, path.read_bytes())
            with contextlib.suppress(OSError):  # another process was quicker; its folder is checked next
                os.rename(making, folder)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    there = files.is_own(folder) and {path.name for path in folder.iterdir()} >= {
        path.name for path in source.iterdir()
    }
    if not there:
        raise FileExistsError(errno.EEXIST, "is not the recorded run; choose another --run-dir", str(folder))
    return folder
