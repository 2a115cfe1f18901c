"""A label that is typed on the page is kept in the run folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from autotrace.ship.shipper import ship
from autotrace.tables import labels
from tests.browser.conftest import Visit
from tests.browser.figures import measured
from tests.run_folder import recorded
from tests.ship.spools import Process, new_run, trajectory
from tests.waiting import until


def test_key_l_labels_the_trajectory(visit: Callable[..., Visit], tmp_path: Path) -> None:
    run = recorded(tmp_path)
    assert ship(run, once=True).state == "done"
    tab: Any = visit(run)
    page = tab.page
    page.wait_for_selector(".brand")
    page.locator("tbody tr, .row").first.wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".trace-page")

    first = page.url.rsplit("/", 1)[1]
    page.keyboard.press("l")
    page.keyboard.type("good: two calls: enough")
    page.keyboard.press("Enter")
    page.keyboard.type("xx")  # while the next page loads: no label of this one

    (kept,) = until(lambda: list(labels.read(run).values()))
    assert (kept.label, kept.why) == ("good", "two calls: enough")
    expect(page.locator(".heading code")).not_to_have_text(first[:12])  # it goes on
    expect(page.get_by_label("label of this trajectory")).to_be_focused()
    expect(page.locator(".recent")).to_contain_text("1 of 8 labelled")
    page.goto(page.url.rsplit("/", 1)[0] + f"/{first}")
    page.get_by_text("label_why").wait_for()
    assert page.get_by_label("label of this trajectory").input_value() == "good: two calls: enough"


def test_a_key_a_label(visit: Callable[..., Visit], tmp_path: Path) -> None:
    """Keys that are pressed while a page loads are for that page."""
    run = recorded(tmp_path)
    assert ship(run, once=True).state == "done"
    page: Any = visit(run).page
    page.locator(".row[href]").first.wait_for()
    page.locator(".row[href]").first.click()
    page.wait_for_selector(".trace-page")
    first = page.url.rsplit("/", 1)[1]
    page.keyboard.press("l")
    page.keyboard.type("good")
    page.keyboard.press("Enter")
    expect(page.locator(".heading code")).not_to_have_text(first[:12])
    expect(page.get_by_label("label of this trajectory")).to_be_focused()
    expect(page.locator(".recent")).to_contain_text("1 of 8 labelled")
    page.keyboard.type("oops")
    page.keyboard.press("Escape")
    expect(page.get_by_label("label of this trajectory")).to_have_value("")
    for _ in range(7):
        page.keyboard.press("4")
    until(lambda: len(labels.read(run)) == 8)
    assert {kept.label for kept in labels.read(run).values()} == {"good"}
    expect(page.locator(".recent")).to_contain_text("8 of 8 labelled")


def test_enter_after_a_heading_opens_the_row(visit: Callable[..., Visit], tmp_path: Path) -> None:
    page: Any = visit(recorded(tmp_path)).page
    page.locator(".row[href]").first.wait_for()
    page.click('[data-column="reward"]')
    page.keyboard.press("Enter")
    page.wait_for_selector(".trace-page")


def test_twenty_labels_by_keyboard_in_under_a_minute(visit: Callable[..., Visit], tmp_path: Path) -> None:
    """One label is typed, another too; then a key a rollout, as a person would who has read them."""
    folder = new_run(tmp_path)
    process = Process(folder)
    for number in range(24):
        trajectory(process, reward=float(number % 2), step=1 + number // 8, rollout=number % 4, uid=f"u{number // 4}")
    process.exit()
    assert ship(folder, once=True).state == "done"
    page: Any = visit(folder).page
    page.locator(".row[href]").first.wait_for()
    begun = time.monotonic()
    page.keyboard.press("Enter")
    page.wait_for_selector(".trace-page")
    page.keyboard.press("l")
    keys = 2
    for count, word in enumerate(("good", "bad"), 1):
        before = page.locator(".heading code").inner_text()
        expect(page.get_by_label("label of this trajectory")).to_be_focused()
        page.keyboard.type(word)
        page.keyboard.press("Enter")
        expect(page.locator(".heading code")).not_to_have_text(before)
        expect(page.locator(".recent")).to_contain_text(f"{count} of 24 labelled")
        keys += len(word) + 1
    for number in range(18):  # in the empty field, too, a key is a label, and stays that label's
        before = page.locator(".heading code").inner_text()
        page.keyboard.press("45"[number % 2])
        expect(page.locator(".heading code")).not_to_have_text(before)
        keys += 1
    expect(page.locator(".recent")).to_contain_text("20 of 24 labelled")
    seconds = time.monotonic() - begun
    given = [kept.label for kept in labels.read(folder).values()]
    assert given.count("good") == 10 and given.count("bad") == 10
    measured("twenty labels by keyboard", f"{keys + 1} keys, {seconds:.1f} s", "60 s")
    assert seconds < 60
