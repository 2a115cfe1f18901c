"""What a person who sees the page for the first time wants to know, each in at most five actions; and whether the page
can be used without seeing it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from autotrace.ship.readers import of_run
from autotrace.tables.conditions import equals
from autotrace.trajectory.durations import longest_gap
from tests.browser.conftest import Visit

Open = Callable[..., Visit]
ROWS = ".scroller .row:not([hidden])"
MOST = 5


class Reader:
    """Counts what it does."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.actions = 0
        page.wait_for_selector(ROWS)
        page.wait_for_selector("option[value=tool_s]", state="attached")  # all columns are there

    def click(self, where: str) -> None:
        self.page.locator(where).first.click()
        self._did()

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self._did()

    def write(self, where: str, text: str) -> None:
        self.page.fill(where, text)
        self._did()

    def _did(self) -> None:
        self.actions += 1
        assert self.actions <= MOST


def test_the_worst_group_and_the_fork_between_its_best_and_its_worst(demo: Path, visit: Open) -> None:
    reader = Reader(visit(demo).page)
    reader.click('[data-column="group_reward"]')
    reader.click('[data-column="group_reward"]')  # the smallest first
    reader.click(ROWS)
    reader.page.wait_for_selector(".item")
    reader.press("g")
    reader.page.wait_for_selector(".card")
    rewards: dict[str, list[float]] = {}
    for row in of_run(demo).select():
        rewards.setdefault(row.group_id, []).append(row.reward or 0.0)
    worst = min(rewards.values(), key=lambda values: sum(values) / len(values))
    expect(reader.page.locator(".bar").first).to_contain_text(f"mean {sum(worst) / len(worst):.3g}")
    cards = reader.page.locator(".card")
    expect(cards.first).to_contain_text("the others are compared with this one")
    expect(cards.last.locator(".fork").first).to_contain_text("diverges at turn 1, token")
    assert cards.last.locator(".sides").inner_text()


def test_the_least_likely_token_of_the_worst_rollout(demo: Path, visit: Open) -> None:
    reader = Reader(visit(demo).page)
    reader.click('[data-column="reward"]')
    reader.click('[data-column="reward"]')
    reader.click(ROWS)
    reader.page.wait_for_selector(".item")
    reader.press("2")
    reader.page.wait_for_selector(".block span")
    trace = reader.page.url.split("/trace/")[1].split("?")[0]
    one = of_run(demo).load(trace)
    lowest = min(value for span in one.llm_spans for value in span.logprobs or ())
    chip = reader.page.locator(".chip").first
    expect(chip).to_be_visible()
    assert float(chip.inner_text().rsplit(" ", 1)[1].replace("\u2212", "-")) == pytest.approx(lowest, rel=1e-2)


def test_the_tool_that_failed_and_its_message(demo: Path, visit: Open) -> None:
    reader = Reader(visit(demo).page)
    reader.write(".where", "tool_error")
    expect(reader.page.locator(".count")).to_contain_text(" of ")
    expect(reader.page.locator(f"{ROWS} .c-error").first).to_contain_text("cherries")
    reader.click(ROWS)
    failed = reader.page.locator(".item.tool:has(.badge)").first
    expect(failed.locator(".item-head b")).to_have_text("stock")
    expect(failed.locator("pre.error")).to_contain_text("no item called 'cherries'")
    expect(failed.locator("pre.error")).to_be_in_viewport()


def test_what_the_slowest_rollout_waited_for(demo: Path, visit: Open) -> None:
    reader = Reader(visit(demo).page)
    reader.click('[data-column="duration"]')
    reader.click(ROWS)
    rows = of_run(demo).select()
    slowest = max(rows, key=lambda row: row.duration_s or 0)
    expect(reader.page.locator(".heading code")).to_have_text(slowest.trace_id[:12])
    gap = longest_gap(of_run(demo).load(slowest.trace_id))
    assert gap is not None
    expect(reader.page.locator(".spent")).to_contain_text(f"of it {gap.where})")


PAGES = {
    "overview": ("overview", ".found-list li"),
    "trajectories": ("table", ROWS),
    "no trajectory": ("table?where=reward+%3E+99", ".empty:not([hidden])"),
    "steps": ("steps?step=1", ".lanes .last"),
    "tools": ("tools", "tr[data-tool]"),
    "differences": ("diff", ".overview-page h2"),
    "group": ("group/TRACE", ".card"),
    "conversation": ("trace/TRACE", ".item"),
    "tokens": ("trace/TRACE?view=tokens", ".block span"),
    "timeline": ("trace/TRACE?view=timeline", ".timeline-canvas"),
}


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 1440), ("light", 390)])
def test_axe_finds_nothing_on_any_page(theme: str, width: int, demo: Path, visit: Open) -> None:
    tab = visit(demo, color_scheme=theme)
    tab.page.set_viewport_size({"width": width, "height": 844})
    (row, *_) = of_run(demo).select(equals(role="trajectory", status="OK"), roots=True)
    found = {}
    for name, (where, wait) in {"runs": ("", ".runs"), **PAGES}.items():
        address = f"#/run/{demo.name}/{where.replace('TRACE', row.trace_id)}" if where else "#/runs"
        page = tab.go(address, wait)
        expect(page.locator("h1")).to_have_count(1)
        for violation in Axe().run(page).response["violations"]:
            nodes = [f"{node['html'][:160]} {node['any'][:1]}" for node in violation["nodes"]][:3]
            found[f"{name}: {violation['id']}"] = nodes
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    assert found == {}
