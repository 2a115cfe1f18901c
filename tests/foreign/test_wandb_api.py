"""A run of W&B's service, read over HTTP from a server that checks each request; the server may answer anything."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import autotrace
from autotrace.cli.main import main
from autotrace.tables.errors import QueryError

KEY = "local-" + "5" * 34
ADDRESS = "wandb://team/sums/1x2y3z"
STEPS = 2500
Answer = Callable[[dict[str, Any]], tuple[int, dict[str, str], bytes]]


def history(variables: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    """As W&B's service answers: rows as JSON texts, the configuration as one, at most ``size`` rows of a page."""
    assert {name: variables[name] for name in ("entity", "project", "run")} == {
        "entity": "team", "project": "sums", "run": "1x2y3z"}  # fmt: skip
    rows = [{"_step": step, "_runtime": 3.5, "loss": 1 / (1 + step), "val": {"acc": step / STEPS}, "note": "x"}
            for step in range(variables["from"], min(variables["to"], STEPS))]  # fmt: skip
    assert len(rows) <= variables["size"]
    told = {
        "config": json.dumps({"lr": {"value": 1e-5, "desc": None}, "data": {"value": {"seed": 3}}, "_wandb": {}}),
        "historyKeys": {"lastStep": STEPS - 1, "keys": {}}, "history": [json.dumps(row) for row in rows],
    }  # fmt: skip
    return 200, {}, json.dumps({"data": {"project": {"run": told}}}).encode()


@contextmanager
def server(answer: Answer) -> Iterator[tuple[str, list[Any]]]:
    """An HTTP server that refuses any other request than the API's; its address, and the requests."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, self.headers["Authorization"], body["variables"]))
            text = body["query"]
            is_right = self.headers["Content-Type"] == "application/json" and text.count("{") == text.count("}") == 3
            is_right &= "project(name: $project, entityName: $entity)" in text and "run(name: $run)" in text
            is_right &= "history(minStep: $from, maxStep: $to, samples: $size)" in text
            status, headers, data = answer(body["variables"]) if is_right else (400, {}, b"")
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}", asked
    finally:
        serving.shutdown()
        thread.join()
        serving.server_close()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)


def test_all_pages_are_read_with_the_users_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(history) as (base, asked):
        monkeypatch.setenv("WANDB_BASE_URL", f"{base}/")
        values = autotrace.open(ADDRESS).sql(
            "SELECT name, count(*), max(value), max(step) FROM metrics GROUP BY 1 ORDER BY 1"
        )
        assert [*zip(*(column.to_pylist() for column in values.columns), strict=True)] == [
            ("loss", STEPS, 1.0, STEPS - 1), ("val/acc", STEPS, (STEPS - 1) / STEPS, STEPS - 1)]  # fmt: skip
        assert [variables["from"] for *_, variables in asked] == [0, 1000, 2000]
        credentials = base64.b64encode(f"api:{KEY}".encode()).decode()
        assert {(path, given) for path, given, _ in asked} == {("/graphql", f"Basic {credentials}")}
        told = json.loads(CliRunner().invoke(main, ["diff", ADDRESS, ADDRESS, "--json"]).stdout)
        assert (told["differences"], told["metrics"]) == ([], []) and KEY not in json.dumps(told)


def test_few_steps_far_apart_take_few_requests_and_many_steps_are_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [*range(0, 1_000_000, 5_000), *range(1_000_000, 1_003_000), 2_000_000]

    def sparse(variables: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        rows = [json.dumps({"_step": one, "loss": 1.0}) for one in steps if variables["from"] <= one < variables["to"]]
        told = {"historyKeys": {"lastStep": steps[-1]}, "history": rows[: variables["size"]]}
        return 200, {}, json.dumps({"data": {"project": {"run": told}}}).encode()

    with server(sparse) as (base, asked):
        monkeypatch.setenv("WANDB_BASE_URL", base)
        found = autotrace.open(ADDRESS).sql("SELECT step FROM metrics ORDER BY step").column(0).to_pylist()
    assert found == steps and len(asked) < 60


def test_the_key_of_netrc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with server(history) as (base, asked):
        monkeypatch.delenv("WANDB_API_KEY")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("WANDB_BASE_URL", base)
        (tmp_path / ".netrc").write_text(f"machine {base.removeprefix('http://')} login user password {KEY}\n")
        (tmp_path / ".netrc").chmod(0o600)
        autotrace.open(ADDRESS)
    assert base64.b64decode(asked[0][1].split()[1]).decode() == f"api:{KEY}"


def nowhere(variables: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, json.dumps({"data": {"project": None}}).encode()


HOSTILE: dict[str, Answer] = {
    "no such run": nowhere,
    "refused": lambda _: (401, {}, b""),
    "no JSON": lambda _: (200, {}, b"\xff\x00" * 1000),
    "deep": lambda _: (200, {}, b"[" * 200_000),
    "a list": lambda _: (200, {}, b"[1, 2]"),
    "wrong kinds": lambda _: (200, {}, b'{"data": {"project": {"run": []}}}'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_answer_of_anything_else_is_a_sentence(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with server(HOSTILE[name]) as (base, _):
        monkeypatch.setenv("WANDB_BASE_URL", base)
        with pytest.raises(QueryError) as error:
            autotrace.open(ADDRESS)
    assert ADDRESS in str(error.value) and KEY not in str(error.value) and "\n" not in str(error.value)


def test_the_key_goes_to_no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(history) as (other, asked), server(lambda _: (302, {"Location": f"{other}/graphql"}, b"")) as (base, _):
        monkeypatch.setenv("WANDB_BASE_URL", base)
        with pytest.raises(QueryError, match="302"):
            autotrace.open(ADDRESS)
    assert asked == []


def test_strange_rows_give_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Any] = [None, 1, "[", '{"_step": -1e99, "loss": 1}', '{"_step": 3, "loss": "NaN", "\\u001b[31m": 2}',
                       json.dumps({"_step": 4, "a": {"b": {"c": {"d": {"e": 1}}}}})]  # fmt: skip
    told = {"config": "[1]", "historyKeys": {"lastStep": 10**12}, "history": rows}
    data = json.dumps({"data": {"project": {"run": told}}}).encode()
    with server(lambda variables: (200, {}, data if not variables["from"] else b'{"data": {}}')) as (base, _):
        monkeypatch.setenv("WANDB_BASE_URL", base)
        with pytest.raises(QueryError, match="no such run"):
            autotrace.open(ADDRESS)
    with server(lambda _: (200, {}, data.replace(b"1000000000000", b"9"))) as (base, _):
        monkeypatch.setenv("WANDB_BASE_URL", base)
        assert autotrace.open(ADDRESS).sql("SELECT step, name FROM metrics ORDER BY step").num_rows == 1


def test_an_address_without_a_run_is_refused() -> None:
    for address in ("wandb://", "wandb://team/sums", "wandb://team//run", "wandb://a/b/c/d"):
        with pytest.raises(QueryError, match="write wandb://ENTITY/PROJECT/RUN"):
            autotrace.open(address)
