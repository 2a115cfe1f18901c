"""What the server answers, and that it writes nothing."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from autotrace.ship.store import migrations
from autotrace.tables.conditions import condition
from autotrace.view.app import application
from autotrace.view.columns import MOST
from tests.run_folder import recorded
from tests.ship.spools import ANSWER, FINAL, PROMPT, TOOL, Process, attributes, new_run, trajectory
from tests.view.conftest import listing, unpacked

NAME = "20261121-064412-3f9c1a"


def served(folder: Path) -> TestClient:
    return TestClient(application(folder), raise_server_exceptions=False)


def ids(client: TestClient) -> list[str]:
    header, arrays = columns(client, "start")
    digits = bytes(arrays["trace_id"]).hex()
    assert header["count"] * 32 == len(digits)
    return [digits[at : at + 32] for at in range(0, len(digits), 32)]


def test_the_runs_of_a_folder_newest_first(tmp_path: Path) -> None:
    recorded(tmp_path, "a", created="2026-11-21T06:00:00+00:00")
    recorded(tmp_path, "b", created="2026-11-22T06:00:00+00:00")
    with served(tmp_path) as client:
        listed = client.get("/api/runs").json()["runs"]
        assert [run["run"] for run in listed] == ["b", "a"]
        assert (
            client.get("/api/runs/b/columns?names=start").status_code
            == client.get("/api/runs/a/columns?names=start").status_code
            == 200
        )


def rows_of(run: Path) -> list[Any]:
    return of_run(run).select()


def columns(client: TestClient, *names: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return unpacked(client.get(f"/api/runs/{NAME}/columns", params={"names": ",".join(names)}).content)


def test_the_columns_are_the_lines_of_ls(client: TestClient, run: Path) -> None:
    header, arrays = columns(client, "reward", "group", "duration")
    rows = rows_of(run)
    assert header["count"] == len(rows) == 8
    assert ids(client) == [row.trace_id for row in rows]
    assert list(arrays["reward"]) == [row.reward for row in rows]
    assert [header["words"]["group"][code] for code in arrays["group"]] == [row.group_id for row in rows]
    assert list(arrays["duration"]) == pytest.approx([row.duration_s for row in rows])


def test_columns_of_every_kind(client: TestClient, run: Path) -> None:
    names = client.get(f"/api/runs/{NAME}/names").json()
    assert {"queue_s", "truncated", "facts.reward_extra_info.acc"} < {*names["numbers"]}
    assert {"uid", "findings"} < {*names["texts"]} and not {*names["numbers"]} & {*names["texts"]}
    header, arrays = columns(client, *names["numbers"], *names["texts"])
    rows = rows_of(run)
    assert {len(values) for name, values in arrays.items() if name != "trace_id"} == {len(rows)}
    assert list(arrays["facts.reward"]) == list(arrays["reward"]) == [row.reward for row in rows]
    assert list(arrays["facts.reward_extra_info.acc"]) == [float(row.reward > 0.5) for row in rows]
    assert list(arrays["queue_s"]) == [0.25] * 8
    assert [header["words"]["uid"][code] for code in arrays["uid"]] == [row.uid for row in rows]
    found = [header["words"]["findings"][code].split() if code >= 0 else [] for code in arrays["findings"]]
    assert "AT-TRUNCATED" in found[1] and list(arrays["truncated"]) == ["AT-TRUNCATED" in each for each in found]


def test_the_filter_is_that_of_the_commands(client: TestClient, run: Path) -> None:
    for expression in ("finding contains 'TOOL'", "reward > 0.2 and step = 2", "facts.reward_extra_info.acc"):
        answer = client.get(f"/api/runs/{NAME}/where", params={"q": expression})
        digits = bytes(unpacked(answer.content)[1]["trace_id"]).hex()
        expected = [row.trace_id for row in of_run(run).select(condition(expression))]
        assert [digits[at : at + 32] for at in range(0, len(digits), 32)] == expected != []
    wrong = client.get(f"/api/runs/{NAME}/where", params={"q": "rewad < 1"})
    assert (wrong.status_code, wrong.text) == (400, 'there is no column "rewad" at character 1; did you mean "reward"?')


def test_names_of_the_users_become_columns_up_to_a_bound(tmp_path: Path) -> None:
    folder = new_run(tmp_path, NAME)
    process = Process(folder)
    own = [
        {"mixed": 1, "nested": {"depth": 2}},
        {"mixed": "text", "words": "a"},
        {f"key{number}": number for number in range(300)},
    ]
    for number, given in enumerate(own):
        trace = bytes([number + 1]) * 16
        process.close(trace, process.open(trace, "trajectory", attributes={**attributes(), **given}))
    process.exit()
    with TestClient(application(folder)) as client:
        names = client.get(f"/api/runs/{NAME}/names").json()
        header, arrays = columns(client, "attributes.mixed", "attributes.nested.depth", "attributes.words")
    assert arrays["attributes.mixed"][0] == 1 and math.isnan(arrays["attributes.mixed"][1])
    assert arrays["attributes.nested.depth"][0] == 2
    assert [header["words"]["attributes.words"][code] for code in arrays["attributes.words"] if code >= 0] == ["a"]
    assert 20 < sum(name.startswith("attributes.key") for name in names["numbers"]) <= MOST


def test_a_trajectory_is_a_conversation_with_its_calls(client: TestClient) -> None:
    detail = client.get(f"/api/runs/{NAME}/traces/{ids(client)[1]}").json()
    roles = ["prompt", "assistant", "tool", "prompt", "assistant"]
    assert [item["role"] for item in detail["conversation"]] == roles
    assert detail["conversation"][0]["ids"].startswith("4 token ids: "), "which nothing decodes"
    tool = detail["conversation"][2]
    assert (tool["name"], tool["status"]) == ("search", "ERROR")
    assert tool["error"] == tool["text"] == "TimeoutError: no answer from the index"
    spans = detail["spans"]
    assert len(set(map(len, spans.values()))) == 1
    assert spans["parent"][0] == -1 and spans["role"][spans["parent"][3]] == "llm"
    assert spans["phases"][3]["decode_s"] == 1.0
    assert detail["facts"]["reward"] == 0.0
    found = {finding["code"]: finding for finding in detail["findings"]}
    assert found["AT-TRUNCATED"]["turn"] == 2 and "cut at a limit of tokens" in found["AT-TRUNCATED"]["what"]
    call = client.get(f"/api/runs/{NAME}/traces/{detail['trace_id']}/calls/{tool['span']}").json()
    assert "no answer from the index" in call["error"] and call["output"] == "4"


def test_a_tool_whose_error_the_agent_catches_has_failed_all_the_same(tmp_path: Path) -> None:
    folder = new_run(tmp_path, NAME)
    process = Process(folder)
    trace = b"\x01" * 16
    root = process.open(trace, "trajectory", attributes=attributes())
    called = process.open(trace, "tool", root, inputs={"tool_call": {"name": "stock"}})
    method = process.open(trace, "tool", called)
    process.close(trace, method, status="ERROR", error=("LookupError", "no such item", "Traceback ..."))
    process.close(trace, called, output="Error executing tool")
    process.close(trace, root)
    process.exit()
    with served(folder) as client:
        (tool,) = client.get(f"/api/runs/{NAME}/traces/0101").json()["conversation"][:1]
    assert (tool["status"], tool["error"], tool["text"]) == (
        "ERROR",
        "LookupError: no such item",
        "Error executing tool",
    )


def test_its_tokens_are_arrays(client: TestClient) -> None:
    header, arrays = unpacked(client.get(f"/api/runs/{NAME}/traces/{ids(client)[0]}/tokens").content)
    assert list(arrays["id"]) == PROMPT + ANSWER + TOOL + FINAL
    assert [(part["kind"], part["turn"], part["first"], part["count"]) for part in header["parts"]] == [
        (0, 1, 0, 4), (1, 1, 4, 3), (2, 2, 7, 2), (1, 2, 9, 4)
    ]  # fmt: skip
    assert [part["version"] for part in header["parts"] if part["kind"] == 1] == [0, 1]
    assert list(arrays["mask"]) == [0] * 4 + [1] * 3 + [0] * 2 + [1] * 4
    assert [value == value for value in arrays["logprob"]] == [False] * 4 + [True] * 3 + [False] * 6
    assert header["advantage"] == 0.5
    # no tokenizer: the numbers stand for the texts
    assert bytes(arrays["text"]).decode()[: sum(arrays["units"][:2])] == "⟨1⟩⟨2⟩"


def test_a_group_says_where_its_rollouts_part(tmp_path: Path) -> None:
    folder = new_run(tmp_path, NAME)
    process = Process(folder)
    for rollout, (reward, answer) in enumerate(((0.0, [10, 11, 12]), (1.0, [10, 11, 12]), (0.5, [10, 99, 12]))):
        trace = trajectory_saying(process, answer, rollout=rollout)
        process.fact("reward", reward, trace)
    process.exit()
    with served(folder) as client:
        rollouts = ids(client)
        group = client.get(f"/api/runs/{NAME}/group?ids={','.join(rollouts)}").json()
        assert group["base"] == rollouts[1], "the best"
        forks = group["forks"][rollouts[1]]
        assert forks[rollouts[0]]["fork"] is None
        assert (forks[rollouts[2]]["fork"]["turn"], forks[rollouts[2]]["fork"]["token"]) == (1, 1)
        many = client.get(f"/api/runs/{NAME}/group?ids={','.join([*rollouts, rollouts[2][:14], *rollouts])}").json()
        assert len(many["rollouts"]) == 4 and many["left_out"] == 0, "each that is named, also by its beginning, once"
        other = client.get(f"/api/runs/{NAME}/group?ids={','.join(rollouts)}&base={rollouts[2]}").json()
        assert other["base"] == rollouts[2] and other["forks"][rollouts[2]][rollouts[0]]["fork"]["token"] == 1


def trajectory_saying(process: Process, answer: list[int], **who: object) -> bytes:
    trace = bytes([len(answer), *answer, int(str(who.get("rollout", 0)))]).ljust(16, b"\1")
    root = process.open(trace, "trajectory", attributes=attributes(**who))  # type: ignore[arg-type]
    llm = process.open(trace, "llm", root, PROMPT)
    process.close(trace, llm, answer)
    process.close(trace, root)
    return trace


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/runs/another", 404, "there is no run another"),
        ("/api/runs/..", 404, ""),
        ("/api/runs/%2e%2e%2f%2e%2e/columns", 404, ""),
        (f"/api/runs/{NAME}/traces/ffff", 404, "no trace of this run begins with 'ffff'"),
        (f"/api/runs/{NAME}/traces/ffff/tokens", 404, "no trace of this run begins with 'ffff'"),
        (f"/api/runs/{NAME}/steps/{'9' * 5000}", 404, "a step is a number"),
        (f"/api/runs/{NAME}/group?ids=ffff", 404, "no trace of this run begins with 'ffff'"),
        (f"/api/runs/{NAME}/group", 400, "name the trajectories"),
        (f"/api/runs/{NAME}/columns?names=nothing", 404, "there is no column nothing"),
        (f"/api/runs/{NAME}/search", 400, "what is searched for"),
        ("/static/../app.py", 404, ""),
        ("/static/%2e%2e/app.py", 404, ""),
    ],
)
def test_what_there_is_not_is_said(client: TestClient, path: str, status: int, words: str) -> None:
    answer = client.get(path)
    assert answer.status_code == status and words in answer.text


def test_nothing_is_written_into_a_finished_run(run: Path) -> None:
    before = listing(run)
    with served(run) as client:
        look_at_everything(client)
    assert listing(run) == before


@pytest.mark.parametrize("how", ["never shipped", "torn", "state of another", "no state, being written"])
def test_nor_into_others(how: str, tmp_path: Path) -> None:
    folder = new_run(tmp_path, NAME)
    process = Process(folder)
    trajectory(process)
    trajectory(process)
    if how == "torn":
        process.raw(b"\x40\0\0\0 torn")
        process.die()
    elif how != "no state, being written":
        process.exit()
    if how == "state of another":
        (folder / "state.db").write_bytes(b"this is no database")
    before = listing(folder)
    with served(folder) as client:
        look_at_everything(client, 2)
        state = client.get(f"/api/runs/{NAME}").json()
        if how == "torn":
            assert any("torn" in note for note in state["notes"])
            assert any("without a last record" in note for note in state["notes"])
        assert state["live"] is (how == "no state, being written")
    assert listing(folder) == before


def look_at_everything(client: TestClient, count: int = 8) -> None:
    found = ids(client)
    assert len(found) == count
    assert client.get(f"/api/runs/{NAME}").status_code == 200
    assert client.get(f"/api/runs/{NAME}/columns?names=queue_s,uid").status_code == 200
    for part in ("", "/tokens", "/perfetto"):
        assert client.get(f"/api/runs/{NAME}/traces/{found[0]}{part}").status_code == 200
    assert client.get(f"/api/runs/{NAME}/group?ids={','.join(found)}").status_code == 200
    assert client.get(f"/api/runs/{NAME}/search?q=x").status_code == 200


def test_a_run_that_is_being_written_grows(tmp_path: Path) -> None:
    folder = new_run(tmp_path, NAME)
    process = Process(folder)
    trajectory(process)
    with served(folder) as client:
        assert len(ids(client)) == 1
        version = client.get(f"/api/runs/{NAME}").json()["version"]
        assert client.get(f"/api/runs/{NAME}").json()["version"] == version
        trace = b"\x7f" * 16
        root = process.open(trace, "trajectory", attributes=attributes())
        process.open(trace, "tool", root)
        assert client.get(f"/api/runs/{NAME}").json()["version"] > version
        detail = client.get(f"/api/runs/{NAME}/traces/7f7f").json()
        assert (detail["status"], detail["duration"], detail["spans"]["status"]) == ("OPEN", None, ["OPEN", "OPEN"])


def test_an_empty_run_is_a_run(tmp_path: Path) -> None:
    folder = new_run(tmp_path, NAME)
    with served(folder) as client:
        assert ids(client) == []
        assert columns(client, "queue_s", "uid")[0]["count"] == 0
        assert client.get(f"/api/runs/{NAME}").json()["trajectories"] == 0


def test_segments_that_were_removed_are_said(client: TestClient, run: Path) -> None:
    first = ids(client)[0]
    shutil.rmtree(run / "spool")
    shutil.rmtree(run / "tables")
    answer = client.get(f"/api/runs/{NAME}/traces/{first}")
    assert answer.status_code == 410 and "are gone from the run folder" in answer.text


def test_a_run_of_an_earlier_release_is_read_as_it_is(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines are there, also where its segments are gone."""
    later = [*migrations.STATE, ("ALTER TABLE traces ADD COLUMN later TEXT",)]
    monkeypatch.setattr(migrations, "STATE", later)
    shutil.rmtree(run / "spool")
    shutil.rmtree(run / "tables")
    before = listing(run)
    with served(run) as client:
        assert len(ids(client)) == 8
        assert client.get(f"/api/runs/{NAME}/traces/{ids(client)[0]}").status_code == 410
    assert listing(run) == before


def test_search_finds_the_first_place_in_each_trajectory(client: TestClient) -> None:
    lines = client.get(f"/api/runs/{NAME}/search?q=NO+Answer").text.splitlines()
    hits = [json.loads(line) for line in lines if "trace_id" in line]
    assert [hit["hit"] for hit in hits] == ["no answer", "no answer"]
    assert {hit["trace_id"] for hit in hits} < set(ids(client))
    assert hits[0]["before"].endswith("TimeoutError: ") and hits[0]["role"] == "tool"
    assert json.loads(lines[-1]) == {"done": 8, "of": 8}, "ids that nobody decoded may have it"


def test_the_prompt_is_a_column_and_a_condition(client: TestClient) -> None:
    header, arrays = columns(client, "prompt")
    assert len(arrays["prompt"]) == 8
    assert "prompt" in client.get(f"/api/runs/{NAME}/names").json()["texts"]
    known = [header["words"]["prompt"][code] for code in arrays["prompt"] if code >= 0]
    assert all("\n" not in prompt and len(prompt) <= 200 for prompt in known)


def test_the_limit_of_a_response_comes_from_the_reports(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "limited")
    process = Process(folder)
    process.bind("config", response_length=512)
    trajectory(process)
    process.exit()
    assert ship(folder, once=True).state == "done"
    with served(folder) as client:
        assert client.get("/api/runs/limited/names").json()["limit"] == 512
    bare = new_run(tmp_path, "bare")
    process = Process(bare)
    trajectory(process)
    process.exit()
    with served(bare) as client:
        assert client.get("/api/runs/bare/names").json()["limit"] is None
