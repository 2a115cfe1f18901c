"""How often ordinary text is taken for a credential: the share of strings that redaction touches.

    python benchmarks/false_alarms.py [--megabytes 10] [--show 20] [FOLDER ...]

The strings are what conversations of agents are made of, and the installed packages have plenty of it: half prose
(Markdown, reStructuredText, docstrings), in messages of a paragraph or a few, and half code, in pieces as an agent
reads or writes it. What is touched is not always false: documentation shows credentials. ``--show`` prints the places.
"""

from __future__ import annotations

import argparse
import ast
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from autotrace.redact.credentials import without_credentials

PIECE = 2_000
"""Characters of code in a string: about what a tool gives an agent to read."""


def main() -> None:
    """Print how many strings of prose and of code are touched."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="default: the installed packages")
    parser.add_argument("--megabytes", type=float, default=10, help="of text, half of it prose")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="places to print")
    options = parser.parse_args()
    folders = options.folders or [Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("stdlib"))]
    half = int(options.megabytes * 500_000)
    strings = touched = 0
    for kind, texts in (("prose", _prose(folders)), ("code", _code(folders))):
        looked_at = list(_up_to(texts, half))
        places = [place for text in looked_at if (place := _touched(text))]
        strings, touched = strings + len(looked_at), touched + len(places)
        print(f"{kind:6} {sum(map(len, looked_at)) / 1e6:5.1f} MB {_share(len(places), len(looked_at))}")
        for place in islice(places, options.show):
            print(f"       {place!r}")
    print(f"all              {_share(touched, strings)}")


def _share(touched: int, strings: int) -> str:
    return f"{touched:4} of {strings:6} strings touched, {touched / max(strings, 1):.3%}"


def _touched(text: str) -> str:
    """What stands around the first place that redaction changes; empty if it changes nothing."""
    cleaned = without_credentials(text)
    if cleaned == text:
        return ""
    start = next((at for at, (old, new) in enumerate(zip(text, cleaned, strict=False)) if old != new), 0)
    return cleaned[max(0, start - 50) : start + 40]


def _up_to(texts: Iterator[str], characters: int) -> Iterator[str]:
    for text in texts:
        yield text
        characters -= len(text)
        if characters <= 0:
            return


def _files(folders: list[Path], *suffixes: str) -> Iterator[str]:
    """Texts of files in an order that mixes the packages, the same each time."""
    paths = {path for folder in folders for suffix in suffixes for path in folder.rglob(f"*{suffix}")}
    for path in sorted(paths, key=lambda path: (path.stem[-3:], path.as_posix())):
        try:
            yield path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue


def _prose(folders: list[Path]) -> Iterator[str]:
    """Paragraphs of documents, three a message, and docstrings, a message each."""
    documents = _files(folders, ".md", ".rst", "METADATA")
    code = _files(folders, ".py")
    for text, source in zip(documents, code, strict=False):
        paragraphs = text.split("\n\n")
        for start in range(0, len(paragraphs), 3):
            yield "\n\n".join(paragraphs[start : start + 3])
        yield from _docstrings(source)
    for source in code:
        yield from _docstrings(source)


def _docstrings(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield text


def _code(folders: list[Path]) -> Iterator[str]:
    for source in _files(folders, ".py"):
        for start in range(0, len(source), PIECE):
            yield source[start : start + PIECE]


if __name__ == "__main__":
    main()
