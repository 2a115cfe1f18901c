"""Giving a rollout to somebody else: its link, and a file of it alone, from the page and from the shell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, expect

from autotrace.ship.readers import of_run
from tests.browser.conftest import Visit
from tests.run_folder import recorded

Open = Callable[..., Visit]


def failed_tool(folder: Path) -> str:
    """The rollout of step 1 whose tool failed, and whose answer was cut."""
    reader = of_run(folder)
    (row,) = [row for row in reader.select() if row.step == 1 and "AT-TRUNCATED" in (row.findings or ())]
    reader.close()
    return str(row.trace_id)


def says_nothing(browser: Browser, folder: Path, file: Path) -> None:
    """A file of a rollout without findings, whose step has findings."""
    reader = of_run(folder)
    trace = next(row.trace_id for row in reader.select() if row.step == 1 and row.reward == 0.25)
    reader.close()
    command = [sys.executable, "-m", "autotrace", "view", str(folder), "--trace", trace, "--export", str(file)]
    subprocess.run(command, check=True, timeout=300)
    page = browser.new_page()
    page.goto(file.as_uri())
    expect(page.locator("h1")).to_have_text(trace[:12])
    page.keyboard.press("o")
    expect(page.locator("#page .big")).to_have_text("1 trajectory: no problems found")
    page.close()


def opens(browser: Browser, file: Path, trace: str) -> None:
    page = browser.new_page()
    visit = Visit(page, file.as_uri())
    page.goto(file.as_uri())
    expect(page.locator("h1")).to_have_text(trace[:12])
    page.wait_for_selector(".item")
    page.keyboard.press("o")
    expect(page.locator("#page .big")).to_contain_text("findings in 1 trajectory")
    expect(page.locator('[data-code="AT-TRUNCATED"] .amount')).to_contain_text("(1 of 1)")
    assert visit.wrong == []
    page.close()


def test_a_file_of_one_rollout_opens_it_and_has_its_findings_alone(tmp_path: Path, browser: Browser) -> None:
    folder, file = recorded(tmp_path), tmp_path / "page.html"
    trace = failed_tool(folder)
    command = [sys.executable, "-m", "autotrace", "view", str(folder), "--trace", trace[:12], "--export", str(file)]
    subprocess.run(command, check=True, timeout=300)
    opens(browser, file, trace)
    says_nothing(browser, folder, tmp_path / "another.html")


def test_the_header_copies_the_link_and_saves_the_rollout(tmp_path: Path, browser: Browser, visit: Open) -> None:
    folder = recorded(tmp_path)
    trace = failed_tool(folder)
    tab = visit(folder, permissions=["clipboard-read", "clipboard-write"])
    page = tab.go(f"#/run/{folder.name}/trace/{trace}?turn=2", ".item")
    page.click(".copy")
    expect(page.locator(".copy")).to_have_text("copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url and link.endswith(f"/trace/{trace}?turn=2")
    with page.expect_download() as saving:
        page.get_by_text("export this").click()
    assert saving.value.suggested_filename == f"{trace[:12]}.html"
    saving.value.save_as(tmp_path / "saved.html")
    opens(browser, tmp_path / "saved.html", trace)
