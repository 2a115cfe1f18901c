"""Findings are said while the run goes on: at most once, to the address that a person gave; and may end the run."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from autotrace.config import environment as env
from autotrace.run import layout
from autotrace.run.shipper_process import ShipperLock
from autotrace.ship import alerts, live_findings
from autotrace.ship.process import log_to_file
from autotrace.ship.shipper import Shipper, ship
from autotrace.tables import hung
from tests.folders import contents
from tests.places import Place, installation, place  # noqa: F401 - fixtures
from tests.ship.spools import Process, attributes, new_run
from tests.ship.test_live_findings import CONFIG, group
from tests.waiting import until

SECRET = "T0123/B4567/abcdefghijklmnopqrstuvwx"


class Address:
    """A server that keeps what it is sent and answers as it is told."""

    def __init__(self, port: int, answers: Sequence[int | float]) -> None:
        self.url = f"http://127.0.0.1:{port}/services/{SECRET}"
        self.answers = list(answers)
        """Status codes, one a request, then 200; seconds: nothing is answered for so long."""
        self.got: list[dict[str, Any]] = []
        self.elsewhere: list[str] = []


@contextmanager
def listening(*answers: int | float) -> Iterator[Address]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not self.path.startswith("/services/"):
                address.elsewhere.append(self.path)
            address.got.append(json.loads(body))
            answer = address.answers.pop(0) if address.answers else 200
            if isinstance(answer, float):
                time.sleep(answer)
                return
            self.send_response(answer)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        address = Address(server.server_port, answers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield address
        server.shutdown()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_findings, "QUIET", 0.0)
    monkeypatch.setattr(live_findings, "SHARE", 1e9)


def a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, steps: int = 1, **given: Any) -> Path:
    """Of ``steps`` steps with a failed rollout each, that goes on."""
    run = new_run(tmp_path, main_pid=os.getpid(), **given)
    monkeypatch.setenv(env.OWN_RUN, str(run))
    monkeypatch.setenv(env.ALERT, url)
    process = Process(run)
    process.bind("config", **CONFIG)
    for step in range(1, steps + 1):
        group(process, step, f"u{step}", failing=1)
    process.exit()
    return run


def shipped(run: Path, steps: int = 1) -> list[str]:
    """A shipper lives until it has looked at so many steps; its notes about messages."""
    shipper = Shipper(run)
    try:
        until(lambda: shipper._live.found().examined == 4 * steps or not shipper.step())
        shipper._alerts.close()
        return shipper._alerts.notes
    finally:
        shipper.close()


@pytest.mark.usefixtures("quick")
def test_each_finding_is_said_once_a_run_with_its_place_and_without_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as address:
        run = a_run(tmp_path, monkeypatch, address.url, steps=3)
        assert shipped(run, 3) == [] and shipped(run, 3) == []
    (failed,) = address.got
    assert failed["code"] == "AT-ROLLOUT-FAILED"
    assert (failed["run"], failed["step"], failed["trajectories"], failed["of"], failed["share"]) == (
        "run",
        1,
        1,
        4,
        0.25,
    )
    (at,) = failed["places"]
    assert at["step"] == 1 and failed["text"].startswith("AT-ROLLOUT-FAILED: ")
    assert f"autotrace view {run} --trace {at['trace_id'][:12]}" in failed["text"]
    assert "the agent's own" not in json.dumps(address.got), "what the program wrote"


@pytest.mark.usefixtures("quick")
def test_named_findings_are_said_once_a_step_and_may_quote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as address:
        on = ["AT-ROLLOUT-FAILED"]
        run = a_run(tmp_path, monkeypatch, address.url, steps=3, alert_on=on, alert_texts=True)
        shipped(run, 3)
        shipped(run, 3)
    assert [(one["code"], one["step"]) for one in address.got] == [(on[0], step) for step in (1, 2, 3)]
    assert "the agent's own" in json.dumps(address.got[0])


@pytest.mark.usefixtures("quick")
def test_what_was_not_taken_is_tried_again_and_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "PATIENCE", 0.5)
    on = ["AT-ROLLOUT-FAILED"]
    with listening(503, 429, 200, 3.0, 302, 504) as address:
        run = a_run(tmp_path, monkeypatch, address.url, steps=5, alert_on=on)
        notes = shipped(run, 5)
        assert shipped(run, 5) == notes, "remembered"
    # step 1 at the third try; of steps 2 and 4 nobody knows whether they were taken; 302 is not followed
    assert [one["step"] for one in address.got] == [1, 1, 1, 2, 3, 4, 5] and not address.elsewhere
    assert notes == [
        "alerts to 127.0.0.1: 1 were not answered: it is not known whether they arrived",
        "alerts to 127.0.0.1: 1 were answered with 302",
        "alerts to 127.0.0.1: 1 were answered with 504",
    ]


@pytest.mark.usefixtures("quick")
def test_the_next_shipper_sends_what_a_killed_one_did_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(503, 503) as address:
        run = a_run(tmp_path, monkeypatch, address.url)
        with closing(Shipper(run)) as shipper:  # ends between two tries, as by SIGKILL
            until(lambda: address.got or not shipper.step())
            until(lambda: shipper._alerts._post is None or not shipper.step())
        assert shipped(run) == []
    assert [one["code"] for one in address.got] == ["AT-ROLLOUT-FAILED"] * 3


@pytest.mark.usefixtures("quick")
def test_what_is_found_and_what_is_to_be_said_of_it_are_remembered_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening() as address:
        run = a_run(tmp_path, monkeypatch, address.url)
        with monkeypatch.context() as failing, closing(Shipper(run)) as shipper:
            failing.setattr(shipper._live, "_found", lambda *_: 1 / 0)  # between the two, as SIGKILL might
            until(lambda: not shipper._live.waiting or not shipper.step())
        assert shipped(run) == [] and len(address.got) == 1


@pytest.mark.usefixtures("quick")
def test_no_more_than_so_many_are_sent_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "MOST", 2)
    with listening() as address:
        run = a_run(tmp_path, monkeypatch, address.url, steps=3, alert_on=["AT-ROLLOUT-FAILED"])
        assert shipped(run, 3) == ["alerts to 127.0.0.1: no more than 2 are sent"] and len(address.got) == 2


@pytest.mark.usefixtures("quick")
def test_an_address_that_nobody_listens_at_holds_nothing_up_and_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "TRIES", 1)
    with listening() as address:
        pass
    run = a_run(tmp_path, monkeypatch, address.url)
    log_to_file(run)
    assert shipped(run) == ["alerts to 127.0.0.1: 1 were refused: nobody listens"]
    assert (run / "trajectories.jsonl").exists(), "delivered meanwhile"
    written = [file for file, text in contents(run).items() if SECRET.encode() in text]
    assert not written


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("suffix", ["/slack", "/slack/"])
def test_what_takes_slacks_form_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    assert alerts.wants_slack(f"https://hooks.slack.com/services/{SECRET}")
    with listening() as address:
        run = a_run(tmp_path, monkeypatch, address.url + suffix)
        shipped(run)
    assert [set(one) for one in address.got] == [{"text"}]


@pytest.mark.usefixtures("quick")
def test_a_run_that_somebody_delivers_by_hand_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as address:
        run = a_run(tmp_path, monkeypatch, address.url, stop_on=["AT-ROLLOUT-FAILED"])
        monkeypatch.setenv(env.OWN_RUN, "")
        ended: list[int] = []
        monkeypatch.setattr(os, "kill", lambda pid, _number: ended.append(pid))
        ship(run, once=True)
    assert not address.got and not ended


def test_what_hangs_is_said_while_it_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(hung, "SECONDS", 0.2)
    monkeypatch.setattr(hung, "ALONE", 0.2)
    with listening() as address:
        run = new_run(tmp_path, main_pid=os.getpid(), alert_on=["AT-HUNG"])
        monkeypatch.setenv(env.OWN_RUN, str(run))
        monkeypatch.setenv(env.ALERT, address.url)
        process = Process(run)
        trace = os.urandom(16)
        root = process.open(trace, "trajectory", attributes=attributes(5, 0, "u"))
        process.open(trace, "tool", root, inputs={"tool_call": {"name": "search"}})
        with ShipperLock(run), closing(Shipper(run)) as shipper:
            shipper.write("running")
            until(lambda: address.got or not shipper.step())
            shipper.step()
    (one,) = address.got
    assert (one["code"], one["step"], one["trajectories"]) == ("AT-HUNG", 5, 1)
    assert one["places"][0]["trace_id"] == trace.hex()


FAILING = """
import sys, time
def solve(number):
    raise ValueError("no")
if __name__ == "__main__":
    for number in range(4):
        try:
            solve(number)
        except ValueError:
            pass
    print("solved", flush=True)
    time.sleep(300)
"""
COUNTING = """import signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
def ended():
    while not asked:
        time.sleep(0.05)
    time.sleep(1)
    print("asked", len(asked), flush=True)
"""
LIST = "- target: __main__.solve\n  role: trajectory\n"


@pytest.mark.parametrize("way", [["python", "program.py"], ["bash", "-c", "python program.py; echo went on"]])
def test_a_finding_ends_the_run_and_says_why(place: Place, way: list[str]) -> None:  # noqa: F811
    place.write("program.py", FAILING)
    place.write("traced.yaml", LIST)
    done = place.launch(way, options=["--spec", "traced.yaml", "--stop-on", "AT-ROLLOUT-FAILED"])
    assert done.returncode == -signal.SIGTERM and done.stdout == "solved\n", (done.returncode, done.stdout, done.stderr)
    assert "autotrace: --stop-on asked the command to end: AT-ROLLOUT-FAILED" in done.stderr
    assert "4 trajectories to " in done.stderr, "delivered"
    (status,) = place.cwd.glob("autotrace-runs/*/status.json")
    assert json.loads(status.read_text())["found"]["ended_run"] == "AT-ROLLOUT-FAILED"


def test_it_is_asked_once_also_below_a_program_that_passes_signals_on(place: Place) -> None:  # noqa: F811
    place.write("program.py", FAILING.replace("import sys, time", COUNTING).replace("time.sleep(300)", "ended()"))
    place.write("traced.yaml", LIST)
    way = ["sh", "-c", "python program.py & trap 'kill $!' TERM; wait; wait"]
    done = place.launch(way, options=["--spec", "traced.yaml", "--stop-on", "AT-ROLLOUT-FAILED"])
    assert done.stdout == "solved\nasked 1\n", (done.stdout, done.stderr)


def test_who_is_ending_already_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _number: asked.append(pid))
    with listening() as address:
        run = a_run(tmp_path, monkeypatch, address.url, stop_on=["AT-ROLLOUT-FAILED"])
        with closing(Shipper(run)) as shipper:
            (run / layout.ENDING).touch()  # as the launcher does when a person interrupts the command
            assert not shipper._stop_run() and not asked
            (run / layout.ENDING).unlink()
            assert shipper._stop_run() and asked == [os.getpid()]


def test_what_is_at_its_end_is_not_ended(place: Place) -> None:  # noqa: F811
    place.write("program.py", FAILING.replace("time.sleep(300)", "sys.exit(3)"))
    place.write("traced.yaml", LIST)
    done = place.launch(["python", "program.py"], options=["--spec", "traced.yaml", "--stop-on", "AT-ROLLOUT-FAILED"])
    assert done.returncode == 3 and "asked the command" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--stop-on", "AT-REWARD-CONSTANTS"],
            "there is no finding 'AT-REWARD-CONSTANTS'; did you mean AT-",
        ),
        (["--alert-on", "nothing"], "there is no finding 'nothing'; "),
        (["--alert", f"hooks.slack.com/services/{SECRET}"], "this is not an address; write for example https://"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(place: Place, options: list[str], said: str) -> None:  # noqa: F811
    done = place.launch(["python", "-c", "print('ran')"], options=options)
    assert done.returncode == 2 and done.stdout == "" and said in done.stderr and SECRET not in done.stderr
