"""Credentials in the addresses of backends and proxies: in no file of a run, and in nothing that a command prints."""

from __future__ import annotations

import logging
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from autotrace.redact.masking import masked_uri
from autotrace.ship.delivery.carrier import _problem
from autotrace.ship.process import log_to_file
from autotrace.sinks import registry
from autotrace.sinks.protocol import Refused, Unavailable
from tests.cases import in_turns
from tests.http_server import QuietServer
from tests.ports import reserved
from tests.security import hostile, reading

CANARY = "canary7Qx"
PROXIES = ("http://pu:{}@127.0.0.1:{}", "none://pu:{}@127.0.0.1:{}", "socks5://pu:{}@127.0.0.1:{}")
READS = [
    ["doctor"], ["ls", "{}"], ["status", "{}", "--all"], ["status", "{}", "--json"], ["diagnose", "{}"],
    ["runs", "{}", "--json"], ["show", "ab", "{}"], ["view", "{}", "--export", "page.html"],
]  # fmt: skip


@pytest.mark.parametrize(("backend", "proxy"), in_turns(registry.names(), PROXIES))
def test_no_address_shows_its_credentials(backend: str, proxy: str, tmp_path: Path) -> None:
    run, process = hostile.honest(tmp_path)
    process.exit()
    (here := tmp_path / "here").mkdir()
    closed = reserved()
    through, address = proxy.format(CANARY, closed), f"http://bob:{CANARY}@127.0.0.1:{closed}/?api_key={CANARY}"
    environ = {
        "ALL_PROXY": through, "HTTP_PROXY": through, "HTTPS_PROXY": through, "WANDB_BASE_URL": address,
        "WF_TRACE_SERVER_URL": address, "WANDB_API_KEY": CANARY * 5, "WANDB_ENTITY": "e",
        "OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={CANARY}",
        "AUTOTRACE_ALERT": f"http://127.0.0.1:{closed}/{CANARY}",
    }  # fmt: skip
    ship = ["ship", str(run), "--backend", backend, *(("--tracking-uri", address) if backend == "mlflow" else ())]
    reads = [[word.replace("{}", str(run)) for word in words] for words in READS]
    answers = reading.run([ship, *reads], here, tmp_path / "mine", AUTOTRACE_RUN_DIR=str(run), **environ)
    assert f"\n{backend}: " in f"\n{answers[0]['out']}" and len(answers) == len(reads) + 1, answers[0]
    assert not [one for one in answers if CANARY in one["out"] + one["err"]]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


def server(came: list[str], leads_to: str = "") -> QuietServer:
    """Notes each request, and answers that what is asked for is at ``leads_to``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers["content-length"] or 0))
            came.append(f"{self.command} {self.path}")
            self.send_response(307 if leads_to else 200)
            self.send_header("location", leads_to + self.path)
            self.send_header("content-length", "0")
            self.end_headers()

        do_POST = do_PUT = do_HEAD = do_GET

        def log_message(self, *_: object) -> None: ...

    return QuietServer(Handler)


@pytest.mark.parametrize("backend", ["mlflow", "otlp", "weave"])
def test_nothing_follows_a_redirect(backend: str, tmp_path: Path) -> None:
    asked: list[str] = []
    elsewhere: list[str] = []
    with server(elsewhere) as other, server(asked, other.url.replace("127.0.0.1", "localhost")) as named:
        other.start()
        named.start()
        run, process = hostile.honest(tmp_path)
        process.exit()
        (here := tmp_path / "here").mkdir()
        environ = {
            "WANDB_BASE_URL": named.url, "WF_TRACE_SERVER_URL": named.url, "WANDB_API_KEY": CANARY * 5,
            "WANDB_ENTITY": "e", "OTEL_EXPORTER_OTLP_ENDPOINT": named.url, "MLFLOW_TRACKING_TOKEN": CANARY,
            "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={CANARY}",
        }  # fmt: skip
        ship = ["ship", str(run), "--backend", backend]
        more = ["--tracking-uri", named.url] if backend == "mlflow" else []
        answers = reading.run([[*ship, *more], ["doctor"]], here, tmp_path / "mine", **environ)
        assert answers[0]["code"] == 1 and asked and not elsewhere, (answers, asked, elsewhere)


@pytest.mark.parametrize("kind", [RuntimeError, Refused, Unavailable])
def test_errors_of_a_backends_library_are_kept_without_credentials(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hooks in (sys, threading):
        monkeypatch.setattr(hooks, "excepthook", hooks.excepthook)
    told = f"GET https://bob:{CANARY}@host/x?api_key={CANARY} failed; Authorization: Bearer {CANARY}{CANARY}"

    def raising() -> None:
        raise kind(told)

    log, handlers = logging.getLogger("autotrace.ship"), [*logging.root.handlers]
    try:
        log_to_file(tmp_path)
        try:
            raising()
        except Exception as error:
            problem = _problem("x", error)
            log.exception("stopped: %s", error)
            sys.excepthook(kind, error, None)
        (thread := threading.Thread(target=raising)).start()
        thread.join()
    finally:
        logging.root.handlers[0].close()
        logging.root.handlers[:] = handlers
    written = (tmp_path / "shipper.log").read_text()
    assert "GET https://" in problem.text and written.count("Traceback") >= 3 and "host/x" in written
    assert CANARY not in problem.text + written


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql+psycopg://host/db?user=u&password={}", "mysql://u@host/db?passwd={}&charset=utf8",
        "mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BUID%3Du%3BPWD%3D{}", "https://host/?access_token={}#x",
        "https://host/?sig={}", "postgresql://u:a {}@host/db", "http://{}@host/",
    ],
)  # fmt: skip
def test_a_credential_of_an_address_is_masked_wherever_it_stands(uri: str) -> None:
    assert "host" in masked_uri(uri) or "odbc" in uri
    assert CANARY not in masked_uri(uri.format(CANARY))
