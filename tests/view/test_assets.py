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


def test_modules_are_short_and_so_are_their_lines() -> None:
    """``tools/size.py --check`` has the ceiling of all of them together."""
    for module in MODULES:
        lines = module.read_text().splitlines()
        assert len(lines) <= 350, module.name
        assert max(map(len, lines)) <= 120, module.name


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
