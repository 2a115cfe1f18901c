"""Ten questions that people bring to the page, each from the page on which a run opens, with clicks and seconds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from autotrace.ship.readers import of_run
from autotrace.tables import labels
from tests.browser.conftest import Visit
from tests.browser.drop import dropped
from tests.browser.figures import measured
from tests.browser.test_hung import HANGING
from tests.browser.test_hung import hung as hung  # a run with eight rollouts that hang
from tests.waiting import until

Open = Callable[..., Visit]
ROWS = ".scroller .row:not([hidden])"
MOST = 4
"""Clicks, keys and fields until an answer is seen."""


class Reader:
    """Counts what a reader does until the answer to a question is seen."""

    def __init__(self, page: Page, question: str) -> None:
        self.page, self.question, self.actions = page, question, 0
        page.wait_for_selector(".run-facts dt")
        expect(page.locator("#page .big")).not_to_contain_text("Looking")
        self.begun = time.monotonic()

    def click(self, where: str, text: str | None = None) -> None:
        self.page.locator(where, has_text=text).first.click()
        self.actions += 1

    def write(self, where: str, text: str) -> None:
        self.page.locator(where).first.fill(text)
        self.page.locator(where).first.press("Enter")
        self.actions += 2

    def answered(self, where: str, answer: str | re.Pattern[str]) -> None:
        expect(self.page.locator(where).first).to_contain_text(answer)
        expect(self.page.locator(where).first).to_be_visible()
        seconds = time.monotonic() - self.begun
        measured(self.question, f"{self.actions} actions, {seconds:.1f} s", f"{MOST} actions")
        assert self.actions <= MOST


def test_why_the_reward_dropped(tmp_path: Path, visit: Open) -> None:
    reader = Reader(visit(dropped(tmp_path), at="overview").page, "why did the reward drop?")
    reader.answered(".carried li", 'search answers "quota used up')


def test_which_rollout_is_the_worst(demo: Path, visit: Open) -> None:
    reader = Reader(visit(demo, at="overview").page, "which rollout is the worst?")
    reader.click("#page nav a", "Lowest rewards first")
    reader.page.wait_for_selector(ROWS)
    reader.click(ROWS)
    lowest = min(row.reward for row in of_run(demo).select() if row.reward is not None)
    reader.answered(".heading .big", f"reward {lowest:g}")


def test_which_tool_fails(demo: Path, visit: Open) -> None:
    reader = Reader(visit(demo, at="overview").page, "which tool fails, and how?")
    reader.click("nav a", "Tools")
    expect(reader.page.locator("tr[data-tool] .loss")).to_have_count(1)
    reader.click("tr[data-tool]:has(.loss) td a")
    reader.answered(".call-box", "no item called 'cherries'")


def test_where_two_rollouts_diverge(demo: Path, visit: Open) -> None:
    reader = Reader(visit(demo, at="overview").page, "where do two rollouts diverge?")
    reader.click(".found-list .place a")
    reader.click(".heading a.button", "group")
    reader.answered(".card .fork", re.compile(r"diverges at turn \d+, token \d+"))


def test_what_the_model_saw_at_a_turn(demo: Path, visit: Open) -> None:
    reader = Reader(visit(demo, at="overview").page, "what did the model see at its last turn?")
    reader.click("nav a", "Trajectories")
    reader.page.wait_for_selector(ROWS)
    reader.click(ROWS)
    last = reader.page.locator(".item.assistant").last
    last.get_by_role("button", name="tokens").click()
    reader.actions += 1
    turn = of_run(demo).load(reader.page.url.partition("/trace/")[2].partition("?")[0]).turns
    reader.answered(f".part-head[id='part-{turn}-1']", f"turn {turn} · model")
    expect(reader.page.locator(".block span.now")).to_be_in_viewport()


def test_what_hangs(hung: Path, visit: Open) -> None:
    reader = Reader(visit(hung, at="overview").page, "what hangs, and where?")
    reader.click(".open a")
    expect(reader.page.locator(".count")).to_contain_text(f"{HANGING} of 20")
    reader.answered(f"{ROWS} .c-open_in", "Tools.search")


def test_where_the_time_went(demo: Path, visit: Open) -> None:
    reader = Reader(visit(demo, at="overview").page, "where did the time of the slowest rollout go?")
    reader.click("#page nav a", "Longest first")
    reader.page.wait_for_selector(ROWS)
    reader.click(ROWS)
    reader.answered(".spent", re.compile(r"own work and waiting .+, "))


def test_who_wrote_a_phrase(demo: Path, visit: Open) -> None:
    reader = Reader(visit(demo, at="overview").page, "which rollouts have a phrase?")
    reader.click("nav a", "Trajectories")
    reader.write("input.words", "Plums are enough")
    reader.answered(f"{ROWS} .hit-line", "Plums are enough")


def test_how_to_share_a_rollout(demo: Path, visit: Open) -> None:
    page = visit(demo, at="overview").page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    reader = Reader(page, "how is a rollout shared?")
    reader.click(".found-list .place a")
    reader.click(".heading button", "copy link")
    reader.answered(".heading .copy", "copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_how_to_label_a_rollout(tmp_path: Path, visit: Open) -> None:
    folder = dropped(tmp_path, "labelled")
    reader = Reader(visit(folder, at="overview").page, "how is a rollout labelled?")
    reader.click(".found-list .place a")
    reader.write("[aria-label='label of this trajectory']", "bad: quota")
    reader.answered(".recent", "1 of 256 labelled")
    (kept,) = until(lambda: list(labels.read(folder).values()))
    assert (kept.label, kept.why) == ("bad", "quota")
