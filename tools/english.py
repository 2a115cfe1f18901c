"""Plain English: phrases that cost a reader a second look, in pages, messages and docstrings.

python tools/english.py            fails with file:line and a suggestion
python tools/english.py --lower    writes lower counts into tools/english.json

``tools/english.json`` has how many are left in each room that was not gone through yet. A count can only shrink.
"""

from __future__ import annotations

import ast
import bisect
import itertools
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASELINE = Path(__file__).with_suffix(".json")
PATTERNS = (
    (r"\bof (?:which|whom)\b", "begin a new sentence: 'It ...', 'They ...'"),
    (r"(?:^(?:[-*] )?|(?<=[.;:!?] )|(?<=\| ))Of (?!course)", "put the subject first: 'Only the first two of ...'"),
    (r"\b(?:is|are|was|were|be) none\b", "say what it is: 'is not a ...', 'there is no ...'"),
    (r"(?<!here )\b(?:is|are|was|were) no (?!longer\b|more\b|such\b|way\b|need\b|different\b)[a-z]",
     "'is not a ...'"),
    (r"\bmade of\b", "'made from', 'built from', 'consists of'"),
    (r"\b[Ss]hould (?:it|they|this|that|one) (?:be|not|have|come|happen)\b", "'if it ...'"),
    (r"\bsuch as (?:are|is|have|has)\b", "'those that ...'"),
    (r"\bsuch (?:a )?ones?\b", "name it again"),
    (r"\bbut for\b", "'except for', 'apart from'"),
    (r"\bnor (?:is|are|was|were|does|do|did|has|have|can)\b", "'and ... is not', or a new sentence"),
    (r"(?:^|(?<=[.;:] )|(?<=; ))[Ss]o (?:is|are|was|were|does|do|did|has|have|can) ", "'The same holds for ...'"),
    (r"\b(?:where|if|when) there (?:is one|are some|is none|are none)\b", "'if any', 'if it exists'"),
    (r"\b(?:known|knows|know|said|says|say|told|tells) of\b", "'about'"),
    (r"\belse than\b", "'other than'"),
    (r"\bfrom (?:so many|where|which|release [\d.]+|[\d.]+) on\b", "'since', 'or later'"),
    (r"\bwhoever\b", "'anyone who'"),
    (r"\bof (?:yours|ours|theirs|(?:verifiers'|veRL's)(?! \w))(?!\w)", "'your ...'"),
    (r"\b(?:need|needs|needed|takes?|without) (?:no|any|a|not a) line\b(?! of)", "'need no configuration'"),
    (r"\bstands? (?:in|at|below|above|beside|there|together|inside|behind|here|with|on)\b", "'is'"),
    (r"\bin (?:the )?(?:place|stead) of\b", "'instead of'"),
    (r"\b(?:are|were) of (?:a|an|the|several|its|this|that|one)\b", "'are from', 'belong to'"),
    (r"\b(?:span|time|that|all|it) less the\b", "'minus the'"),
    (r"\bits kin\b", "'similar ones'"),
    (r"\b(?:what|which) (?:such|those) (?:do|have|are)\b", "name what is meant"),
    (r"\bsay(?:s)? nothing of\b", "'say nothing about'"),
    (r"\b(?:as|than) (?:many|much|few|far|long) as there (?:is|are)\b", "'all'"),
    (r"\bis the (?:making|reading|writing|ending) of\b", "use the verb"),
    (r"\b(?:to|from|with|by) what (?:it|they) (?:is|are|was|were)\b", "name it"),
    (r"\bthat (?:of|in) (?:it|them)\b", "name it"),
    (r"\bwith(?:out)? (?:OK|any value)\b(?! to)", "'not OK', 'no value'"),
)  # fmt: skip
"""A regular expression over a paragraph on one line, and what to write."""
_COMPILED = [(re.compile(words), hint) for words, hint in PATTERNS]
_BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\. ))")
"""Between paragraphs, items and rows."""
STRANGER = re.compile(
    r"(?:\b(?:pip install|uv add|uv tool install|uvx|pipx run|pipx install)|--with|--from)\s+"
    r"['\"]?autotrace(?![-_./\w])"
    r"|['\"]pip['\"]?:\s*\[[^\]]*['\"]autotrace['\"]"
)
"""`autotrace` on the package index is somebody else's: no page may install it."""
FRONT = ("README.md", "CONTRIBUTING.md", "SECURITY.md")


@dataclass(frozen=True)
class Phrase:
    """One place."""

    room: str
    """``docs/NAME.md``, or ``autotrace/ROOM``: what ``tools/english.json`` counts by."""
    path: str
    line: int
    words: str
    hint: str


def main(arguments: list[str]) -> int:
    """Prints what is above the counts; returns 1 if there is any."""
    known: dict[str, int] = json.loads(BASELINE.read_text())
    found: dict[str, list[Phrase]] = defaultdict(list)
    for phrase in [*pages(), *package()]:
        found[phrase.room].append(phrase)
    if "--lower" in arguments:
        counts = {room: min(known[room], len(found[room])) for room in sorted(known)}
        BASELINE.write_text(json.dumps({room: count for room, count in counts.items() if count}, indent=1) + "\n")
        return 0
    over = [room for room in sorted(found) if len(found[room]) > known.get(room, 0)]
    for room in over:
        for phrase in found[room]:
            print(f"{phrase.path}:{phrase.line}: {phrase.words!r}: write {phrase.hint}")
        print(f"{room}: {len(found[room])} such phrases, {known.get(room, 0)} are allowed (tools/english.json)")
    return 1 if over else 0


def pages() -> Iterator[Phrase]:
    """Phrases of Markdown pages, without their code."""
    for path in [*(ROOT / name for name in FRONT), *sorted((ROOT / "docs").rglob("*.md"))]:
        name = str(path.relative_to(ROOT))
        text = path.read_text()
        yield from phrases(name, name, 1, prose(text))
        for match in STRANGER.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield Phrase(name, name, line, match[0], "the wheel's path, or autotrace-rl: this is another project")


def package() -> Iterator[Phrase]:
    """Phrases of the package's docstrings, messages and other texts."""
    for path in sorted((ROOT / "autotrace").rglob("*.py")):
        parts = path.relative_to(ROOT).parts
        room = "/".join(parts[:2]) if len(parts) > 2 else "autotrace"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield from phrases(room, str(path.relative_to(ROOT)), node.lineno, node.value)


def prose(text: str) -> str:
    """``text`` with blanks for code."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"\S", " ", match[0])

    text = re.sub(r"^```.*?^```$", blank, text, flags=re.M | re.S)
    text = re.sub(r"^ {4,}(?![-*] ).*$", blank, text, flags=re.M)
    return re.sub(r"`[^`]*`", lambda match: re.sub(r"[^\n]", "x", match[0]), text)


def phrases(room: str, path: str, line: int, text: str) -> Iterator[Phrase]:
    """Phrases of ``text``, which begins at ``line``."""
    at = 0
    for part in [*_BREAK.split(text)] if "\n" in text else [text]:
        start = text.index(part, at)
        at = start + len(part)
        words = list(re.finditer(r"\S+", part))
        joined = " ".join(word[0] for word in words)
        ends = list(itertools.accumulate(len(word[0]) + 1 for word in words))
        for regex, hint in _COMPILED:
            for match in regex.finditer(joined):
                word = words[bisect.bisect_right(ends, match.start())]
                yield Phrase(room, path, line + text.count("\n", 0, start + word.start()), match[0].strip(), hint)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
