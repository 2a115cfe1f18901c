"""Rollouts that hang while the run goes on: every page says where they are, and for how long."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from autotrace.run import layout
from autotrace.ship.readers import of_run
from tests.browser.conftest import Visit
from tests.waiting import until

Open = Callable[..., Visit]
ROWS = ".scroller .row:not([hidden])"
ENDED, HANGING = 12, 8
PROGRAM = f"""
import threading, time

class Tools:
    def search(self, query):
        if query >= {ENDED}:
            threading.Event().wait()
        return "found"

def solve(step, sample, rollout):
    return Tools().search(sample * 4 + rollout)

threads = [threading.Thread(target=solve, args=(1, number // 4, number % 4)) for number in range({ENDED + HANGING})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
SPEC = """
- target: agent.solve
  role: trajectory
  attributes: {step: step, sample_index: sample, rollout_n: rollout}
- target: agent.Tools.search
  role: tool
"""


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that goes on: 12 rollouts ended, 8 wait in a tool for ever."""
    folder = tmp_path_factory.mktemp("hung")
    (folder / "agent.py").write_text(PROGRAM)
    (folder / "spec.yaml").write_text(SPEC)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    options = ["--backend", "jsonl", "--run-dir", "runs", "--spec", "spec.yaml", "--quiet", "--drain-timeout", "1"]
    command = [sys.executable, "-m", "autotrace.launch.main", *options, "--", sys.executable, "agent.py"]
    program = subprocess.Popen(command, cwd=folder, env=environ, start_new_session=True)

    def recorded() -> Path | None:
        run = next((path.parent for path in folder.glob(f"runs/*/{layout.RUN_JSON}")), None)
        if run is None or not (run / layout.STATE_DB).exists():
            return None
        reader = of_run(run)
        statuses = [row.status for row in reader.select(columns=("status",))]
        living = reader.run.living
        reader.close()
        return run if living and sorted(statuses) == ["OK"] * ENDED + ["OPEN"] * HANGING else None

    yield until(recorded, (OSError, ValueError))
    os.kill(program.pid, signal.SIGKILL)
    program.wait()


def test_every_page_says_in_which_call_an_open_rollout_is(hung: Path, visit: Open) -> None:
    tab = visit(hung, at="table?sort=open_since")
    page, run = tab.page, f"#/run/{hung.name}"
    expect(page.locator(".count")).to_have_text("20 trajectories")
    expect(page.locator(f"{ROWS} .c-open_in").first).to_have_text("Tools.search")
    expect(page.locator(f"{ROWS} .c-open_since").first).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))
    page.locator(ROWS).first.click()
    header = page.locator("header.heading")
    expect(header).to_contain_text(re.compile(r"open for .+ in Tools\.search"))
    before = header.inner_text()
    until(lambda: header.inner_text() != before)  # it counts on
    expect(header.locator(".times")).to_have_attribute("title", re.compile("open call"))
    page.keyboard.press("3")
    box = page.locator(".timeline-canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 22 + 20 + 10)
    expect(page.locator(".timeline .pointed")).to_contain_text(re.compile(r"Tools\.search.*open for "))
    tab.go(f"{run}/steps?step=1", ".lanes-canvas")
    said = page.locator(".lanes")
    expect(said).to_contain_text(re.compile(r"8 still open; the oldest, \w{8}: open for .+ in Tools\.search"))
    last = said.locator(".last a").inner_text()
    reader = of_run(hung)
    assert next(row.status for row in reader.select() if row.trace_id.startswith(last)) == "OK"
    reader.close()
    tab.go(f"{run}/table?sort=duration&desc=1", ROWS)  # which hang have lasted longest
    expect(page.locator(f"{ROWS} .c-open_in").first).to_have_text("Tools.search")
    tab.go(f"{run}/overview", ".run-facts")
    expect(page.locator(".run-facts")).to_contain_text("20, 8 of them running")


def test_the_list_says_it_too(hung: Path) -> None:
    command = [sys.executable, "-m", "autotrace", "ls", str(hung)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert len(re.findall(r"for [\d.]+ \S+ in Tools\.search", told)) == HANGING
    rows = list(map(json.loads, subprocess.check_output([*command, "--json"], text=True).splitlines()))
    assert [row["open"] and row["open"]["in"] for row in rows].count("Tools.search") == HANGING
    assert all((row["open"] is None) is (row["status"] == "OK") for row in rows)
