"""A trajectory of 30,000 calls, delivered by autotrace to a real MLflow server on SQLite: its page there and ours, in
the same browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page, Route

from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from tests.browser.conftest import Visit
from tests.browser.figures import measured
from tests.mlflow_server import MlflowServer
from tests.ship.spools import Process, attributes, new_run

CALLS = 30_000
PATIENCE = 60
"""Seconds that a person is given to wait for MLflow's page."""


@pytest.fixture
def mlflow(tmp_path: Path) -> Iterator[MlflowServer]:
    server = MlflowServer(tmp_path)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def test_30_000_calls_beside_mlflows_page(
    tmp_path: Path, mlflow: MlflowServer, browser: Browser, visit: Callable[..., Visit]
) -> None:
    folder = new_run(tmp_path, "spans", backends=["mlflow"], tracking_uri=mlflow.url)
    process = Process(folder)
    long, short = b"\1" * 16, b"\2" * 16
    for trace, calls in ((long, CALLS), (short, 30)):
        root = process.open(trace, "trajectory", attributes=attributes())
        for _ in range(calls):
            process.close(trace, process.open(trace, "span", root))
        process.close(trace, root)
    process.exit()
    assert ship(folder, once=True).state == "done"
    ours = opened_here(visit(folder), long.hex())
    pages = of_run(folder).run.pages()
    (few_seconds, few), (_, many) = (
        opened_there(browser, mlflow, pages.get(trace.hex(), "")) for trace in (short, long)
    )
    measured(f"a trajectory of {CALLS:,} calls: opened", f"{ours:.0f} ms", "2,000 ms")
    measured("the same in MLflow's page", many, "")
    measured("one of 30 calls in MLflow's page", few, "")
    assert few_seconds is not None, "what is looked for is what that page shows"
    assert ours < 1000 * few_seconds, "a thousand times as many calls, before that page shows the few"


def opened_here(tab: Visit, trace: str) -> float:
    """Milliseconds until its timeline is drawn."""
    tab.page.wait_for_selector(".scroller .row:not([hidden])")
    took = tab.page.evaluate(
        """async (address) => {
            const begin = performance.now();
            location.hash = address;
            while (!document.querySelector(".timeline-canvas")) await new Promise(requestAnimationFrame);
            await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
            return performance.now() - begin;
        }""",
        f"#/run/spans/trace/{trace}?view=timeline",
    )
    assert tab.page.evaluate("document.querySelectorAll('*').length") < 2000
    assert tab.page.evaluate("document.querySelector('.timeline-canvas').clientHeight") < 860
    return float(took)


def opened_there(browser: Browser, server: MlflowServer, address: str) -> tuple[float | None, str]:
    """After how many seconds a person sees its calls, and all of that in words. Nothing of that page is at work
    afterwards."""
    page = browser.new_page(viewport={"width": 1440, "height": 860})
    try:
        return looked_at(page, server, address)
    finally:
        page.context.close()


def looked_at(page: Page, server: MlflowServer, address: str) -> tuple[float | None, str]:

    def only_here(route: Route) -> None:
        route.continue_() if route.request.url.startswith(server.url) else route.abort()

    page.route("**/*", only_here)
    page.set_default_timeout(180_000)
    page.goto(f"{server.url}/#/experiments")
    page.get_by_text("Experiments").first.wait_for()  # its scripts are in the browser's cache now
    begin = time.monotonic()
    page.goto(address)
    try:
        page.get_by_text("my.function").first.wait_for(timeout=1000 * PATIENCE)
    except Error:
        return None, f"no call to be seen within {PATIENCE} s"
    shown = time.monotonic() - begin
    try:
        page.wait_for_function("new Promise((done) => requestAnimationFrame(done))", timeout=1000 * PATIENCE)
    except Error:
        return shown, f"calls after {shown:.1f} s, and does not answer for {PATIENCE} s"
    answers = time.monotonic() - begin
    elements = page.evaluate("document.querySelectorAll('*').length")
    return shown, f"calls after {shown:.1f} s, answers after {answers:.1f} s, {elements:,} elements"
