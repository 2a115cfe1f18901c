"""Measure sentences: words that refer to things instead of naming them, by room of the package and by page.

    python tools/sentences.py            fail where a value is worse than in tools/sentences.json
    python tools/sentences.py --table    print all values
    python tools/sentences.py --lower    write the values that fell into tools/sentences.json

Three values: pronouns per 1,000 words, clauses that begin with *what* or *who* per 1,000 words, and the share of
docstrings that begin with a verb. A room's docstrings and comments count, and the prose of a page.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from english import FRONT, ROOT, prose

BASELINE = Path(__file__).with_suffix(".json")
PRONOUNS, CLAUSES, VERBS = 25.0, 1.5, 25.0
"""Limit a new room or page: pronouns and clauses per 1,000 words, and the percentage of docstrings with a verb."""
WORD = re.compile(r"[A-Za-z']+")
PRONOUN = re.compile(r"\b(?:it|its|they|them|their|those|these|ones?)\b", re.IGNORECASE)
CLAUSE = re.compile(
    r"(?:^|[.,;:(] |\b(?:of|to|by|in|for|with|from|but) )(?:what|who|whoever|whatever)\b", re.IGNORECASE
)
VERB = re.compile(
    r"(?:add|append|apply|ask|assemble|await|begin|bind|build|call|cancel|check|choose|clear|close|collect|commit|compare|"
    r"compile|compute|convert|copy|count|create|decide|declare|decode|delete|deliver|describe|detect|discard|draw|drop|"
    r"emit|encode|end|enter|estimate|examine|expand|explain|export|fetch|fill|find|finish|flush|follow|format|forward|"
    r"get|give|group|guard|hold|ignore|import|index|infer|insert|install|iterate|join|keep|label|let|limit|list|load|"
    r"look|lower|make|map|mark|mask|match|measure|merge|move|name|open|order|pack|parse|pass|patch|pick|place|play|poll|"
    r"print|process|put|queue|raise|read|rebuild|receive|record|redact|refuse|register|release|remove|render|repeat|"
    r"replace|report|request|require|reset|resolve|restore|resume|return|run|sample|say|scan|search|see|select|send|"
    r"serve|set|ship|show|skip|sort|split|start|state|stop|store|stream|sum|switch|take|tell|test|track|translate|"
    r"truncate|try|turn|unpack|unpatch|update|upload|use|validate|verify|wait|walk|warn|watch|wrap|write|yield)"
    r"(?:e?s)?$|(?:carr|cop|appl|tr)ies$",
    re.IGNORECASE,
)


class Values(NamedTuple):
    """Hold the values of a room or a page."""

    pronouns: float
    clauses: float
    verbs: float | None
    """Store a percentage; None: no docstrings."""

    def is_worse(self, than: Values) -> bool:
        """Return whether any value is worse by more than rounding."""
        verbs = self.verbs is not None and than.verbs is not None and self.verbs < than.verbs - 0.5
        return self.pronouns > than.pronouns + 0.05 or self.clauses > than.clauses + 0.05 or verbs


def measured(docstrings: list[str], others: list[str]) -> Values:
    """Compute the values of texts without code."""
    texts = [*docstrings, *others]
    words = max(1, sum(len(WORD.findall(text)) for text in texts))
    firsts = [found[0] for text in docstrings if (found := WORD.search(text))]
    verbs = 100 * sum(VERB.match(word) is not None for word in firsts) / len(firsts) if firsts else None
    pronouns, clauses = (sum(len(form.findall(text)) for text in texts) for form in (PRONOUN, CLAUSE))
    return Values(*(round(1000 * count / words, 2) for count in (pronouns, clauses)), verbs and round(verbs, 1))


def measure() -> dict[str, Values]:
    """Map each room of the package, and each page, to its values."""
    docstrings, comments = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for path in sorted((ROOT / "autotrace").rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        room = "/".join(parts[:2]) if len(parts) > 2 else "autotrace"
        text = path.read_text(encoding="utf-8")
        docstrings[room] += _docstrings(text)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        comments[room] += [token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT]
    shown = {room: measured(docstrings[room], comments[room]) for room in sorted(docstrings)}
    pages = defaultdict[str, list[str]](list)
    for page in [*(ROOT / name for name in FRONT), *sorted((ROOT / "docs").rglob("*.md"))]:
        folder = page.parent.relative_to(ROOT)
        name = str(folder if folder.name == "findings" else page.relative_to(ROOT))
        pages[name].append(re.sub(r"\bx+\b|`x*`", "X", prose(page.read_text(encoding="utf-8"))))
    return shown | {name: measured([], texts) for name, texts in pages.items()}


def _docstrings(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = getattr(statement, "value", None) if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield re.sub(r"``[^`]*``", "X", value.value).strip()


def _said(values: Values) -> str:
    verbs = "" if values.verbs is None else f", {values.verbs:g}% verbs"
    return f"{values.pronouns:g} pronouns, {values.clauses:g} clauses{verbs}"


def main(arguments: list[str]) -> int:
    """Print the places that became worse; return 1 if there are any."""
    found, known = measure(), {}
    if BASELINE.exists():
        known = {name: Values(*values) for name, values in json.loads(BASELINE.read_text()).items()}
    if "--lower" in arguments:
        kept = {
            name: now if name not in known or not now.is_worse(known[name]) else known[name]
            for name, now in found.items()
        }
        BASELINE.write_text(json.dumps(kept, indent=1) + "\n")
        return 0
    limits, failed = Values(PRONOUNS, CLAUSES, VERBS), False
    for name, now in found.items():
        allowed = known.get(name, limits)
        if now.is_worse(allowed):
            failed = True
            print(f"{name}: {_said(now)}; allowed are {_said(allowed)} (tools/sentences.json)")
    if "--table" in arguments:
        for name, now in found.items():
            print(f"{name:<40}{now.pronouns:>7}{now.clauses:>7}{now.verbs or '':>7}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
