"""A label that is typed on the page is kept in the run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from autotrace.ship.shipper import ship
from autotrace.tables import labels
from tests.browser.conftest import Visit
from tests.run_folder import recorded
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

    page.keyboard.press("l")
    page.keyboard.type("good: two calls: enough")
    page.keyboard.press("Enter")

    (kept,) = until(lambda: list(labels.read(run).values()))
    assert (kept.label, kept.why) == ("good", "two calls: enough")
    page.get_by_text("label_why").wait_for()
    page.reload()
    assert page.get_by_label("label of this trajectory").input_value() == "good: two calls: enough"
