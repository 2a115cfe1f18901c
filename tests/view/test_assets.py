"""The files of the page."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter

from autotrace.view.one_file import STATIC, bundle

MODULES = sorted(STATIC.glob("*.js"))
_DECLARED = re.compile(r"^(?:export )?(?:async )?(?:function\*?|class|const|let)\s+(\w+|\[[^\]]*\])", re.M)


def declared(text: str) -> list[str]:
    """Names at the top level of a module."""
    return [name for found in _DECLARED.findall(text) for name in re.findall(r"\w+", found)]


def test_the_modules_become_one_script() -> None:
    script = bundle("main.js")
    assert not re.search(r"^(import|export)\b", script, re.M)
    for module in MODULES:
        names = declared(module.read_text())
        assert names, module
        assert set(names) <= set(declared(script)), f"{module.name} is not in the bundle"
    twice = [name for name, count in Counter(declared(script)).items() if count > 1]
    assert twice == []


def test_own_javascript_stays_readable_in_an_evening() -> None:
    lines = [line.strip() for module in MODULES for line in module.read_text().splitlines()]
    assert sum(bool(line) and not line.startswith(("//", "/*", "*")) for line in lines) <= 3000
    assert all(len(module.read_text().splitlines()) <= 350 for module in MODULES)


LONG_LINES = {
    "colour.js": 7,
    "conversation.js": 20,
    "curves.js": 15,
    "data.js": 7,
    "dom.js": 5,
    "heat.js": 1,
    "histogram.js": 4,
    "lanes.js": 16,
    "main.js": 12,
    "page_group.js": 15,
    "page_overview.js": 18,
    "page_runs.js": 4,
    "page_steps.js": 15,
    "page_table.js": 31,
    "page_trace.js": 45,
    "rows.js": 8,
    "scatter.js": 13,
    "strip.js": 14,
    "timeline.js": 15,
    "tokens_view.js": 13,
}
"""Lines with more than 120 characters that are left in some modules: no other module has any, and they become fewer."""


def test_lines_are_short() -> None:
    found = {module.name: sum(len(line) > 120 for line in module.read_text().splitlines()) for module in MODULES}
    assert {name: count for name, count in found.items() if count} == LONG_LINES


def test_the_libraries_are_those_of_the_manifest() -> None:
    listed = json.loads((STATIC / "vendor" / "manifest.json").read_text())
    digests = {file: digest for library in listed for file, digest in library["sha256"].items()}
    there = {path.name: path for path in (STATIC / "vendor").iterdir() if path.suffix in (".js", ".css")}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in there.items()} == digests
    for library in listed:
        assert library["name"] and library["version"] and library["licence"] in ("MIT", "BSD-3-Clause")
        assert "ermission is hereby granted" in (text := licence(library)) or "Redistribution and use" in text


def licence(library: dict[str, str]) -> str:
    """The text of a library's licence."""
    return (STATIC / "vendor" / library["licence_file"]).read_text()


def test_nothing_makes_markup_of_text_and_nothing_is_asked_of_others() -> None:
    for module in MODULES:
        text = module.read_text()
        for risky in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "http:",
            "https:",
        ):
            assert risky not in text, f"{module.name}: {risky}"
    page = (STATIC / "index.html").read_text() + (STATIC / "page.css").read_text()
    assert "http:" not in page and "https:" not in page and not re.search(r"<script>|\son\w+=|style=", page)
