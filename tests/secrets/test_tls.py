"""A server whose certificate nobody vouches for is told nothing, whichever backend it claims to be."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from autotrace.run.status import Status
from tests.cases import some
from tests.ship.spools import Process, new_run, trajectory
from tests.waiting import DEADLINE

KEY = "canary" * 7


def certificate(folder: Path) -> Path:
    """A self-signed one for 127.0.0.1, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, list[bytes]]]:
    """Its address, and what it was sent."""
    heard: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(self.rfile.read(int(self.headers.get("content-length") or 0)))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_PUT = do_POST

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))
    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
    yield f"https://127.0.0.1:{listening.server_address[1]}", heard
    listening.shutdown()
    listening.server_close()


@pytest.mark.parametrize("backend", some(["mlflow", "weave", "otlp"], "otlp"))
def test_nothing_is_said_to_a_server_nobody_vouches_for(
    tmp_path: Path, server: tuple[str, list[bytes]], backend: str
) -> None:
    url, heard = server
    run = new_run(tmp_path, backends=[backend], project="dev/x", tracking_uri=url if backend == "mlflow" else None)
    process = Process(run)
    trajectory(process)
    process.exit()
    environ = {
        **os.environ, "WANDB_BASE_URL": url, "WF_TRACE_SERVER_URL": url, "WANDB_API_KEY": KEY,
        "MLFLOW_TRACKING_TOKEN": KEY, "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={KEY}", "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "autotrace.cli.main", "ship", str(run)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode != 0 and heard == []
    status = Status.read(run)
    assert (status.state, status.pending) == ("blocked", 1)
    assert "127.0.0.1" in str(status.error)
    assert KEY not in done.stdout + done.stderr + (run / "status.json").read_text()
