"""The page of the libraries that need no configuration, generated from the shipped specs (``make pages``).

The head of a spec names the recorded calls (``# NAME RANGE: RECORDED CALLS.``) and the checked releases
(``# releases of NAME: ...``).
"""

from __future__ import annotations

import re
from pathlib import Path

LISTS = Path(__file__).parents[1] / "patch_specs"
_SENTENCE = re.compile(r"^# (?P<name>[^:$]+): (?P<what>[^\n]+?)\.?$", re.MULTILINE)
_RELEASES = re.compile(r"^# releases of (?P<name>\S+): (?P<versions>.+)$", re.MULTILINE)
_ROLE = re.compile(r"^[- ] .*\brole: (\w+)", re.MULTILINE)
_WORDS = {
    "trajectory": "trajectories", "agent": "agents", "llm": "turns", "tool": "tool calls", "parser": "parsers",
    "env": "environments", "reward": "rewards", "engine": "requests of the engine", "trainer": "the trainer's steps",
}  # fmt: skip
"""Role -> what it is called in the table, in its order."""

HEAD = """# Libraries

`autotrace-run` records these libraries without configuration, from the shipped specs. A process that does not import
a library pays nothing for the library's spec. Calls *inside a trajectory* are recorded if your own target, veRL or
another framework opened a trajectory. If no spec names a trajectory in a process, autotrace
[makes trajectories from conversations](your-agent.md#no-spec-at-all).
`make packs` checks each spec with the releases below. Other releases are traced as far as the named functions exist,
and `autotrace status` lists the missing functions.

| library | releases | what you get | recorded |
|---|---|---|---|
"""
FOOT = """
The specs are in `patch_specs/`, with the captured values of each target. `enabled: false` in your own spec switches a
target off ([Several files](spec-reference.md#several-files)). Any other library needs your own spec:
[Your agent](your-agent.md), [Any library](any-library.md). `make agents` runs programs on the real clients and
frameworks.
"""


def row(path: Path) -> str:
    """Return the table's line of a spec. Raises ``SystemExit`` if the head lacks the sentence or the releases."""
    text = path.read_text(encoding="utf-8")
    versions = [one for found in _RELEASES.finditer(text) for one in re.split(r",\s*", found["versions"].strip())]
    sentence = next((found for found in _SENTENCE.finditer(text) if not found["name"].startswith("yaml-")), None)
    if not versions or sentence is None:
        raise SystemExit(f"{path.name}: the head needs `# NAME: RECORDED CALLS.` and `# releases of NAME: 1.0, 1.1`")
    what = sentence["what"].replace("|", "\\|")
    roles = [words for role, words in _WORDS.items() if role in _ROLE.findall(text)]
    inside = text.count("\n  inside: true") == len(re.findall(r"^- ", text, re.MULTILINE))
    where = "inside a trajectory" if inside else "always"
    ranges = f"{versions[0]} to {versions[-1]} ({len(versions)})"
    if "/archive/{version}" in text:  # commits, where a library has no releases
        ranges = f"{', '.join(version[:7] for version in versions)} ({len(versions)})"
    return f"| `{path.stem}` | {ranges} | {what} ({', '.join(roles)}) | {where} |"


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join(row(path) for path in sorted(LISTS.glob("*.yaml"))) + "\n" + FOOT
