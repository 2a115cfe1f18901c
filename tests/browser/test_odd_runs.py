"""Runs that are not what they should be, and people who may not look: each is said in a sentence."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from autotrace.run import layout
from autotrace.ship.shipper import ship
from tests.browser.conftest import Server, Visit
from tests.run_folder import recorded
from tests.ship.spools import Process, attributes, new_run, trajectory

Open = Callable[..., Visit]
ROWS = ".scroller .row:not([hidden])"


def test_a_run_that_is_deleted_while_it_is_looked_at(tmp_path: Path, visit: Open) -> None:
    folder = recorded(tmp_path)
    tab = visit(folder)
    tab.page.wait_for_selector(ROWS)
    shutil.rmtree(folder)
    tab.page.locator(ROWS).first.click()
    expect(tab.page.locator("#page .problem")).to_contain_text(f"the run is gone: {folder} was moved or deleted")
    tab.go(f"#/run/{folder.name}/steps", "#page .problem")
    assert tab.wrong and all("410" in line or "503" in line for line in tab.wrong)  # 503: while it was being deleted
    tab.page.goto("about:blank")  # what was still asked is answered, or given up
    tab.wrong.clear()


def test_segments_that_were_removed(tmp_path: Path, visit: Open) -> None:
    folder = recorded(tmp_path)
    assert ship(folder, once=True).state == "done"
    tab = visit(folder)
    tab.page.wait_for_selector(ROWS)
    tab.page.locator(ROWS).first.click()
    tab.page.wait_for_selector(".item")
    shutil.rmtree(folder / layout.SPOOL)
    tab.page.keyboard.press("2")
    tab.page.wait_for_selector(".block span")  # the tables have all of it
    tab.page.keyboard.press("t")
    tab.page.wait_for_selector(ROWS)


def test_a_torn_run_says_so_and_shows_the_rest(tmp_path: Path, visit: Open) -> None:
    folder = new_run(tmp_path, "torn")
    process = Process(folder)
    trajectory(process)
    process.open(b"\x7f" * 16, "trajectory", attributes=attributes(step=2))
    process.raw(b"\x40\0\0\0 torn")
    process.die()
    page = visit(folder).page
    expect(page.locator(".count")).to_have_text("2 trajectories")
    expect(page.locator("#said")).to_contain_text("torn: 9 bytes at the ends of segments are not whole records")
    expect(page.locator("#said")).to_contain_text("ended without a last record (killed, or crashed)")


def test_a_run_whose_state_a_later_release_wrote(tmp_path: Path, visit: Open) -> None:
    folder = recorded(tmp_path)
    assert ship(folder, once=True).state == "done"
    state = sqlite3.connect(folder / layout.STATE_DB)
    state.execute("PRAGMA user_version = 9999")
    state.close()
    page = visit(folder).page
    expect(page.locator(".count")).to_have_text("8 trajectories")
    expect(page.locator("#said .note").first).to_contain_text("state.db cannot be used")
    page.locator(ROWS).first.click()
    page.wait_for_selector(".item")


def test_ids_that_there_are_not(tmp_path: Path, visit: Open) -> None:
    folder = recorded(tmp_path)
    tab = visit(folder)
    tab.page.wait_for_selector(ROWS)
    for address in ("trace/ffff", "trace/%ff", "group/ffff", "trace/constructor"):
        tab.go(f"#/run/{folder.name}/{address}", "#page .problem")
        expect(tab.page.locator("#page .problem")).to_contain_text("no trace of this run begins with")
        tab.go(f"#/run/{folder.name}/table?sort=constructor&x=constructor&brush=1,2&where=", ROWS)
    tab.page.fill(".where", "constructor = 1")
    expect(tab.page.locator(".bar .problem")).to_contain_text('there is no column "constructor"')
    tab.go(f"#/run/{folder.name}/steps?step=99", ".curve canvas")
    assert tab.wrong and all("404" in line or "400" in line for line in tab.wrong)
    tab.wrong.clear()


@pytest.mark.parametrize("name", [b"caf\xe9 \xff", "naïve ☃ %41".encode(), b"..."])
def test_a_folder_may_be_called_anything(name: bytes, tmp_path: Path, visit: Open) -> None:
    recorded(tmp_path, "run")
    recorded(tmp_path, "another")
    os.rename(tmp_path / "run", os.path.join(os.fsencode(tmp_path), name))
    tab = visit(tmp_path)
    tab.go("#/runs", ".runs tbody tr")
    assert tab.page.locator(".runs tbody tr").count() == 2
    tab.page.locator(".runs tbody a").first.click()
    expect(tab.page.locator("#page .big")).to_contain_text("findings in 8 trajectories")
    tab.page.keyboard.press("t")
    tab.page.wait_for_selector(ROWS)
    tab.page.locator(ROWS).first.click()
    tab.page.wait_for_selector(".item")


def test_two_people_look_at_once_and_a_third_has_no_token(
    tmp_path: Path, serve: Callable[[Path], Server], visit: Open, browser: Browser
) -> None:
    folder = recorded(tmp_path)
    tabs = [visit(folder), visit(folder, color_scheme="dark")]
    for tab in tabs:
        tab.page.wait_for_selector(ROWS)
    for tab, row in zip(tabs, (0, 1), strict=True):
        tab.page.locator(ROWS).nth(row).click()
    for tab in tabs:
        tab.page.wait_for_selector(".item")
    one, other = (tab.page.url.partition("/trace/")[2] for tab in tabs)
    assert one != other
    third = browser.new_page()
    third.goto(serve(folder).base)
    expect(third.locator("body")).to_contain_text("this page was not let in: open the link that autotrace view printed")
    third.context.close()


READ = """async (address) => {
    try { return (await fetch(address, { credentials: "include" })).status; } catch { return "refused"; }
}"""


def test_another_page_cannot_read_it(tmp_path: Path, serve: Callable[[Path], Server], visit: Open) -> None:
    """One that knows the address, in a browser that is let in."""
    folder = recorded(tmp_path)
    server, tab = serve(folder), visit(folder)
    tab.page.wait_for_selector(ROWS)
    elsewhere = server.base.replace("127.0.0.1", "localhost")
    tab.page.route(f"{elsewhere}**", lambda route: route.fulfill(body="another page", content_type="text/html"))
    tab.base = server.base[: server.base.index("//") + 2]
    tab.page.goto(elsewhere)
    assert tab.page.evaluate(READ, f"{server.base}api/runs") == "refused"
    tab.wrong.clear()
    for headers, status in (
        ({"host": "evil.example"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"cookie": "autotrace-1=x"}, 401),
    ):
        assert httpx.get(f"{server.base}api/runs", headers=headers, trust_env=False).status_code == status
