"""What a model writes is shown as text, and the words of ``--where`` mean on the page what they mean in the shell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from autotrace.ship.readers import of_run
from autotrace.tables.conditions import WhereError, condition
from tests.browser.conftest import Visit
from tests.run_folder import recorded
from tests.ship.spools import Process, attributes, new_run

Open = Callable[..., Visit]
ROWS = ".scroller .row:not([hidden])"

SCRIPT = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'><svg onload='window.pwned = 1'>"
BIDI = "\u202egnp.exe\u202c \u2066hidden\u2069 zero\u200bwidth \ufeff"
ANSI = "\x1b[31mred\x1b[0m \x07 \x9b2J"
LINE = "A" * 10_000_000
"""Longer than records may be: what arrives is cut."""
HIDDEN = set("\x1b\x07\x9b\u202e\u2066\ufeff")
HALF = "half of a character: \ufffd"


NAME = "run <img src=x onerror='window.pwned = 1'> %2e%2f#?&‮[31m"
"""A folder may be called anything."""


def hostile_run(parent: Path) -> Path:
    folder = new_run(parent, NAME, command=["python", SCRIPT, BIDI, ANSI], run_id="run")
    process = Process(folder, run_id="run")
    for number, text in enumerate((SCRIPT, BIDI, ANSI, LINE, HALF)):
        trace = bytes([number + 1]) * 16
        who = attributes(rollout=number, uid=SCRIPT, data_source=text, step=1)
        root = process.open(trace, "trajectory", attributes=who)
        llm = process.open(trace, "llm", root, inputs={"messages": [{"role": "user", "content": text}]})
        process.close(trace, llm, output={"choices": [{"message": {"role": "assistant", "content": text}}]})
        tool = process.open(trace, "tool", root, inputs={"tool_call": {"name": text, "arguments": text}})
        process.close(trace, tool, status="ERROR", error=(text, text, text), output=text, attributes={text: text})
        for name, value in ((text, text), ("__proto__", text), ("constructor", 1.0), ("reward", float(number))):
            process.fact(name, value, trace)
        process.close(trace, root, status="ERROR", error=(SCRIPT, text, SCRIPT))
    process.exit()
    return folder


def test_hostile_texts_are_texts(tmp_path: Path, visit: Open) -> None:
    tab = visit(hostile_run(tmp_path))
    page, run = tab.page, f"#/run/{quote(NAME, safe='')}"
    page.wait_for_selector(ROWS)
    expect(page.locator(".count")).to_contain_text("5 trajectories")
    said = {}
    for number in range(5):
        trace = bytes([number + 1]).hex() * 16
        for view, wait in (("conversation", ".item"), ("tokens", ".tokens"), ("timeline", ".timeline-canvas")):
            tab.go(f"{run}/trace/{trace}?view={view}", wait)
            expect(page.locator(".heading code")).to_have_text(trace[:12])
            said[number, view] = page.inner_text("body")
        page.locator(".timeline-canvas").click(position={"x": 100, "y": 22 + 2 * 20 + 10})
        expect(page.locator(".call-box h2")).to_be_visible()
        said[number, "call"] = page.inner_text("body")
    places = {
        "": ROWS, "/steps?step=1": ".lanes .last", "/steps": ".heat", "/tools": "tr[data-tool]",
        "/overview": ".found-list li", f"/group/{'01' * 16}": ".card",
    }  # fmt: skip
    for place, wait in places.items():
        tab.go(f"{run}{place or '/table'}", wait)
        said[0, place] = page.inner_text("body")
    said[0, "runs"] = tab.go("#/runs", ".runs").inner_text("body")
    assert not [where for where, text in said.items() if set(text) & HIDDEN]
    longest = {where: len(text) for where, text in said.items() if len(text) >= 500_000}
    assert not longest, "of 10 MB the beginning is shown"
    for number, written in enumerate(
        ("<script>window.pwned = 1</script>", "\\u202egnp.exe", "\\x1b[31mred", "AAAA", HALF)
    ):
        for view in ("conversation", "call"):
            assert written in said[number, view], (number, view)
        assert "AT-TOOL-RAISES" in said[number, "conversation"], number
    assert "<script>window.pwned = 1</script>" in said[0, "/tools"] and "\\x1b[31mred" in said[0, "/tools"]
    assert "onerror" in said[0, "runs"] and "\\u202e" in said[0, "runs"]
    assert page.evaluate("window.pwned") is None
    assert page.locator("img, svg, script:not([src])").count() == 0


def test_hostile_texts_in_a_file_and_in_a_notebook(tmp_path: Path, browser: Browser) -> None:
    folder, file = hostile_run(tmp_path), tmp_path / "page.html"
    command = [sys.executable, "-m", "autotrace", "view", str(folder), "--export", str(file)]
    subprocess.run(command, check=True, timeout=300)
    page = browser.new_page()
    tab = Visit(page, file.as_uri())
    page.goto(file.as_uri())
    tab.go("#/run/any/table", ROWS)
    for number in range(5):
        for view, wait in (("conversation", ".item"), ("tokens", ".tokens"), ("timeline", ".timeline-canvas")):
            tab.go(f"#/run/any/trace/{bytes([number + 1]).hex() * 16}?view={view}", wait)
    expect(tab.go(f"#/run/any/trace/{'01' * 16}", ".item").locator(".item").first).to_contain_text("<script>window")
    assert tab.wrong == []
    page.close()
    page = browser.new_page()
    for one in map(of_run(folder).load, ("01", "02", "03", "05")):
        page.set_content(f"<!doctype html><body>{one._repr_html_()}")
        assert not set(page.inner_text("body")) & HIDDEN
        assert page.evaluate("window.pwned") is None and page.locator("img, svg, script").count() == 0
    page.close()


EXPRESSIONS = [
    "reward < 0.5", "not reward < 0.5", "reward is null", "reward is not null and step = 2", "status = 'ok'",
    "step in (2, 3)", "step not in (1)", "sample = 7", "sample > 6.5", "sample_index = '7'", "uid contains 'U'",
    "uid not contains 'u1'", "error contains 'timeout'", "error is null or reward >= 1", "validate", "not validate",
    "validate = false", "turns = llm_calls", "reward < advantage",
    "advantage >= 0.5 and (rollout_n = 0 or rollout_n = 1)", "facts.reward_extra_info.acc",
    "facts.reward_extra_info.acc = true", "not facts.reward_extra_info.acc", "facts.nothing = 1",
    "facts.nothing is null", "facts.reward > 'a'", "facts.reward < 'a'", "attributes.data_source = 'gsm8k'",
    "attributes.project_name contains 'RO'", "duration > 0.001", "queue_s = .25", "tool_s >= 0 and decode_s < 1e3",
    "trace_id contains 'a'", "name contains 'agent'", "reward = -0.0", "reward <> 0.25", 'uid = "u1"',
    "start > 1700000000", "start_ns > 1", "trained_in_step = 2", "finding = 'AT-TRUNCATED'",
    "finding != 'at-truncated'", "finding in ('AT-TRUNCATED', 'AT-HUNG')", "finding not in ('AT-TRUNCATED')",
    "finding contains 'at-tr'", "finding not contains 'AT-T'", "finding is null", "truncated", "not truncated",
    "tool_error = true", "finding < 'A'", "rewad < 1", "reward = 'x'", "uid = u1", "uid < 3",
    "status = 'fine'", "reward <", "(reward < 1", "reward in (1, 'a')", "reward contains 'a'", "uid", "'u1",
    "reward < 1 reward", "facts = 1", "",
]  # fmt: skip


def test_the_filter_means_what_where_means(tmp_path: Path, visit: Open) -> None:
    folder = recorded(tmp_path)
    tab = visit(folder)
    tab.page.wait_for_selector(".scroller .row:not([hidden])")
    reader = of_run(folder)
    for expression in EXPRESSIONS:
        try:
            rows = reader.select(condition(expression)) if expression else []
            expected: list[str] | None = sorted(row.trace_id for row in rows)
        except WhereError:
            expected = None
        found = tab.page.evaluate(ON_THE_PAGE, [folder.name, expression])
        assert found == expected, expression
    assert tab.wrong and all("400" in line for line in tab.wrong), "what the browser logs of a refused condition"
    tab.wrong.clear()


ON_THE_PAGE = """async ([run, expression]) => {
    const { rowsOf } = await import("/static/rows.js");
    const { Problem } = await import("/static/data.js");
    const rows = await rowsOf(run);
    try {
        return [...await rows.where(expression)].map((row) => rows.id(row)).sort();
    } catch (error) {
        if (error instanceof Problem) return expression ? null : [];
        throw error;
    }
}"""


@pytest.mark.parametrize("text", [BIDI, ANSI, "\ud83e", "a\u2028b"])
def test_hidden_characters_are_spelled(text: str, tmp_path: Path, visit: Open) -> None:
    page = visit(recorded(tmp_path)).page
    units = list(text.encode("utf-16-le", "surrogatepass"))
    shown = page.evaluate(
        """async (bytes) => (await import("/static/dom.js")).visible(
            String.fromCharCode(...new Uint16Array(new Uint8Array(bytes).buffer)))""",
        units,
    )
    assert all(letter.isprintable() for letter in shown) and "\\" in shown
