"""What ``CONTRIBUTING.md`` says of a column of the page: a field, and one entry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import started
from tests.package_copy import Copy
from tests.run_folder import recorded

ROWS = ".scroller .row:not([hidden])"
FIELDS = """\
    Column("longest_call", "int64", "ns of its longest call", lambda one: max(
        call.span.duration_ns or 0 for call in one.spans)),
    Column("phase", "string", "what it is for", lambda one: f"training {one.step}"),
"""
ENTRIES = '["longest_call", "longest", "7em", number], ["phase", "phase", "6em", asText], '


@contextmanager
def table(copy: Copy, folder: Path, browser: Browser) -> Iterator[Page]:
    """The table of the run ``folder``, from a server of the copy. Nothing may go wrong in it."""
    server = started(folder, copy.environ)
    page = browser.new_page()
    page.set_default_timeout(180_000)
    wrong: list[object] = []
    page.on("pageerror", lambda error: wrong.append(error))
    page.goto(f"{server.link}#/run/{folder.name}/table")
    page.wait_for_selector(ROWS)
    yield page
    page.context.close()
    server.stop()
    assert not wrong


def test_a_column_of_the_page_is_a_field_and_one_entry(tmp_path: Path, browser: Browser) -> None:
    """Also of a run that is in no table yet. Without the entry the field can still be chosen."""
    copy, folder = Copy(tmp_path / "copy").make(), recorded(tmp_path)
    copy.insert("autotrace/tables/trajectories.py", '    _fact("num_turns"', FIELDS)
    copy.insert("autotrace/view/static/page_table.js", '["advantage", "advantage",', ENTRIES)
    with table(copy, folder, browser) as page:
        cells = page.locator(f"{ROWS} .c-longest_call")
        expect(cells.first).to_have_text("16,000,000")
        expect(cells.first).to_have_css("text-align", "right")
        expect(page.locator(f"{ROWS} .c-phase").first).to_have_attribute("title", "training 1")
        page.click('[data-column="longest_call"]')
        expect(page.locator('[data-column="longest_call"]')).to_have_attribute("aria-sort", "descending")
        page.click('[data-column="phase"]')
        expect(page.locator('[data-column="phase"]')).to_have_attribute("aria-sort", "ascending")
        expect(page.locator(f"{ROWS} .c-phase").first).to_have_text("training 1")
    copy.write(
        "autotrace/view/static/page_table.js", copy.read("autotrace/view/static/page_table.js").replace(ENTRIES, "")
    )
    with table(copy, folder, browser) as page:
        assert not page.locator('[data-column="longest_call"]').count()
        page.locator("select[aria-label='x of the scatter']").select_option("longest_call")
        page.fill(".where", "phase = 'training 1'")
        expect(page.locator(".count")).to_contain_text("4 of 8 trajectories")
