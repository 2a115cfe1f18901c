"""A phrase that many rollouts have: the search stops at 500 hits and goes on when it is asked to."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
from playwright.sync_api import expect

from autotrace.view.app import AT_ONCE, MOST_HITS
from tests.browser.conftest import Server, Visit
from tests.browser.figures import measured
from tests.browser.test_speed import processor_time
from tests.ship.spools import Process, attributes, new_run

Open = Callable[..., Visit]
ROWS = ".scroller .row:not([hidden])"
RECORDED, COPIES = 500, 100


def large_run(parent: Path) -> Path:
    """50,000 rollouts as a folder of Parquet files: 500 that were recorded, a hundred times. Every 20th says it."""
    folder = new_run(parent, "recorded")
    process = Process(folder)
    for number in range(RECORDED):
        trace = number.to_bytes(16, "big")
        root = process.open(trace, "trajectory", attributes=attributes(step=number // 50, rollout=number % 10))
        asked = {"messages": [{"role": "user", "content": f"When does train {number} leave?"}]}
        llm = process.open(trace, "llm", root, inputs=asked)
        said = "The train leaves at noon." if number % 20 == 0 else "I do not know."
        answer = {"choices": [{"message": {"role": "assistant", "content": said}}]}
        process.close(trace, llm, output=answer)
        process.fact("reward", float(number % 20 == 0), trace)
        process.close(trace, root)
    process.exit()
    small, large = parent / "small", parent / "large"
    command = [sys.executable, "-m", "autotrace", "export", str(folder), "--format", "parquet", "--out", str(small)]
    subprocess.run(command, check=True, timeout=300)
    shutil.copytree(small, large)
    for file in small.rglob("*.parquet"):
        place = large / file.relative_to(small)
        rows = f"SELECT one.* REPLACE (md5(trace_id || k) AS trace_id) FROM '{file}' AS one, range({COPIES}) AS of(k)"
        if "trace_id" in duckdb.sql(f"SELECT * FROM '{file}'").columns:
            duckdb.sql(f"COPY ({rows}) TO '{place}'")
    return large


def test_a_phrase_of_2500_among_50_000(tmp_path: Path, serve: Callable[[Path], Server], visit: Open) -> None:
    folder = large_run(tmp_path)
    page = visit(folder).page
    examined = page.locator("#page .big")
    expect(examined).to_contain_text(re.compile(r"[\d,]+ of 50,000 trajectories examined"))
    # a copy has the group of its original, and numbers tell the prompts apart
    expect(examined).to_have_text(re.compile("findings? in 50,000 trajectories, most costly first"), timeout=600_000)
    page.keyboard.press("t")
    expect(page.locator(".count")).to_contain_text("50,000 trajectories")
    before = processor_time(serve(folder).process.pid)
    page.fill(".bar .words", "leaves at noon")
    page.press(".bar .words", "Enter")
    count = page.locator(".count")
    expect(count).to_contain_text("in the texts: “leaves at noon”, searched ", timeout=600_000)
    took = processor_time(serve(folder).process.pid) - before
    found = int(count.inner_text().split()[0])
    measured(f"the first {found} of 2,500 hits among 50,000 rollouts: CPU of the server", f"{took:,.0f} ms", "")
    assert MOST_HITS <= found < MOST_HITS + AT_ONCE
    for number in range(2, 6):
        page.locator("button.more").click()
        expect(count).to_contain_text(re.compile(f"^{number * MOST_HITS:,} of .* in the texts"), timeout=600_000)
    expect(count).to_have_text("2,500 of 50,000 trajectories · in the texts: “leaves at noon”")
    assert not page.locator("button.more").is_visible()
    expect(page.locator(f"{ROWS} mark").first).to_have_text("leaves at noon")
