"""Another user of this machine beside ``autotrace view``: he reads command lines, connects to every port, and listens
on ports of his own that the owner's browser visits."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.cases import in_turns
from tests.ship.spools import Process, new_run, trajectory
from tests.waiting import DEADLINE, until

AT_AN_INSTANT = """
import os, runpy, shutil, signal, tempfile
make, remove = tempfile.mkdtemp, shutil.rmtree
def making(*args, **options):
    folder = make(*args, **options)
    if "{when}" == "made":
        os.kill(os.getpid(), {number})
    return folder
def removing(*args, **options):
    if "{when}" in ("removed", "browsed"):
        os.kill(os.getpid(), {number})
    remove(*args, **options)
tempfile.mkdtemp, shutil.rmtree = making, removing
for number in {ignored}:
    signal.signal(number, signal.SIG_IGN)
runpy.run_module("autotrace", run_name="__main__", alter_sys=True)
"""
HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "


class Page:
    """``autotrace view`` as its owner starts it, with a browser that notes its command line. ``inside`` is a program
    that stands for the command."""

    def __init__(self, folder: Path, *options: str, inside: str = "", **environ: str) -> None:
        runs = folder / "runs"
        runs.mkdir()
        process = Process(new_run(runs))
        trajectory(process, step=1, rollout=0, uid="u", reward=0.5)
        process.exit()
        self.noted = folder / "noted"
        browser = folder / "browser"
        browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shlex.quote(str(self.noted))}; sleep ${{LASTS:-0}}\n')
        browser.chmod(0o755)
        program = ["-c", inside] if inside else ["-m", "autotrace"]
        environ = {**os.environ, "BROWSER": f"{browser} %s", **environ}
        self.process = subprocess.Popen(
            [sys.executable, *program, "view", str(process.run), "--port", "0", *options],
            env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)),
        )  # fmt: skip
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        self.said = b""
        until(lambda: re.search(rb"http://\S+\n", self.hear()) is not None)
        self.link = re.findall(r"http://\S+", self.said.decode())[0]
        self.port = int(re.findall(r":(\d+)/", self.link)[0])
        self.secret = re.findall(r"[?#]\w+=([\w-]{20,})", self.link)[0]

    def hear(self) -> bytes:
        """All that it has said on the terminal."""
        assert self.process.stderr is not None
        self.said += self.process.stderr.read() or b""
        return self.said

    def ask(self, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(DEADLINE)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    made = Page(tmp_path)
    yield made
    if made.process.poll() is None:
        made.end()


def test_no_command_line_holds_what_opens_the_page(page: Page) -> None:
    until(page.noted.exists)
    until(lambda: page.noted.read_text() != "")
    words = page.noted.read_text()
    assert page.secret not in words
    assert page.secret not in Path(f"/proc/{page.process.pid}/cmdline").read_text()
    file = Path(words.strip().removeprefix("file://"))
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    assert page.secret in file.read_text()
    page.end()
    assert not file.exists()


def test_a_link_opens_the_page_once(page: Page) -> None:
    """On 211d765 the link itself opens it, again and again."""
    opens = {"path": "/session", "authorization": f"Bearer {page.secret}"}
    status, _, session = page.ask(**opens)
    if status == 401:
        opens = {"path": page.link.partition(f":{page.port}")[2]}
        status, _, session = page.ask(**opens)
    assert status in (200, 303)
    assert page.ask(**opens)[0] == 401
    until(lambda: page.hear().count(b"http://") == 2)
    assert page.secret not in page.hear().decode().partition("\n")[2], "the next link is another"
    assert page.ask("/api/runs", authorization=f"Bearer {session}")[0] == 200
    assert page.ask("/api/runs")[0] == 401 and page.ask(f"/api/runs?token={session}")[0] == 401


def test_nothing_that_lets_in_goes_to_another_port(page: Page) -> None:
    """A cookie goes to every port of the host."""
    for path in (page.link.partition(f":{page.port}")[2], "/", "/session", "/page.js"):
        for shown in (page.secret, ""):
            assert "set-cookie" not in page.ask(path, authorization=f"Bearer {shown}")[1]
    assert page.ask("/api/runs", cookie=f"autotrace-{page.port}={page.secret}")[0] == 401


@pytest.mark.long
def test_connections_that_send_nothing_keep_nobody_out(page: Page) -> None:
    """And whoever sends half a request is closed; the terminal stays quiet, and the core idle."""
    neighbours = []
    for number in range(400):
        neighbours.append(socket.create_connection(("127.0.0.1", page.port)))
        if number % 2:
            with contextlib.suppress(OSError):
                neighbours[-1].sendall(HALF)
    before, began = page.cpu(), time.monotonic()
    for _ in range(5):
        asked = time.monotonic()
        assert page.ask("/")[0] == 200
        assert time.monotonic() - asked < 5
    for neighbour in neighbours:
        neighbour.settimeout(DEADLINE)
        with contextlib.suppress(ConnectionError):
            while neighbour.recv(1000):
                pass
        neighbour.close()
    assert time.monotonic() - began > 5, "the last of them had some seconds"
    assert page.cpu() - before < 0.5 * (time.monotonic() - began)
    assert len(page.hear()) < 1000


def test_a_head_that_does_not_end_is_closed(page: Page) -> None:
    with socket.create_connection(("127.0.0.1", page.port)) as neighbour:
        neighbour.settimeout(DEADLINE)
        neighbour.sendall(HALF)
        with contextlib.suppress(ConnectionError):
            for _ in range(12):  # 12 KB
                neighbour.sendall(b"x" * 1024)
            answer = b""
            while some := neighbour.recv(1000):
                answer += some
            assert b" 400 " in answer


def test_the_link_names_the_address_that_is_listened_on(tmp_path: Path) -> None:
    """Of the two addresses of ``localhost`` the other one is a neighbour's."""
    page = Page(tmp_path, "--host", "localhost")
    assert page.link.startswith((f"http://127.0.0.1:{page.port}/", f"http://[::1]:{page.port}/"))
    page.end()


@pytest.mark.parametrize(
    ("when", "number"),
    in_turns(["made", "browsed", "removed", "served"], [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]),
)
def test_whatever_ends_the_page_leaves_no_file(tmp_path: Path, number: signal.Signals, when: str) -> None:
    """Also while the file that leads to the page is made, a browser runs in the terminal, or the file is removed; and
    where a shell that starts it with ``&`` has it ignore Ctrl-C."""
    ignored = [int(signal.SIGINT)] if when != "browsed" else []
    program = AT_AN_INSTANT.format(number=int(number), when=when, ignored=ignored)
    page = Page(tmp_path, inside=program, TMPDIR=str(tmp_path), LASTS="5" if when == "browsed" else "0")
    if when != "made":
        until(page.noted.exists)
        page.process.send_signal(number)
    assert page.process.wait(DEADLINE) == 0
    assert "Traceback" not in page.hear().decode()
    assert not list(tmp_path.glob("autotrace-view-*"))


def test_a_page_under_nohup_stays_when_its_terminal_is_closed(tmp_path: Path) -> None:
    page = Page(tmp_path, inside=AT_AN_INSTANT.format(number=0, when="", ignored=[int(signal.SIGHUP)]))
    until(page.noted.exists)
    page.process.send_signal(signal.SIGHUP)
    assert page.ask("/")[0] == 200
    page.end()
    assert page.process.returncode == 0
