"""The table of ``docs/findings.md``, from the codes: ``python tools/findings.py``."""

from __future__ import annotations

import sys

from autotrace.insight import registry

FAMILIES = {
    "tokens": "Tokens", "responses": "The response that is trained on", "chains": "Branches",
    "signal": "Learning signal",
    "rewards": "Rewards",
    "ending": "How it ended",
    "engine": "Engine against trainer", "mismatch": "Log-probabilities against the engine's",
    "tools": "Tools", "time": "Time", "trainer": "The trainer's own",
    "text": "Text",
}  # fmt: skip


def index() -> str:
    """The table of all findings."""
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


if __name__ == "__main__":
    sys.stdout.write(index())
