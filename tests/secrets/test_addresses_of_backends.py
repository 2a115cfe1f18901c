"""Credentials in the addresses of backends and proxies: in no file of a run, and in nothing that a command prints."""

from __future__ import annotations

import base64
import json
import logging
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import quote

import pytest

from autotrace.redact.masking import masked_uri
from autotrace.ship.delivery.courier import _problem
from autotrace.ship.process import log_to_file
from autotrace.sinks import registry
from autotrace.sinks.own_keys import without_own_keys
from autotrace.sinks.protocol import Refused, Unavailable
from tests.cases import in_turns, some
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


KEY = "kq7Zp2Xw9Rt4Lm8Vb3Nc6Yd1" * 2
BASIC = base64.b64encode(f"api:{KEY}".encode()).decode()
FORMS = (KEY, quote(KEY + "/"), BASIC, KEY[:12] + "...", "..." + KEY[-10:], f'{{"key": "{KEY}"}}', f"Bearer {KEY}")
QUOTED = (KEY, BASIC, KEY[:12], KEY[-10:])


def quoting(code: int) -> QuietServer:
    """Rejects everything, and quotes the key in the status line and in the body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers["content-length"] or 0))
            told = f"invalid key: {', '.join(FORMS)}"
            body = json.dumps({"message": told, "reason": told, "detail": told, "error": told}).encode()
            self.send_response(code, f"invalid key {KEY}")
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_HEAD = do_GET

        def log_message(self, *_: object) -> None: ...

    return QuietServer(Handler)


@pytest.mark.parametrize(
    ("backend", "code"),
    some(
        [("mlflow", 400), ("mlflow", 401), ("otlp", 400), ("otlp", 500), ("weave", 400), ("weave", 422)],
        ("mlflow", 401),
        ("otlp", 500),
        ("weave", 422),
    ),
)
def test_a_server_that_quotes_our_key_does_not_make_us_show_the_key(backend: str, code: int, tmp_path: Path) -> None:
    with quoting(code) as server:
        server.start()
        run, process = hostile.honest(tmp_path)
        process.exit()
        (here := tmp_path / "here").mkdir()
        (netrc := tmp_path / "netrc").write_text(f"machine {server.url[7:]} login user password {KEY}\n")
        netrc.chmod(0o600)
        environ = {
            "WANDB_BASE_URL": server.url, "WF_TRACE_SERVER_URL": server.url, "WANDB_ENTITY": "e",
            "NETRC": str(netrc), "OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "MLFLOW_TRACKING_TOKEN": KEY,
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-honeycomb-team={KEY}", **({} if code == 400 else {"WANDB_API_KEY": KEY}),
        }  # fmt: skip
        more = ["--tracking-uri", server.url] if backend == "mlflow" else []
        commands = [
            ["ship", str(run), "--backend", backend, *more], ["doctor"],
            ["status", str(run), "--json"], ["diagnose", f"wandb://e/p/r{code}"],
        ]  # fmt: skip
        answers = reading.run(commands, here, tmp_path / "mine", AUTOTRACE_RUN_DIR=str(run), **environ)
    told = "".join(one["out"] + one["err"] for one in answers)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != netrc)
    assert f"\n{backend}: " in f"\n{answers[0]['out']}", answers
    assert not [one for one in QUOTED if one in told or one.encode() in written], told


def test_a_message_shows_no_key_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "pass word/1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://bob:p%40ssw0rd@host:5000")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=teamkey77,other=x")
    secret = ("pass word/1", "pass+word%2F1", "p@ssw0rd", "p%40ssw0rd")
    for form in (*FORMS, *secret, base64.b64encode(b"bob:pass word/1").decode()):
        told = without_own_keys(f"401: you sent <{form}>, which is not known at host:5000")
        assert not [one for one in (*QUOTED, *secret, form) if one in told and one != "..."], told
        assert told.startswith("401: you sent") and told.endswith("which is not known at host:5000")
    plain = "the password is not known at host:5000; check MLFLOW_TRACKING_PASSWORD"
    assert without_own_keys(plain) == plain


def test_a_message_shows_the_folders_that_variables_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "training runs" / "project").mkdir(parents=True)
    (key := folder / "credentials.json").write_text("{}")
    monkeypatch.setenv("PWD", str(folder))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    told = f"training of the project stopped: cannot write {folder}/autotrace-runs: No space left on device"
    assert without_own_keys(told) == told
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "/secret/77")
    assert without_own_keys("you sent /secret/77") == "you sent ***"


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
