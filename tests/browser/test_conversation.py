"""What was said is shown as a person reads it, and nothing of it becomes markup or is fetched."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Visit
from tests.ship.spools import Process, attributes, new_run

Open = Callable[..., Visit]

PLAN = r"""## Plan

I will **first** read the file, *then* fix the bug. It costs $5 or $6. Steps:

1. Run `pytest -q` and look at the failure
2. Patch `src/parser.py`:
   - handle the empty case
   - keep the old behaviour otherwise

```python
def parse(line: str) -> dict[str, int]:
    if not line.strip():
        return {}  # the empty case
    return {k: int(v) for k, v in (p.split("=") for p in line.split(","))}
```

| case | before | after |
|---|---:|---:|
| `""` | ValueError | `{}` |
| `a=1` | 1 | 1 |

> Note: the limit is $\sum_{i=1}^{n} x_i^2 \le \frac{n(n+1)}{2}$ as shown in

\[
\int_0^1 e^{-x^2}\,dx
= 0.7468
\]

See [the docs](https://example.com/docs) and ![a picture](https://example.com/a.png).
"""
DIFF = """diff --git a/src/parser.py b/src/parser.py
--- a/src/parser.py
+++ b/src/parser.py
@@ -1,2 +1,4 @@
 def parse(line):
-    return int(line)
+    if not line.strip():
+        return {}
"""
CODE = "import subprocess\nsubprocess.run(['pytest', '-q'])\nfor i in range(10):\n    print(i)"
RESULT = '{"results": [{"title": "Aachen", "score": 1.0}, {"title": "Bremen", "score": 12345678901234567890}]}'
TOPICS = ("towns", "rivers")
HEBREW = "שלום, זה 42"
FAMILY = "👩‍👩‍👧 🏳️‍🌈 می‌خواهم क्‍ष"


def reply(content: str, *calls: tuple[str, dict[str, Any]], thought: str | None = None) -> dict[str, Any]:
    """An answer of a model."""
    made = [{"function": {"name": name, "arguments": json.dumps(given)}} for name, given in calls]
    more = {"tool_calls": made} if made else {}
    return {"choices": [{"message": {"role": "assistant", "content": content, "reasoning_content": thought, **more}}]}


def worked(parent: Path) -> Path:
    """A run of an agent that writes Markdown and calls tools, and of one with sub-agents."""
    folder = new_run(parent, "said")
    process, trace = Process(folder), b"\1" * 16
    root = process.open(trace, "trajectory", attributes=attributes(step=1))
    asked = [{"role": "system", "content": "You are a helpful agent. " * 60}, {"role": "user", "content": HEBREW}]
    llm = process.open(trace, "llm", root, inputs={"messages": asked})
    calls: list[tuple[str, dict[str, Any]]] = [
        ("run_code", {"code": CODE, "timeout": 30}),
        ("search", {"query": "towns"}),
    ]
    said = reply(PLAN, *calls, thought="**Hm.**")
    process.close(trace, llm, output=said)
    for name, given, told in (
        ("run_code", {"code": CODE, "timeout": 30}, DIFF),
        ("search", {"query": "towns"}, RESULT),
    ):
        tool = process.open(trace, "tool", root, inputs={"tool_call": {"name": name, "arguments": json.dumps(given)}})
        process.close(trace, tool, output=told)
    again = [
        *asked,
        said["choices"][0]["message"],
        {"role": "tool", "content": DIFF},
        {"role": "tool", "content": RESULT},
    ]
    llm = process.open(trace, "llm", root, inputs={"messages": again})
    process.close(trace, llm, output=reply(f"{FAMILY}\n\n" + "A long line of text. \n" * 400))
    process.fact("reward", 0.2, trace)
    process.close(trace, root)
    process.exit()
    return folder


def delegated(parent: Path) -> tuple[Path, str]:
    """A run of an agent that has two researchers work at the same time."""
    folder = new_run(parent, "tree")
    process, trace = Process(folder), b"\2" * 16
    root = process.open(trace, "trajectory", attributes=attributes(step=1))
    asked = [{"role": "user", "content": "Write a report."}]
    llm = process.open(trace, "llm", root, inputs={"messages": asked})
    said = reply("I ask two.")
    process.close(trace, llm, output=said)
    agents = [process.open(trace, "agent", root, attributes={"name": f"{one} researcher"}) for one in TOPICS]
    talks = [[{"role": "system", "content": f"You are researcher {one}."}, {"role": "user", "content": f"Find {one}."}]
             for one in TOPICS]  # fmt: skip
    for turn in range(2):
        for agent, talk in zip(agents, talks, strict=True):
            llm = process.open(trace, "llm", agent, inputs={"messages": list(talk)})
            answer = reply(f"Found {turn}: {talk[1]['content']}")
            process.close(trace, llm, output=answer)
            talk += [answer["choices"][0]["message"], {"role": "user", "content": f"More {turn}, please."}]
    for agent in agents:
        process.close(trace, agent, output="a summary")
    after = [*asked, said["choices"][0]["message"], {"role": "user", "content": "Go on."}]
    llm = process.open(trace, "llm", root, inputs={"messages": after})
    process.close(trace, llm, output=reply("The report."))
    process.close(trace, root)
    process.exit()
    return folder, trace.hex()


def test_markdown_code_tables_and_formulas(tmp_path: Path, visit: Open) -> None:
    tab = visit(worked(tmp_path))
    page = tab.go(f"#/run/said/trace/{'01' * 16}", ".item")
    first = page.locator(".item.assistant").first
    expect(first.locator(".title.h2")).to_have_text("Plan")
    assert first.locator("strong").all_inner_texts()[-1] == "first" and first.locator("em").inner_text() == "then"
    assert first.locator("ol > li").count() == 2 and first.locator("ol ul > li").count() == 2
    assert first.locator("th").all_inner_texts() == ["case", "before", "after"]
    code = first.locator("pre.code[data-language=python]")
    expect(code.locator(".hl-keyword").first).to_have_text("def")
    assert code.inner_text().startswith("def parse(line: str)")
    expect(first.locator("math")).to_have_count(2)
    expect(first.locator("blockquote math msubsup")).not_to_have_count(0)
    expect(first).to_contain_text("It costs $5 or $6.")
    link = first.locator("a[href]")
    assert (link.get_attribute("href"), link.get_attribute("rel")) == (
        "https://example.com/docs",
        "noopener noreferrer nofollow",
    )
    expect(first).to_contain_text("[picture: a picture, https://example.com/a.png]")
    assert page.locator("img").count() == 0
    assert page.locator(".item.user .markdown p").evaluate("(p) => getComputedStyle(p).direction") == "rtl"
    expect(page.locator(".item.assistant").nth(1).locator("p").first).to_have_text(FAMILY)
    page.keyboard.press("m")
    expect(page).to_have_url(re.compile("raw=1"))
    expect(first.locator("> .prose, > .folding .prose")).to_contain_text("## Plan")
    page.keyboard.press("m")
    expect(first.locator(".title.h2")).to_have_text("Plan")


DEFINED = (
    r"\def\a{xx}\def\b{\a\a}\b", r"\gdef\a{x}\a", r"\edef\a{x}\a", r"\xdef\a{x}\a", r"\let\a=x\a",
    r"\newcommand{\a}{x}\a", r"\renewcommand{\frac}{x}\frac", r"\providecommand{\a}{x}\a", r"\global\def\a{x}\a",
    r"\long\def\a{x}\a",
)  # fmt: skip
"""Formulas that KaTeX renders, and whose definitions could make more of a formula than the length."""


def test_a_formula_that_defines_something_stays_its_source(tmp_path: Path, visit: Open) -> None:
    folder, trace = new_run(tmp_path, "defined"), b"\1" * 16
    process = Process(folder)
    root = process.open(trace, "trajectory", attributes=attributes(step=1))
    llm = process.open(trace, "llm", root, inputs={"messages": [{"role": "user", "content": "q"}]})
    said = "\n\n".join(f"Here ${formula}$ stands." for formula in (*DEFINED, r"\frac{a}{b}"))
    process.close(trace, llm, output=reply(said))
    process.close(trace, root)
    process.exit()
    page = visit(folder).go(f"#/run/defined/trace/{'01' * 16}", ".item")
    for number in range(len(DEFINED) + 1):
        page.locator(".item.assistant .formula").nth(number).scroll_into_view_if_needed()
    expect(page.locator(".item.assistant math")).to_have_count(1)
    assert page.locator(".item.assistant .formula.source").all_inner_texts() == list(DEFINED)


def test_a_call_of_a_tool_is_one_card(tmp_path: Path, visit: Open) -> None:
    tab = visit(worked(tmp_path))
    page = tab.go(f"#/run/said/trace/{'01' * 16}", ".item")
    cards = page.locator(".called-tool")
    expect(cards).to_have_count(2)
    assert cards.locator(".item-head b").all_inner_texts() == ["run_code", "search"]
    assert cards.first.locator("dt").all_inner_texts() == ["code", "timeout"]
    assert cards.first.locator("dd pre.code").inner_text() == CODE
    expect(cards.first.locator(".result .hl-addition").first).to_contain_text("if not line.strip")
    written = cards.nth(1).locator(".result pre.code").inner_text()
    assert '      "score": 12345678901234567890' in written and "1.0" in written, "digits stay"


def test_long_texts_begin_folded(tmp_path: Path, visit: Open) -> None:
    tab = visit(worked(tmp_path))
    page = tab.go(f"#/run/said/trace/{'01' * 16}", ".item")
    fold = page.locator(".item.system .folding")
    before = fold.bounding_box()
    fold.locator(".unfold").click()
    after = fold.bounding_box()
    assert before and after and before["height"] < after["height"]
    page.fill(".tabs .words", "keep the old behaviour")
    expect(page.locator(".conversation mark").first).to_have_text("keep the old behaviour")


def test_sub_agents_are_folded_where_they_were_called(tmp_path: Path, visit: Open) -> None:
    folder, trace = delegated(tmp_path)
    page = visit(folder).go(f"#/run/tree/trace/{trace}", ".item")
    blocks = page.locator(".sub-agent")
    expect(blocks).to_have_count(2)
    expect(blocks.first.locator("summary")).to_have_text("sub-agent 1 · towns researcher 2 turns Find towns.")
    expect(blocks.nth(1).locator(".item").first).to_be_hidden()
    blocks.nth(1).locator("summary").click()
    written = blocks.nth(1).locator(".item.assistant")
    expect(written).to_have_count(2)
    for number in range(2):
        expect(written.nth(number)).to_be_visible()
        expect(written.nth(number)).to_contain_text("rivers")
    assert page.locator(".conversation > .item.assistant").count() == 2, "the agent's own turns"
    page.locator(".branches button").nth(1).click()
    expect(blocks.first.locator(".item.assistant").first).to_be_in_viewport()


SCRIPT = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"
MARKUP = [
    SCRIPT, f"# {SCRIPT}", f"- {SCRIPT}", f"| {SCRIPT} |\n|---|\n| {SCRIPT} |", f"> {SCRIPT}", f"`{SCRIPT}`",
    f"```html\n{SCRIPT}\n```", f"```{SCRIPT}\n{SCRIPT}\n```", f"```html onload=window.pwned=1\n{SCRIPT}\n```",
    "[a](javascript:window.pwned=1)",
    "[a](  javascript&colon;window.pwned=1)", "[a](data:text/html,<script>1</script>)",
    "[a](vbscript:x)", "[a](//evil.example/)", "<javascript:window.pwned=1>", f'[a](https://x.example "{SCRIPT}")',
    "[a](https://x.example/'onclick='window.pwned=1)", "![a](javascript:window.pwned=1)",
    "![a](http://evil.example/p.png)",
    "![a](data:image/svg+xml;base64,PHN2Zz4=)", "<a href='javascript:window.pwned=1'>a</a>",
    "<iframe src=//evil.example>",
    r"$\href{javascript:window.pwned=1}{x}$", r"$\htmlClass{a}{x}$ $\includegraphics{http://evil.example/p.png}$",
    r"$\htmlStyle{background:url(http://evil.example)}{x}$", r"$\text{" + SCRIPT + "}$", r"$\def\a{\a\a}\a$",
    r"$\url{javascript:window.pwned=1}$", r"$\fbox{x}\colorbox{red}{x}\rule{9999em}{9999em}$",
    json.dumps({"__proto__": SCRIPT, SCRIPT: [SCRIPT]}), DIFF + f"+{SCRIPT}\n", "[x]: javascript:window.pwned=1\n\n[x]",
    "[" * 5000, ">" * 5000, r"\(" * 5000, "`" * 5000, "$" * 5000, "*a_" * 5000, "\n".join(["|a" * 100] * 40),
]  # fmt: skip


def hostile(parent: Path) -> Path:
    """A run in which every place that is rendered has all of ``MARKUP``."""
    folder = new_run(parent, "hostile")
    process = Process(folder)
    for number, text in enumerate(MARKUP):
        trace = bytes([number + 1]) * 16
        root = process.open(trace, "trajectory", attributes=attributes(rollout=number, step=1))
        asked = [{"role": role, "content": text} for role in ("system", "user")]
        llm = process.open(trace, "llm", root, inputs={"messages": asked})
        said = reply(text, (text[:200], {"code": text, text[:200]: text}), (text, {"a": text}), thought=text)
        process.close(trace, llm, output=said)
        tool = process.open(
            trace, "tool", root, inputs={"tool_call": {"name": text[:200], "arguments": {"code": text}}}
        )
        process.close(trace, tool, output=text)
        process.fact("reward", float(number), trace)
        process.close(trace, root)
    process.exit()
    return folder


def is_harmless(page: Page) -> None:
    """Scroll through the whole conversation, so that all of it is rendered, and see what is there."""
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.evaluate("document.querySelectorAll('.folded').forEach((each) => each.classList.remove('folded'))")
    page.evaluate(
        """async () => { for (const each of document.querySelectorAll('.formula, pre.code')) {
            each.scrollIntoView();
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        } }"""
    )
    assert page.evaluate("window.pwned") is None
    assert (
        page.locator(".body").locator("img, svg, script, iframe, style, [style*=url], [onerror], [onclick]").count()
        == 0
    )
    addresses = page.locator(".body a").evaluate_all("(all) => all.map((each) => each.href)")
    assert all(address.startswith("https://x.example") for address in addresses), addresses


def test_what_a_model_writes_never_becomes_markup(tmp_path: Path, visit: Open) -> None:
    tab = visit(hostile(tmp_path))
    for number in range(len(MARKUP)):
        is_harmless(tab.go(f"#/run/hostile/trace/{bytes([number + 1]).hex() * 16}", ".item.tool"))
    assert tab.wrong == []


@pytest.mark.parametrize("number", [0, 7, 26])
def test_nor_in_an_exported_file(number: int, tmp_path: Path, browser: Browser) -> None:
    file = tmp_path / "page.html"
    command = [sys.executable, "-m", "autotrace", "view", str(hostile(tmp_path)), "--export", str(file)]
    subprocess.run(command, check=True, timeout=300)
    page = browser.new_page()
    tab = Visit(page, file.as_uri())
    page.goto(file.as_uri())
    is_harmless(tab.go(f"#/run/any/trace/{bytes([number + 1]).hex() * 16}", ".item.tool"))
    assert tab.wrong == []
    page.close()
