"""Who is let in."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from autotrace.view.guard import Guard

TOKEN = "a-token-of-24-characters"


def client(host: str = "127.0.0.1", url: str = "http://127.0.0.1:8642") -> TestClient:
    app = Starlette(routes=[Route("/", lambda _: PlainTextResponse("in"), methods=["GET", "POST", "DELETE"])])
    return TestClient(Guard(app, host, 8642, TOKEN), base_url=url, follow_redirects=False)


def test_the_link_lets_in_and_the_token_leaves_the_address() -> None:
    with client() as mine:
        first = mine.get(f"/?token={TOKEN}&x=1")
        assert (first.status_code, first.headers["location"]) == (303, "/?x=1")
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        assert mine.get("/").text == "in"


@pytest.mark.parametrize("given", ["", "?token=", "?token=wrong", "?token=%ff%00é", f"?token={TOKEN}x"])
def test_without_the_token_nobody_is(given: str) -> None:
    with client() as mine:
        answer = mine.get(f"/{given}")
        assert answer.status_code == 401 and "open the link" in answer.text
        assert mine.get("/", headers={"cookie": 'autotrace-8642="wrong"'}).status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "", "[", "10.0.0.7"])
def test_another_name_is_refused(host: str) -> None:
    with client() as mine:
        assert mine.get(f"/?token={TOKEN}", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8642", "[::1]:8642", "127.0.0.1:9999"])
def test_names_of_this_machine_are_not(host: str) -> None:
    """Another port: forwarded by ssh."""
    with client() as mine:
        assert mine.get(f"/?token={TOKEN}", headers={"host": host}).status_code == 303


def test_listening_elsewhere_addresses_and_the_own_name_are_let_in() -> None:
    with client("0.0.0.0", "http://10.0.0.7:8642") as mine:
        assert mine.get(f"/?token={TOKEN}").status_code == 303
        assert mine.get(f"/?token={TOKEN}", headers={"host": "evil.example"}).status_code == 403
        mine.cookies.clear()
        assert mine.get("/", headers={"host": "10.0.0.8"}).status_code == 401


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_pages_of_other_origins_are_refused(origin: str) -> None:
    with client() as mine:
        mine.get(f"/?token={TOKEN}")
        assert mine.get("/", headers={"origin": origin}).status_code == 403
        assert mine.get("/", headers={"origin": "http://127.0.0.1:8642"}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_only_reads(method: str) -> None:
    with client() as mine:
        mine.get(f"/?token={TOKEN}")
        assert mine.request(method, "/").status_code == 405


def test_every_answer_has_the_policy() -> None:
    with client() as mine:
        for answer in (mine.get("/"), mine.get(f"/?token={TOKEN}"), mine.get("/"), mine.get("/missing")):
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
