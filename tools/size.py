"""Lines of code by room: ``python tools/size.py [ROOT]``. With ``--check`` it fails above ``CEILING``, above
``MOST_SCRIPT``, and where a file has more than ``LONGEST`` lines of any kind.

A line counts if it holds code: blank lines, comments and docstrings do not. JavaScript counts as Python does, so a
type that a comment declares costs nothing.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

CEILING = {"lines": 43_581, "files": 396}
LONGEST = 350
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_NO_CODE = {*_LAYOUT, tokenize.COMMENT, tokenize.ENCODING}
MOST_SCRIPT = 4_354
"""Lines of the page's own JavaScript, as its formatter writes them."""
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(path: Path) -> int:
    """Lines of ``path`` with code on them."""
    with tokenize.open(path) as file:
        text = file.read()
    lines: set[int] = set()
    for token in tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(lines)


def script_lines(path: Path) -> int:
    """Lines of a JavaScript file with code on them: no comment of this tree begins behind code on its line and goes
    on in the next."""
    text = re.sub(r"^\s*/\*(?:(?!\*/).)*\*/\s*$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    return sum(bool(line.strip()) and not line.lstrip().startswith("//") for line in text.splitlines())


def main(arguments: list[str]) -> int:
    """Prints the table; with ``--check`` returns 1 above the ceiling."""
    check = "--check" in arguments
    roots = [argument for argument in arguments if not argument.startswith("-")]
    package = Path(roots[0] if roots else Path(__file__).parent.parent) / "autotrace"
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        room = parts[0] if len(parts) > 1 else "(root)"
        lines[room] += code_lines(path)
        files[room] += 1
    script = sum(script_lines(path) for path in package.rglob("*.js") if "vendor" not in path.parts)
    print(f"{'room':<14}{'lines':>8}{'files':>8}")
    for room in sorted(lines):
        print(f"{room:<14}{lines[room]:>8,}{files[room]:>8}")
    total = {"lines": lines.total(), "files": files.total()}
    print(f"{'all':<14}{total['lines']:>8,}{total['files']:>8}    JavaScript of the page: {script:,} lines")
    over = [f"{name}: {total[name]:,} of {CEILING[name]:,}" for name in CEILING if total[name] > CEILING[name]]
    for path in package.rglob("*.py"):
        if (long := len(path.read_text().splitlines())) > LONGEST:
            over.append(f"{path.relative_to(package.parent)}: {long} lines of {LONGEST}")
    if script > MOST_SCRIPT:
        over.append(f"JavaScript: {script:,} of {MOST_SCRIPT:,}")
    if check and over:
        print(f"above the ceiling of tools/size.py: {', '.join(over)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
