"""Writes the parts of pages that are made from code: ``make pages``. With ``--check`` it writes nothing, and fails if a
part is out of date."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from click.testing import CliRunner

from autotrace.cli.diagnose import diagnose
from autotrace.insight import registry
from autotrace.tables import schema
from autotrace.tables.words import NAMES
from tools import libraries, peers, spec_reference

ROOT = Path(__file__).parents[1]
FAMILIES = {
    "tokens": "Tokens", "responses": "The response that is trained on", "chains": "Branches",
    "signal": "Learning signal",
    "rewards": "Rewards",
    "ending": "How it ended",
    "engine": "Engine against trainer", "mismatch": "Log-probabilities against the engine's",
    "tools": "Tools",
    "proofs": "Conversations", "time": "Time", "trainer": "The trainer's own",
    "scalars": "Curves of the trainer's metrics", "text": "Text",
}  # fmt: skip


def findings() -> str:
    """The tables of all findings."""
    lines = []
    for family, title in FAMILIES.items():
        lines += [f"### {title}", "", "| code | what |", "|---|---|"]
        lines += [
            f"| [{code.code}](findings/{code.code}.md) | {code.title} |"
            for code in registry.codes().values()
            if code.family == family
        ]
        lines.append("")
    return "\n".join(lines)


def sample(code: str) -> str:
    """One finding as ``autotrace diagnose`` prints it for the recorded run of ``autotrace demo``."""
    shown = CliRunner().invoke(diagnose, [str(ROOT / "examples/recorded_run/run")]).stdout
    return next(entry for entry in shown.split("\n\n") if code in entry.splitlines()[0]).strip()


def pythons() -> str:
    """The supported releases of Python, as the classifiers of ``pyproject.toml`` have them."""
    minors = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    return f"Python 3.{min(map(int, minors))} to 3.{max(map(int, minors))}"


HEAD = "\n## "
"""Begins the next section of a page."""


def made(page: str, text: str) -> str:
    """The ``text`` of ``page``, with its parts as the code has them now."""
    if page in ("README.md", "docs/running.md"):
        text = re.sub(r"Python 3\.\d+ to 3\.\d+", pythons(), text)
    if page == "docs/running.md":
        return text
    if page == "docs/data.md":
        return re.sub(r"(?s)(?<=\n)### `trajectories`\n.*", lambda _: schema.markdown(), text)
    if page == "docs/findings.md":
        for name in peers.HEADS:
            before, mark, after = text.partition(f"<!-- peers: {name} -->\n\n")
            text = f"{before}{mark}{peers.table(name)}{after[after.index(HEAD) :]}" if mark else text
        return re.sub(r"(?s)(?<=## All of them\n\n).*?(?=\n## )", lambda _: findings(), text)
    if page == "docs/commands.md":
        rest = re.compile(r"(?m)^\| .* \| as in \[Data\]\(data\.md#columns\) \|$")
        rows = [row.split(" | ")[0] for row in rest.sub("", text).splitlines() if row.startswith("| `")]
        others = [f"`{name}`" for name in NAMES if f"`{name}`" not in " ".join(rows)]
        return rest.sub(f"| {', '.join(others)} | as in [Data](data.md#columns) |", text)
    if page == "README.md":
        text = re.sub(r"(?s)(?<=in that run:\n\n```\n).*?(?=\n```)", lambda _: sample("AT-TOOL-RAISES"), text, count=1)
        text = re.sub(r"\d+(?= \[findings\]| findings with)", str(len(registry.codes())), text)
        shapes = json.loads((ROOT / "autotrace/redact/rules.json").read_text())["tokens"]
        text = re.sub(r"\d+(?= shapes)", str(len(shapes)), text)
        counts = [int(found) for found in re.findall(r"(?m)^\| `[^|]* \| .*?\((\d+)\) \|", libraries.page())]
        return re.sub(r"\d+ libraries in \d+", f"{len(counts)} libraries in {sum(counts)}", text)
    if page == "docs/spec-reference.md":
        return spec_reference.markdown(text)
    return {"docs/libraries.md": libraries.page, "patch_specs/schema.json": spec_reference.json_schema}[page]()


PAGES = ("README.md", "docs/commands.md", "docs/data.md", "docs/findings.md", "docs/libraries.md",
         "docs/running.md", "docs/spec-reference.md", "patch_specs/schema.json")  # fmt: skip


def outdated() -> dict[str, str]:
    """Pages with a part that is out of date -> what they should be."""
    texts = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
    return {page: new for page, text in texts.items() if (new := made(page, text)) != text}


def main(arguments: list[str]) -> int:
    """Names the pages that were, or are, out of date."""
    pages = outdated()
    for page, text in pages.items():
        if arguments != ["--check"]:
            (ROOT / page).write_text(text, encoding="utf-8")
        print(page)
    return int(arguments == ["--check"] and bool(pages))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
