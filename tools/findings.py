"""The pages of ``docs/findings``, from the codes, and the table of ``docs/findings.md``, which is printed.

python tools/findings.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from autotrace.insight import registry
from autotrace.insight.finding import FAMILY_OF, Code

FOLDER = Path(__file__).parents[1] / "docs" / "findings"
FAMILIES = {
    "tokens": "Tokens", "responses": "The response that is trained on", "signal": "Learning signal",
    "rewards": "Rewards", "format": "Rewards for the form",
    "ending": "How it ended",
    "engine": "Engine against trainer", "mismatch": "Log-probabilities against the engine's",
    "tools": "Tools", "time": "Time", "trainer": "The trainer's own",
    "text": "Text",
}  # fmt: skip


def page(code: Code) -> str:
    """The page of one finding."""
    threshold = f"At least {code.share:.0%} of a step's trajectories have it. " if code.share else ""
    limits = f"## What it finds, and what it does not\n\n{code.limits}\n\n" if code.limits else ""
    return f"""# {code.code}

*{code.title[0].upper()}{code.title[1:]}.*

{code.what}

## Why

{code.why}

## What to try

{code.remedy}

## What looks like it and is no fault

{code.normal}

{limits}## Where it is

    autotrace diagnose --code {code.code}

lists the trajectories with turn and token where it has them; `autotrace show TRACE` opens one.
{threshold}It is found by `autotrace/insight/families/{code.family}.py`, where its thresholds stand.
"""


def index() -> str:
    """The table of all findings."""
    lines = []
    for family, title in FAMILIES.items():
        lines += [f"### {title}", "", "| code | what |", "|---|---|"]
        lines += [
            f"| [{code.code}](findings/{code.code}.md) | {code.title} |"
            for code in registry.codes().values()
            if FAMILY_OF.get(code.code) == family
        ]
        lines.append("")
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """File name -> text."""
    return {f"{code.code}.md": page(code) for code in registry.codes().values() if code.code in FAMILY_OF}


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
    sys.stdout.write(index())
