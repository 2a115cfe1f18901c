"""Who is let in."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from autotrace.view.guard import Guard

API = "/api/runs"
FILES = ("/", "/page.js", "/static/page.css")


class Mine:
    """A client, and the guard of its server."""

    def __init__(self, host: str = "127.0.0.1", url: str = "http://127.0.0.1:8642") -> None:
        paths = (API, *FILES)
        routes = [Route(path, lambda _: PlainTextResponse("in"), methods=["GET", "POST", "DELETE"]) for path in paths]
        self.opened = 0
        self.guard = Guard(Starlette(routes=routes), host, self._opened)
        self.client = TestClient(self.guard, base_url=url, follow_redirects=False)

    def _opened(self) -> None:
        self.opened += 1

    def get(self, path: str, shown: str = "", **headers: str) -> tuple[int, str]:
        """Status and text of the answer."""
        given = {"authorization": f"Bearer {shown}"} if shown else {}
        answer = self.client.get(path, headers={**given, **headers})
        assert "set-cookie" not in answer.headers
        return answer.status_code, answer.text

    def session(self) -> str:
        """What a link is exchanged for."""
        status, session = self.get("/session", self.guard.code())
        assert status == 200
        return session


def test_a_link_opens_once() -> None:
    mine = Mine()
    code = mine.guard.code()
    status, session = mine.get("/session", code)
    assert status == 200 and mine.opened == 1 and code not in session
    assert mine.get("/session", code)[0] == 401 and mine.opened == 1
    assert mine.get(API, session) == (200, "in")
    assert mine.get(API, code)[0] == 401


def test_a_later_link_takes_the_place_of_an_earlier_one() -> None:
    mine = Mine()
    first, second = mine.guard.code(), mine.guard.code()
    assert mine.get("/session", first)[0] == 401
    assert mine.get("/session", second)[0] == 200


@pytest.mark.parametrize("shown", ["", "wrong", "None", "null"])
def test_without_the_session_nobody_reads(shown: str) -> None:
    mine = Mine()
    status, said = mine.get(API, shown)
    assert status == 401 and "open the link" in said
    assert mine.get("/session", shown)[0] == 401, "no link was made"
    session = mine.session()
    assert mine.get(f"{API}?token={session}", cookie=f"autotrace-8642={session}")[0] == 401
    assert mine.get(API, session + "x")[0] == 401 and mine.get(API, session) == (200, "in")


@pytest.mark.parametrize("path", FILES)
def test_the_files_of_the_page_hold_nothing_of_a_run(path: str) -> None:
    assert Mine().get(path) == (200, "in")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "", "[", "10.0.0.7"])
def test_another_name_is_refused(host: str) -> None:
    mine = Mine()
    for path in ("/session", API, *FILES):
        assert mine.get(path, mine.guard.code(), host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost:8642", "[::1]:8642", "127.0.0.1:9999"])
def test_names_of_this_machine_are_not(host: str) -> None:
    """Another port: forwarded by ssh."""
    mine = Mine()
    assert mine.get(API, mine.session(), host=host)[0] == 200


def test_listening_elsewhere_addresses_and_the_own_name_are_let_in() -> None:
    mine = Mine("0.0.0.0", "http://10.0.0.7:8642")
    session = mine.session()
    assert mine.get(API, session, host="evil.example")[0] == 403
    assert mine.get(API, host="10.0.0.8")[0] == 401
    assert mine.get(API, session, host="10.0.0.8")[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://["])
def test_pages_of_other_origins_are_refused(origin: str) -> None:
    mine = Mine()
    session = mine.session()
    assert mine.get(API, session, origin=origin)[0] == 403
    assert mine.get(API, session, origin="http://127.0.0.1:8642")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_only_reads(method: str) -> None:
    mine = Mine()
    given = {"authorization": f"Bearer {mine.session()}"}
    assert mine.client.request(method, API, headers=given).status_code == 405


def test_every_answer_has_the_policy() -> None:
    mine = Mine()
    session = mine.session()
    for path, shown in ((API, ""), (API, session), ("/", ""), ("/session", ""), ("/missing", session)):
        answer = mine.client.get(path, headers={"authorization": f"Bearer {shown}"})
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
