"""Whether a server answers: any answer but a refusal or its own failure counts."""

from __future__ import annotations

import base64
import http.server
import threading

import pytest

from autotrace.sinks.http_health import probe


@pytest.mark.parametrize(("code", "healthy"), [(200, True), (404, True), (403, False), (500, False)])
def test_a_server_is_asked(code: int, healthy: bool) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        health = probe(f"http://127.0.0.1:{server.server_port}", "option --tracking-uri")
        server.shutdown()
    assert (health.ok, f"answers {code}" in health.text) == (healthy, True)


def test_a_server_is_asked_with_the_credentials_of_the_address() -> None:
    seen: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        health = probe(f"http://bob:p%40ss@127.0.0.1:{server.server_port}", "option --tracking-uri")
        server.shutdown()
    assert health.ok and "answers 200" in health.text and "p%40ss" not in health.text
    assert seen == ["Basic " + base64.b64encode(b"bob:p@ss").decode()]
