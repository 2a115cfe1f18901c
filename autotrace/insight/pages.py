"""The pages of ``docs/findings``, from the codes; ``tools/findings.py`` writes them."""

from __future__ import annotations

from autotrace.insight import registry
from autotrace.insight.finding import FAMILY_OF, Code

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
    threshold = f"It is reported if at least {code.share:.0%} of a step's trajectories have it. " if code.share else ""
    return f"""# {code.code}

*{code.title[0].upper()}{code.title[1:]}.*

{code.what}

## Why

{code.why}

## What to try

{code.remedy}

## What looks similar but is fine

{code.normal}

## Where to look

    autotrace diagnose --code {code.code}

lists the trajectories, with turn and token if known. `autotrace show TRACE` opens one.
{threshold}`autotrace/insight/families/{code.family}.py` finds it and holds its thresholds.
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
