"""Every command that reads a run, and what it must not do. A test makes a place and calls ``read``."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from autotrace.cli.main import COMMANDS
from autotrace.export.format import FORMATS

MEMORY, SECONDS = 2 << 30, 30.0
"""The address space that a command may take, beside the libraries', and its CPU."""
ESCAPES = ("\x1b", "\x9b", "\x07", "\u202e", "\u2028", "\u200b", "\u2060", "\xad", "\ufeff", "\U000e0041")

READS = {
    "runs": [["runs", "{}", "--json"]],
    "ls": [["ls", "{}"], ["ls", "{}", "--tree"]],
    "show": [["show", "ab", "{}"], ["show", "ab", "{}", "--json"]],
    "diagnose": [["diagnose", "{}"]],
    "why": [["why", "{}"], ["why", "{}", "--where", "reward > 1", "--json"]],
    "steps": [["steps", "{}"]],
    "grep": [["grep", "text", "{}"]],
    "diff": [["diff", "{}", "{}"]],
    "compare": [["compare", "ab", "cd", "--run", "{}"]],
    "view": [["view", "{}", "--export", "page.html"], ["page", "{}"]],
    "status": [["status", "{}"], ["status", "{}", "--json"]],
    "sql": [["sql", "SELECT count(*), max(reward) FROM trajectories", "{}"]],
    "ship": [["ship", "--backend", "jsonl", "{}"]],
    "export": [["export", "{}", "--format", name, "--out", "exported"] for name in FORMATS],
    "open": [["open", "{}"]],
    "door": [["door", "{}"]],
}
"""Command that reads a run -> how it is called. ``door`` and ``page``: see ``guarded.command``."""
OTHERS = {
    "mcp": [["mcp", "{}"]],
    "label": [["label", "ab", "good", "why", "--run", "{}"]],
    "doctor": [["doctor"]],
    "init": [["init", "{}", "--out", "-"]],
    "check": [["check", "{}"]],
    "demo": [["demo", "--run-dir", "demo"]],
    "help": [["help", "data"]],
    "skill": [["skill"]],
}
"""The other commands. ``doctor`` shows the newest run of ``AUTOTRACE_RUN_DIR``."""
OPTIONS = [
    ["ls", "{}", "--all", "--json"], ["show", "ab", "{}", "--full"], ["diagnose", "{}", "--json"],
    ["steps", "{}", "--by", "data_source", "--json"], ["grep", "-i", "TEXT", "{}", "--json"],
    ["compare", "ab", "cd", "--run", "{}", "--json"], ["view", "{}", "--perfetto", "timelines.json"],
    ["why", "{}", "--step", "1", "--against", "2", "--json"], ["sql", "SELECT * FROM spans", "{}", "--json"],
    ["diff", "{}@1", "{}@2", "--json"],
    ["status", "{}", "--all"], ["export", "{}", "--format", "jsonl", "--dedup", "--out", "once"],
]  # fmt: skip
"""Commands that read, with options that lead to another output."""
_TREE = str(Path(__file__).parents[2])
SHARE = 8
WRITES, STARTS = ("ship", "label"), ("doctor",)
"""Commands that may write into the run folder that was named, and one that starts the interpreter."""


def commands(place: Path | str, *, ships: bool = True, others: bool = False) -> list[list[str]]:
    """Every way to read ``place``; those that may write there last. ``others``: every command that there is, also with
    options."""
    called = [*READS.values(), *([*OTHERS.values(), OPTIONS] if others else ())]
    every = [words for ways in called for words in ways if ships or words[0] not in WRITES]
    return sorted(
        ([word.replace("{}", str(place)) for word in words] for words in every), key=lambda words: words[0] in WRITES
    )


def parts(places: Iterable[Any], first: Collection[Any] | None = None) -> list[Any]:
    """Parameters (place, part): each place meets each part of the commands, see ``part_of``. ``make test`` tries an
    eighth of the commands on each place, in turns, so that each command meets an eighth of the places, and
    ``make test-all`` the other commands, too, which CI leaves to the night. If ``first`` is given, ``make test`` has
    those places only."""
    rest, further = [pytest.mark.long, pytest.mark.night], [pytest.mark.long]
    return [
        pytest.param(place, (number, is_rest), id=f"{getattr(place, '__name__', place)}-{word}",
                     marks=rest if is_rest else further if first is not None and place not in first else [])
        for number, place in enumerate(places)
        for word, is_rest in (("some", False), ("rest", True))
    ]  # fmt: skip


def part_of(every: list[list[str]], part: tuple[int, bool]) -> list[list[str]]:
    """Every eighth of the commands, or the rest of the commands."""
    (number, is_rest), share = part, min(SHARE, len(every))
    return [words for at, words in enumerate(every) if (at % share != number % share) is is_rest]


def writing(every: list[list[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """The commands of ``every`` that may not write into the run folder, and those that may."""
    may = [words for words in every if words[0] in WRITES]
    return [words for words in every if words not in may], may


def run(every: list[list[str]], here: Path, mine: Path, memory: int = MEMORY, bucket: Path | None = None,
        **environ: str) -> list[dict[str, Any]]:  # fmt: skip
    """What each command said and did; see ``guarded``. ``here``: the current directory, ``mine``: the reader's,
    ``bucket``: a folder that is ``memory://bucket`` there."""
    given = {
        "here": str(here), "environ": {"HOME": str(here), **environ}, "mine": str(mine), "commands": every,
        "memory": memory, "seconds": SECONDS, "bucket": bucket and str(bucket),
    }  # fmt: skip
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    print(json.dumps(given), file=server.stdin, flush=True)
    answers: list[dict[str, Any]] = json.loads(server.stdout.readline())
    return answers


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Ends with this process, which closes its stdin. ``READ_WITH`` names a folder with another release of the package,
    whose commands then read, instead of the commands of this tree."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "PYTHON", "MLFLOW"))}
    kept |= {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.environ.get("READ_WITH", _TREE)}
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("guarded.py"))], text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env=kept,
    )  # fmt: skip


def faults(answers: list[dict[str, Any]]) -> list[str]:
    """What reading must not do, and did."""
    found = []
    for answer in answers:
        words, said = " ".join(answer["words"]), answer["out"] + answer["err"]
        if answer["code"] < 0 or answer["code"] == 99:
            found.append(f"{words}: ended with {answer['code']} after {answer['seconds']:.0f} s of CPU")
        if "Traceback" in answer["err"] or "MemoryError" in answer["err"]:
            found.append(f"{words}: {answer['err'][-600:]}")
        if any(escape in said for escape in ESCAPES):
            found.append(f"{words}: an escape sequence: {said!r:.200}")
        places = [os.path.realpath(word) + "/" for word in answer["words"] if os.path.isabs(word)]
        own = next(iter(places), None) if answer["words"][0] in WRITES else None
        if answer["words"][0] in STARTS:
            answer["did"] = [what for what in answer["did"] if not what.startswith(("subprocess.Popen", "os."))]
        found += [
            f"{words}: {what}" for what in answer["did"] if own is None or not what.partition(" ")[2].startswith(own)
        ]
    return found


def files_of(folder: Path) -> dict[str, tuple[int, str]]:
    """Of every file when it was changed, and its content; a link is not followed, a large one not read."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, _content(path)) for path in sorted(folder.rglob("*"))
    }


def _content(path: Path) -> str:
    if path.is_symlink():
        return os.readlink(path)
    if not path.is_file() or path.stat().st_size > 1 << 30:
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()


assert READS.keys() | OTHERS.keys() == COMMANDS.keys() | {"door"}, "a command is missing here"
