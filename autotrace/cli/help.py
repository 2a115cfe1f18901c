"""Print the pages of the documentation, which the package carries: ``autotrace help``."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from autotrace.cli import terminal
from autotrace.config.installation import PACKAGE_PARENT, carried


@click.command("help", short_help="Print a page of the documentation, or of a finding.")
@click.argument("topic", required=False, metavar="[TOPIC]")
def help_page(topic: str | None) -> None:
    """Print a page of the documentation, or of a finding (`autotrace help AT-HUNG`). Without TOPIC, list the pages."""
    folder = Path(carried("docs", "docs"))
    pages = {path.stem.lower(): path for path in sorted([*folder.glob("*.md"), *folder.glob("findings/*.md")])}
    if topic is None:
        click.echo("Pages, for example: autotrace help findings")
        for name, path in pages.items():
            if path.parent == folder and name != "index":
                click.echo(f"  {name:16}{path.read_text(encoding='utf-8').splitlines()[0].removeprefix('# ')}")
        return
    name = topic.lower().removesuffix(".md").removeprefix("docs/")
    if name not in pages:
        close = difflib.get_close_matches(name, pages, 1)
        hint = f"did you mean {pages[close[0]].stem}?" if close else "autotrace help lists the pages"
        raise terminal.fail(f"there is no page {topic!r}; {hint}")
    text = terminal.safe(pages[name].read_text(encoding="utf-8"))
    click.echo_via_pager(text) if terminal.console().is_terminal else click.echo(text, nl=False)


@click.command(short_help="Print the page that tells an agent how to read a run (SKILL.md).")
def skill() -> None:
    """Print SKILL.md: how an agent reads a run with autotrace's commands. Save the page where your agent looks for
    skills."""
    click.echo(Path(PACKAGE_PARENT, "autotrace", "SKILL.md").read_text(encoding="utf-8"), nl=False)
