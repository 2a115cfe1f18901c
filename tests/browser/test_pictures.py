"""The page of tools, how often prompts were solved, and how long outputs are."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from autotrace.ship.readers import of_run
from autotrace.trajectory.tool_calls import tool_calls
from tests.browser.conftest import Visit
from tests.ship.spools import Process, new_run, trajectory

Open = Callable[..., Visit]
ROWS = ".scroller .row:not([hidden])"


def test_the_tools_page_leads_to_the_calls_that_failed_and_took_longest(demo: Path, visit: Open) -> None:
    page = visit(demo, at="overview").page
    page.wait_for_selector(".found-list li")
    page.keyboard.press("x")
    row = page.locator('tr[data-tool="stock"]')
    reader = of_run(demo)
    calls = [
        call
        for one in reader.select()
        if not one.validate
        for call in tool_calls(reader.load(one.trace_id))
        if call.name == "stock"
    ]
    failed = [call for call in calls if call.failed is not None]
    expect(row.locator("td").nth(0)).to_have_text(str(len(calls)))
    expect(row.locator("td").nth(1)).to_have_text(str(len(failed)))
    expect(row.locator("td").nth(2)).to_have_text(f"{100 * len(failed) / len(calls):.3g} %")
    assert page.locator('.curves[data-tool="stock"] figcaption').all_inner_texts() == [
        "calls", "share failed", "duration, p50 / p99",
    ]  # fmt: skip
    page.locator('.curves[data-tool="stock"] .u-over').last.hover(position={"x": 3, "y": 40})
    expect(page.locator('.curves[data-tool="stock"] figcaption').last).to_have_text(re.compile(r"step 1: .+ / .+"))
    slowest = max(calls, key=lambda call: call.span.duration_ns or 0)
    row.locator("td").nth(5).locator("a").click()
    expect(page).to_have_url(re.compile(f"call={slowest.span.span_id}"))
    expect(page.locator(".call-box h2")).to_have_text("stock")
    page.go_back()
    row.locator("td a").first.click()
    page.wait_for_selector(".timeline-canvas")
    span = page.url.rpartition("call=")[2]
    assert span in [call.span.span_id for call in failed]


def test_an_exported_file_has_the_tools(tmp_path: Path, demo: Path, browser: Browser) -> None:
    file = tmp_path / "demo.html"
    command = [sys.executable, "-m", "autotrace", "view", str(demo), "--export", str(file)]
    subprocess.run(command, check=True, timeout=300)
    page = browser.new_page()
    page.goto(file.as_uri())
    page.locator("nav a", has_text="Tools").click()
    expect(page.locator('tr[data-tool="add"] td').first).to_have_text("4")
    page.close()


@pytest.fixture
def lengths(tmp_path: Path) -> Path:
    """Four steps of two prompts; the first prompt is learned, and the outputs become longer."""
    folder = new_run(tmp_path, "lengths")
    process = Process(folder)
    process.bind("config", response_length=10)
    for step in (1, 2, 3, 4):
        for prompt in (1, 2):
            for rollout in range(4):
                solved = prompt == 2 and rollout < step
                trajectory(
                    process, reward=float(solved), step=step, rollout=rollout, uid=f"u{step}-{prompt}",
                    sample_index=prompt, data_source=("easy", "hard")[prompt % 2],
                )  # fmt: skip
    process.exit()
    return folder


def cell(page: Page, which: int, step: int, row: int) -> None:
    """Point at a cell of a picture of four steps."""
    canvas = page.locator("canvas.heat").nth(which)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box
    x, y = box["x"] + 170 + (box["width"] - 170) * (step - 0.5) / 4, box["y"] + 18 + 16 * row + 8
    page.mouse.move(x - 2, y)
    page.mouse.move(x, y)


def test_a_cell_is_a_prompt_in_a_step(lengths: Path, visit: Open) -> None:
    page = visit(lengths, at="steps").page
    heat = page.locator("canvas.heat").first
    expect(heat).to_have_attribute("aria-label", "share solved of 2 prompts in 4 steps")
    said = page.locator(".heat-box p[role=status]").first
    expect(said).to_contain_text("Solved: reward above 0.5. The hardest prompts first")
    cell(page, 0, 3, 0)
    expect(said).to_contain_text("step 3 · prompt 1 · 0 of 4 solved")
    cell(page, 0, 3, 1)
    expect(said).to_contain_text("step 3 · prompt 2 · 3 of 4 solved")
    page.mouse.down()
    page.mouse.up()
    expect(page.locator(".count")).to_contain_text("4 of 32")
    assert page.locator(".where").input_value() == "step = 3 and sample_index = '2'"


def test_the_limit_of_outputs_and_rewards_by_value_and_by_source(lengths: Path, visit: Open) -> None:
    page = visit(lengths, at="steps").page
    expect(page.locator("canvas.heat").nth(1)).to_have_attribute(
        "aria-label", "output tokens of the rollouts of 4 steps, limit 10"
    )
    said = page.locator(".heat-box p[role=status]").nth(1)
    expect(said).to_contain_text("The line is the limit of a response, 10 tokens")
    cell(page, 1, 2, 3)  # every output has 7 tokens
    expect(said).to_contain_text("step 2 · 7 to 7 tokens · 8 of 8 rollouts")
    tables = page.locator(".heat-box table")
    assert sorted(row.split("\t") for row in tables.nth(0).locator("tr").all_inner_texts()) == [
        ["data source", "1", "2", "3", "4"], ["easy", "0.25", "0.5", "0.75", "1"], ["hard", "0", "0", "0", "0"],
    ]  # fmt: skip
    assert [row.split("\t") for row in tables.nth(1).locator("tr").all_inner_texts()] == [
        ["reward", "1", "2", "3", "4"], ["1", "1", "2", "3", "4"], ["0", "7", "6", "5", "4"],
    ]  # fmt: skip
    cell(page, 1, 2, 3)
    page.mouse.down()
    page.mouse.up()
    expect(page.locator(".count")).to_contain_text("8 of 32")
