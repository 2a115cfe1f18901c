"""``autotrace view``: the server as a process, and the files it writes instead."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from autotrace.config.installation import install
from tests.cli.conftest import Call
from tests.run_folder import recorded
from tests.ship.spools import new_run
from tests.view.conftest import listing
from tests.waiting import DEADLINE


@contextmanager
def serving(*words: str | Path) -> Iterator[str]:
    """``autotrace view ...`` as a process; the link it prints."""
    command = [sys.executable, "-m", "autotrace", "view", "--no-browser", *map(str, words)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        link = re.search(r"http://\S+", said)
        assert link, said + process.stderr.read()
        yield link[0]
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(DEADLINE) in (0, -signal.SIGINT), rest
        assert "Traceback" not in rest


@contextmanager
def let_in(link: str) -> Iterator[httpx.Client]:
    """A client that has opened ``link`` as the page's script does."""
    address, _, code = link.partition("?open=")
    with httpx.Client(base_url=address, trust_env=False) as client:
        session = client.get("session", headers={"authorization": f"Bearer {code.partition('#')[0]}"})
        assert session.status_code == 200
        client.headers["authorization"] = f"Bearer {session.text}"
        yield client


def test_it_prints_a_link_that_shows_the_run(run: Path) -> None:
    with serving(run, "--port", "0") as link:
        assert link.startswith("http://127.0.0.1:")
        assert httpx.get(link.partition("?")[0] + "api/runs", trust_env=False).status_code == 401
        page = httpx.get(link, trust_env=False)
        assert page.status_code == 200 and '<script type="module" src="/page.js">' in page.text
        with let_in(link) as browser:
            assert "function showTable" in browser.get("page.js").text
            listed = browser.get("api/runs").json()["runs"]
        assert [each["run"] for each in listed] == [run.name]


def test_two_runs_in_two_folders_share_a_page_that_begins_with_their_difference(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    runs = [recorded(tmp_path / name, "run") for name in ("a", "b")]
    with serving(*runs, "--port", "0") as link, let_in(link) as browser:
        names = [runs[0].name, f"{runs[1].name}-2"]
        assert link.endswith(f"#/run/{names[0]}/diff?with={names[1]}")
        assert {each["run"] for each in browser.get("api/runs").json()["runs"]} == {*names}
        answer = browser.get(f"api/runs/{names[0]}/diff/{names[1]}").json()
        assert answer["runs"] == names and ["no difference", []] in answer["lines"]


def test_a_folder_of_runs_and_one_trajectory(run: Path, runs: Path, call: Call) -> None:
    trace = json.loads(call("ls", "--json").output.splitlines()[0])["trace_id"]
    with serving(runs, "--port", "0", "--trace", trace[:9]) as link, let_in(link):
        assert link.endswith(f"#/run/{run.name}/trace/{trace}")


def test_a_finished_export(run: Path, tmp_path: Path, call: Call) -> None:
    lines, page = tmp_path / "finished.jsonl", tmp_path / "page.html"
    assert call("export", "--format", "jsonl", "--out", str(lines)).exit_code == 0
    with serving(lines, "--port", "0") as link, let_in(link) as browser:
        (listed,) = browser.get("api/runs").json()["runs"]
        assert listed["run"] == run.name
    written = call("view", str(lines), "--train", "--export", str(page))
    assert written.exit_code == 0, written.output
    assert page.stat().st_size > 50_000
    lines.write_text('{"said": []}\n')
    refused = call("view", str(lines))
    assert refused.exit_code == 2 and "it is a file with 'said'" in refused.output
    assert len(refused.output.splitlines()) == 1


def test_a_port_that_is_taken(run: Path, call: Call) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = call("view", run, "--no-browser", "--port", taken.getsockname()[1])
    assert done.exit_code == 2
    assert "cannot listen on 127.0.0.1" in done.output and "--port" in done.output


def test_without_its_extra_it_says_what_to_install(run: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = call("view", run, "--no-browser")
    assert done.exit_code == 2
    assert "autotrace view needs uvicorn" in done.output and install("view") in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "no such folder, and no such run"),
        (["--trace", "ffff"], "no trace of this run begins with 'ffff'"),
        (["--step", "1"], "on the page there is a filter"),
        (["--export", "x.html", "--step", "9"], "no trajectory matches"),
        (["--export", "x.html", "--trace", "ffff"], "no trace of this run begins with 'ffff'"),
        (["--export", "run.json/x.html"], "cannot be written"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(words: list[str], said: str, run: Path, call: Call) -> None:
    (run.parent.parent / "run.json").touch()
    done = call("view", "--no-browser", *words)
    assert done.exit_code == 2 and said in done.output
    assert not Path("x.html").exists()


def test_the_exported_page_holds_what_was_chosen_and_nothing_as_text(run: Path, call: Call) -> None:
    before = listing(run)
    done = call("view", "--step", "2", "--export", "page.html")
    assert done.exit_code == 0 and "3 trajectories -> page.html" in done.output
    text = Path("page.html").read_text()
    assert len(re.findall(r'id="data trace [0-9a-f]{32}"', text)) == 3
    assert len(re.findall(r'id="data group ', text)) == 1
    assert not re.search(r'(?:src|href)="/static/', text) and "http://" not in re.sub(
        r"http://(?:www\.w3\.org/|\$\{)", "", text
    )
    assert oct(os.stat("page.html").st_mode)[-3:] == "600"
    assert listing(run) == before


def test_perfetto_draws_calls_of_a_thread_inside_of_each_other(run: Path, call: Call) -> None:
    assert call("view", "--perfetto", "trace.json").exit_code == 0
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len({event["pid"] for event in spans}) == 5
    assert {"trajectory", "llm", "tool"} <= {event["cat"] for event in spans}
    for event in spans:
        for other in spans:
            if (event["pid"], event["tid"]) == (other["pid"], other["tid"]) and event["ts"] < other["ts"]:
                inside = other["ts"] + other["dur"] <= event["ts"] + event["dur"] + 1e-3
                assert inside or other["ts"] >= event["ts"] + event["dur"] - 1e-3


def test_an_empty_run_has_nothing_to_export(runs: Path, call: Call) -> None:
    new_run(runs)
    done = call("view", "--export", "page.html")
    assert done.exit_code == 2 and "no trajectory matches" in done.output
