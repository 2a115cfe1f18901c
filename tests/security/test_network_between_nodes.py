"""Somebody on the network between a relay and the collector of its run, or on the collector's machine."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from autotrace.run import layout
from autotrace.ship.cluster.receiver import Receiver
from autotrace.ship.cluster.relay import Collector
from tests.waiting import DEADLINE, until

NAME = "node2-123-0a1b2c3d-0.seg"
SECRET = b"what a model wrote " * 100
HEAD = b"PUT /segments/x HTTP/1.1\r\n"


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    (tmp_path / "collector" / layout.SPOOL).mkdir(parents=True)
    made = Receiver(tmp_path / "collector", "127.0.0.1")
    yield made
    with contextlib.suppress(OSError):
        made.close()


@pytest.fixture
def relays() -> Iterator[Callable[[str, str, Path], subprocess.Popen[bytes]]]:
    """Starts the relay of a node."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(url: str, token: str, node: Path) -> subprocess.Popen[bytes]:
        environ = {**os.environ, "AUTOTRACE_COLLECTOR": url, "AUTOTRACE_TOKEN": token}
        begun.append(subprocess.Popen([sys.executable, "-m", "autotrace.ship.cluster.relay", str(node)], env=environ))
        return begun[-1]

    yield start
    for relay in begun:
        relay.kill()
        relay.wait()


class Between:
    """Takes connections at ``port``, hands them on to ``target``, if there is one, and keeps what passes; ``changed``
    may change what a relay sends."""

    def __init__(
        self, target: int | None, port: int = 0, changed: Callable[[bytes], bytes] = lambda data: data
    ) -> None:
        self._target, self._changed = target, changed
        self.seen = bytearray()
        self.came = 0
        self._listening = socket.create_server(("127.0.0.1", port))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                relay, _ = self._listening.accept()
                self.came += 1
                if self._target is None:
                    relay.sendall(os.urandom(32))  # as a collector would begin
                    threading.Thread(target=self._pass, args=(relay, None, self._changed), daemon=True).start()
                    continue
                collector = socket.create_connection(("127.0.0.1", self._target))
                for one, other, change in ((relay, collector, self._changed), (collector, relay, bytes)):
                    threading.Thread(target=self._pass, args=(one, other, change), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket | None, change: Callable[[bytes], bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                self.seen += data
                if other is not None:
                    other.sendall(change(data))
        for end in (one, other):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()


def node_of(tmp_path: Path) -> Path:
    node = tmp_path / "node2"
    (node / layout.SPOOL).mkdir(parents=True)
    (node / layout.SPOOL / NAME).write_bytes(SECRET)
    return node


def url_at(receiver: Receiver, port: int) -> str:
    parts = urlsplit(receiver.url)
    return parts._replace(netloc=f"127.0.0.1:{port}").geturl()


def test_whoever_takes_the_port_of_a_collector_that_ended_gets_nothing(
    receiver: Receiver, tmp_path: Path, relays: Callable[[str, str, Path], subprocess.Popen[bytes]]
) -> None:
    port = urlsplit(receiver.url).port or 0
    receiver.close()
    thief = Between(None, port)
    relays(receiver.url, receiver.token, node_of(tmp_path))
    until(lambda: thief.came >= 3)
    thief.close()
    assert receiver.token.encode() not in thief.seen and SECRET[:19] not in thief.seen
    assert len(thief.seen) < 1000


def test_a_collector_of_another_run_gets_nothing(
    receiver: Receiver, tmp_path: Path, relays: Callable[[str, str, Path], subprocess.Popen[bytes]]
) -> None:
    between = Between(urlsplit(receiver.url).port)
    relays(url_at(receiver, between.port), "the secret of another run", node_of(tmp_path))
    until(lambda: between.came >= 3)
    between.close()
    assert SECRET[:19] not in between.seen and b"the secret of another run" not in between.seen
    assert not list(Path(receiver._folder).iterdir())


def test_who_does_not_know_the_secret_writes_nothing(receiver: Receiver) -> None:
    for token in ("", "guess", receiver.token + "x"):
        with pytest.raises(OSError):
            Collector(receiver.url, token).append(NAME, 0, True, b"x")
    assert not list(Path(receiver._folder).iterdir())
    assert Collector(receiver.url, receiver.token).append(NAME, 0, True, b"x") == 1


def test_what_is_changed_on_the_way_is_not_taken(receiver: Receiver) -> None:
    between = Between(urlsplit(receiver.url).port, changed=lambda data: data.replace(b"model", b"thief"))
    with pytest.raises(OSError):
        Collector(url_at(receiver, between.port), receiver.token).append(NAME, 0, True, SECRET)
    between.close()
    until(lambda: receiver.connections == 0)
    arrived = Path(receiver._folder) / NAME
    assert not arrived.exists() or b"thief" not in arrived.read_bytes()


def test_what_was_sent_cannot_be_sent_again(receiver: Receiver) -> None:
    """To a collector that lost the segment, say."""
    between = Between(urlsplit(receiver.url).port)
    collector = Collector(url_at(receiver, between.port), receiver.token)
    assert collector.append(NAME, 0, False, b"x" * 100) == 100
    sent = bytes(between.seen)
    collector.close()
    between.close()
    (Path(receiver._folder) / NAME).unlink()
    with socket.create_connection(("127.0.0.1", urlsplit(receiver.url).port or 0)) as again:
        for begin in range(0, 200):  # wherever the relay's part begins
            if sent[begin:].startswith((b"PUT ", sent[32:64])):
                again.sendall(sent[begin:])
                break
        again.settimeout(DEADLINE)
        with contextlib.suppress(ConnectionError):
            while again.recv(1000) and not (Path(receiver._folder) / NAME).exists():
                pass
    assert not (Path(receiver._folder) / NAME).exists()


def test_heads_without_end_take_no_memory(tmp_path: Path) -> None:
    (tmp_path / layout.SPOOL).mkdir()
    code = (
        "import sys; from autotrace.ship.cluster.receiver import Receiver\n"
        "print(Receiver(sys.argv[1], '127.0.0.1').url, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = urlsplit(process.stdout.readline()).port or 0
        before = resident(process.pid)
        line = b"X-Long: " + b"x" * 60_000 + b"\r\n"
        strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        for stranger in strangers:
            stranger.settimeout(2)
            with contextlib.suppress(OSError):
                stranger.sendall(HEAD + 90 * line)
        grown = resident(process.pid) - before
        for stranger in strangers:
            stranger.close()
        process.kill()
    assert grown < 60 << 20


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_strangers_do_not_take_the_places_of_relays(receiver: Receiver) -> None:
    port = urlsplit(receiver.url).port or 0
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(600)]
    for stranger in strangers[:500]:
        stranger.settimeout(DEADLINE)
        with contextlib.suppress(ConnectionError):
            while stranger.recv(100):
                pass
    assert Collector(url_at(receiver, port), receiver.token).append(NAME, 0, True, b"x") == 1
    for stranger in strangers:
        stranger.close()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    def make(name: str) -> str:
        folder = tmp_path_factory.mktemp(name)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
             "2", "-subj", f"/CN={name}", "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
            check=True, capture_output=True,
        )  # fmt: skip
        return f"{folder}/cert.pem{os.pathsep}{folder}/key.pem"

    return make


@pytest.mark.parametrize("of_ray", [False, True])
def test_with_a_certificate_nobody_in_between_reads(
    tmp_path: Path, certificates: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, of_ray: bool
) -> None:
    cert, _, key = certificates("head").partition(os.pathsep)
    if of_ray:
        monkeypatch.setenv("RAY_USE_TLS", "1")
        monkeypatch.setenv("RAY_TLS_SERVER_CERT", cert)
        monkeypatch.setenv("RAY_TLS_SERVER_KEY", key)
    else:
        monkeypatch.setenv("AUTOTRACE_TLS", f"{cert}{os.pathsep}{key}")
    (tmp_path / layout.SPOOL).mkdir()
    receiver = Receiver(tmp_path, "127.0.0.1")
    between = Between(urlsplit(receiver.url).port)
    assert receiver.url.startswith("tls://")
    collector = Collector(url_at(receiver, between.port), receiver.token)
    assert collector.append(NAME, 0, True, SECRET) == len(SECRET)
    assert collector.append(NAME, len(SECRET), False, b"!") == len(SECRET) + 1
    assert len(between.seen) > len(SECRET) and b"model" not in between.seen and NAME.encode() not in between.seen
    monkeypatch.setenv("AUTOTRACE_TLS", certificates("thief"))
    (tmp_path / "thief" / layout.SPOOL).mkdir(parents=True)
    thief = Receiver(tmp_path / "thief", "127.0.0.1")
    with pytest.raises(ConnectionError, match="another certificate"):
        Collector(url_at(receiver, urlsplit(thief.url).port or 0), receiver.token).append(NAME, 0, True, b"x")
    silent = socket.create_connection(("127.0.0.1", urlsplit(receiver.url).port or 0))
    until(lambda: receiver.connections == 2)
    monkeypatch.setattr("autotrace.ship.cluster.receiver.STRANGER", 0.0)
    receiver.forget_the_silent()
    silent.settimeout(DEADLINE)
    with contextlib.suppress(ConnectionError):
        assert silent.recv(100) == b""
    for each in (receiver, thief, between):
        each.close()
