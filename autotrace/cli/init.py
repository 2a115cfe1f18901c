"""Write a first spec from the source text of a program: ``autotrace init``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from autotrace.cli import terminal
from autotrace.config import exit_codes
from autotrace.config.installation import carried
from autotrace.config.plan import SHIPPED, Target
from autotrace.export.format import Staging
from autotrace.spec import names
from autotrace.spec.compiler import compile_plan
from autotrace.spec.proposal import COVERED, Proposal, folder_of, of_program
from autotrace.spec.sources import Installed

FILE = "patch_specs.yaml"
_ORDER = ("trajectory", "llm", "tool", "reward")
_MEANING = {
    "trajectory": "one rollout; `attributes: {sample_index: task.id, step: step}` say which task and step it is of",
    "llm": "a call of a model that no shipped spec knows, or the agent's own function around one",
    "tool": "a call of a tool",
    "reward": "what a rollout was worth; `facts: {reward: result}` where it returns the number",
}


@click.command(short_help="Write a spec to begin with, for your program.")
@click.argument("program", metavar="[PROGRAM]", type=click.Path(path_type=Path), default=Path())
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path),
              help=f"Where to write; `-` prints.  [default: {FILE} beside PROGRAM's modules]")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
def init(program: Path, out: Path | None, force: bool) -> None:
    """Write a commented spec of targets worth tracing in PROGRAM, a file or folder (default: this folder).

    Agents, tools, rewards and calls of models are found by reading source text; nothing is imported. The top of the
    spec names the targets that the shipped specs already trace. Read the spec, delete unwanted targets, then: autotrace
    check FILE.
    """
    if not program.exists():
        raise terminal.fail(f"{program}: no such file or folder", exit_codes.USAGE)
    out = out or folder_of(program) / FILE
    printing = str(out) == "-"
    if not printing and out.exists() and not force:
        raise terminal.fail(f"{out} is there already; --force replaces it, --out FILE writes another", exit_codes.USAGE)
    targets = compile_plan([]).targets
    known = {name for target in targets for name in target.names}
    try:
        proposals = [one for one in of_program(program, _followed(targets)) if one.target not in known]
    except OSError as error:
        raise terminal.fail(f"{program}: {error.strerror}") from error
    text = written(proposals, _libraries(targets), program)
    if printing:
        click.echo(text, nl=False)
        return
    try:
        with Staging(out.parent) as staging:
            staging.append(out.name, text.encode())
    except OSError as error:
        raise terminal.fail(f"{out}: {error.strerror}") from error
    count = sum(one.role != COVERED for one in proposals)
    hint = f"autotrace check {shlex.quote(terminal.safe(out))}"
    click.echo(f"{terminal.safe(out)}: {terminal.counted(count, 'target')}; read the spec, then run: {hint}")


def _followed(targets: Sequence[Target]) -> frozenset[tuple[str, str]]:
    """Find the libraries and classes whose subclasses' overrides the shipped specs trace."""
    words = (name.replace(":", ".").split(".") for one in targets if one.subclasses for name in one.names)
    return frozenset((path[0], path[-2]) for path in words)


def _libraries(targets: Sequence[Target]) -> list[str]:
    """List ``name version`` of installed libraries with a shipped spec."""
    source = Installed()
    shown = []
    for library in sorted({names.top(target.names[0]) for target in targets}):
        version = source.version(library)
        if version is not None:
            shown.append(f"{library} {version}")
    return shown


def written(proposals: Sequence[Proposal], libraries: Sequence[str], program: Path) -> str:
    """Return the text of the file: every line is either a comment or checked by ``autotrace check``."""
    lines = [
        f"# yaml-language-server: $schema={terminal.safe(carried(SHIPPED, SHIPPED))}/schema.json",
        f"# Targets of {terminal.safe(program.resolve().name)}: delete what you do not want.",
        "# What the keys mean: autotrace help spec-reference. Use it: autotrace-run --spec FILE python ...",
        "#",
        f"# Traced without configuration, by the shipped specs: {', '.join(libraries) or 'nothing that is installed'}.",
    ]
    lines += [f"# By its base class {one.why}: {one.target}." for one in proposals if one.role == COVERED]
    proposals = [one for one in proposals if one.role != COVERED]
    for role in _ORDER:
        mine = [one for one in proposals if one.role == role]
        if mine:
            lines += ["", f"# {role}: {_MEANING[role]}"]
        for one in mine:
            lines += [f"- target: {one.target}  # {one.why}", f"  role: {role}"]
            if one.attributes:
                lines.append(f"  attributes: {{{', '.join(f'{name}: {path}' for name, path in one.attributes)}}}")
            if one.reward:
                lines.append(f"  facts: {{reward: {one.reward}}}")
    if not proposals:
        lines += [
            "",
            "# Nothing in the program looks like an agent, a tool or a reward. A name is enough for a line:",
            "# - target: my_project.agent.Agent.solve",
            "#   role: trajectory",
            "[]",
        ]
    return "\n".join(lines) + "\n"
