"""The files of the page."""

from __future__ import annotations

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
    assert sum(len(module.read_text().splitlines()) for module in MODULES) <= 3000
    assert all(len(module.read_text().splitlines()) <= 350 for module in MODULES)


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
