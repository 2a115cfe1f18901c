"""Whether a server answers: any answer but a refusal or its own failure counts."""

from __future__ import annotations

import base64

import pytest

from autotrace.sinks.http import probe
from tests.http_server import answering


@pytest.mark.parametrize(("code", "healthy"), [(200, True), (404, True), (403, False), (500, False)])
def test_a_server_is_asked(code: int, healthy: bool) -> None:
    with answering(code) as (server, _):
        health = probe(server.url, "option --tracking-uri")
    assert (health.ok, f"answers {code}" in health.text) == (healthy, True)


def test_a_server_is_asked_with_the_credentials_of_the_address() -> None:
    with answering(200) as (server, credentials):
        health = probe(f"http://bob:p%40ss@127.0.0.1:{server.server_port}", "option --tracking-uri")
    assert health.ok and "answers 200" in health.text and "p%40ss" not in health.text
    assert credentials == ["Basic " + base64.b64encode(b"bob:p@ss").decode()]


def test_no_other_host_is_asked() -> None:
    with answering(200) as (elsewhere, stolen), answering(302, Location=elsewhere.url) as (server, _):
        health = probe(f"http://bob:word@127.0.0.1:{server.server_port}", "option --tracking-uri")
    assert health.ok and "answers 302" in health.text and not stolen
