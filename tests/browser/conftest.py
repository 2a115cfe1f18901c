"""Chromium, servers of runs, and runs of every kind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from autotrace.run import layout
from autotrace.ship.readers import places
from autotrace.ship.store.row import TraceRow
from autotrace.ship.store.state import State
from autotrace.view.open_runs import address
from tests.browser.figures import pytest_terminal_summary as pytest_terminal_summary  # the table at the end
from tests.ship.spools import new_run

ROOT = Path(__file__).resolve().parents[2]
MANY = 100_000
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The distribution's browser, else the one that Playwright installed."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    expect.set_options(timeout=60_000)  # the machine may have much else to do
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Server:
    """``autotrace view`` as a process."""

    process: subprocess.Popen[str]
    base: str = ""

    @property
    def link(self) -> str:
        """One that opens the page; each does so once, and then the server says another."""
        while True:
            assert self.process.stderr is not None
            said = self.process.stderr.readline()
            assert said, "the server ended"
            if found := re.search(r"http://\S+", said):
                self.base = found[0].partition("?")[0]
                return found[0]

    def stop(self) -> None:
        """As a person does, with Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Path], Server]]:
    """``serve(run)``: a server of it; each run has one for the whole session."""
    servers: dict[Path, Server] = {}

    def start(folder: Path) -> Server:
        if folder not in servers:
            servers[folder] = started(folder)
        return servers[folder]

    yield start
    for server in servers.values():
        server.stop()


def started(folder: Path, environ: Mapping[str, str] | None = None) -> Server:
    """A new server, with another environment if one is given."""
    command = [sys.executable, "-m", "autotrace", "view", str(folder), "--no-browser", "--port", "0"]
    return Server(subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True))


class Visit:
    """A tab that notes what must not happen: errors of scripts, refusals of the policy, requests to anywhere else."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("console", lambda message: self.wrong.append(message.text) if message.type == "error" else None)
        page.on("dialog", lambda dialog: (self.wrong.append("a dialog"), dialog.dismiss()))
        page.on("request", self._asked)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.wrong.append(f"a request to {request.url}")

    def go(self, address: str, wait: str) -> Page:
        """Open ``address`` (behind #) and wait for an element."""
        self.page.goto(f"{self.base}{address}")
        self.page.wait_for_selector(wait)
        return self.page


@pytest.fixture
def visit(browser: Browser, serve: Callable[[Path], Server]) -> Iterator[Callable[..., Visit]]:
    """``visit(run)``: a new tab of its trajectories (``at="overview"``: of another page), let in. At the end nothing
    must have gone wrong in it."""
    visits: list[Visit] = []

    def open_tab(folder: Path, *, at: str = "table", **options: Any) -> Visit:
        server = serve(folder)
        page = browser.new_page(viewport={"width": 1440, "height": 860}, **options)
        page.set_default_timeout(180_000)
        link = server.link
        visit = Visit(page, server.base)
        visits.append(visit)
        one = folder.is_file() or (folder / layout.RUN_JSON).exists()
        page.goto(f"{link}#/run/{quote(address(places(folder)[-1]), safe='')}/{at}" if one else link)
        return visit

    yield open_tab
    for each in visits:
        each.page.context.close()
    assert [each.wrong for each in visits] == [[] for _ in visits]


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of ``make demo``; one that was made before, if ``AUTOTRACE_TEST_DEMO`` names its folder."""
    if made := os.environ.get("AUTOTRACE_TEST_DEMO"):
        return Path(made)
    folder = tmp_path_factory.mktemp("demo") / "runs"
    given = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    words = [
        "--backend",
        "jsonl",
        "--project",
        "autotrace-demo",
        "--logprobs",
        "1",
        "--run-dir",
        str(folder),
        "--quiet",
    ]
    command = [
        sys.executable,
        "-m",
        "autotrace.launch.main",
        *words,
        "--",
        sys.executable,
        "examples/verl_loop/main.py",
    ]
    subprocess.run(command, cwd=ROOT, env=given, check=True, timeout=900)
    (run,) = (path.parent for path in folder.glob(f"*/{layout.RUN_JSON}"))
    return run


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 100,000 trajectories, of which only the lines are there."""
    folder = new_run(tmp_path_factory.mktemp("many"), "many")
    state = State.of_run(folder)
    start = 1_795_000_000_000_000_000
    rows = []
    for number in range(MANY):
        step, place = divmod(number, 512)
        reward = ((number * 7919) % 1000) / 1000
        begin = start + step * 10**11 + place * 10**7
        facts = {"reward": reward, "advantage": reward - 0.5, "reward_extra_info": {"acc": reward > 0.5}}
        times = {
            "queue_s": 0.1,
            "prefill_s": 0.2,
            "decode_s": 3.0 + reward,
            "tool_s": (number % 50) / 10,
            "other_s": 0.4,
        }
        failed = number % 97 == 0
        rows.append(TraceRow(
            trace_id=f"{number * 2654435761 % (1 << 64):016x}{number:016x}", name="AgentLoopWorker._run_agent_loop",
            role="trajectory", status="ERROR" if failed else "OK", step=step, sample_index=str(place // 16),
            rollout_n=place % 16, validate=False, uid=f"s{step}p{place // 16}", data_source="math", start_ns=begin,
            end_ns=begin + int((5 + number % 40) * 1e9), turns=1 + number % 7, tool_calls=number % 6, spans=20,
            prompt_tokens=900, response_tokens=100 + (number * 31) % 8000, reward=reward,
            error=f"TimeoutError: tool {number % 9} did not answer" if failed else None, facts=json.dumps(facts),
            times=json.dumps(times), group_key=f"{step}/s{step}p{place // 16}", complete=True,
        ))  # fmt: skip
    with state:
        state.put_rows(rows)
    state.close()
    return folder
