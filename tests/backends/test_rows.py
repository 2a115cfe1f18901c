"""S1 to S11 of the table: what real veRL did, as MLflow and W&B Weave show it."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from launches import CANARY, EXPERIMENT, HERE, LOGGERS, RELEASES, ROOT, SAMPLES, WANDB_FOLDER, Launch
from proxy import Proxy
from read import ReadBack, Seen, ids_in_mlflow, in_mlflow, in_weave, numbers, where

from autotrace.record.redact import REDACTED
from autotrace.ship.budget import forecast

pytestmark = [pytest.mark.timeout(1200), pytest.mark.backends]  # the first test waits for the runs

Runs = dict[tuple[str, str], Launch]
Told = Any
"""pytest's ``record_property``."""


@pytest.fixture
def both(runs: Runs, release: str) -> Launch:
    """The release's run into both backends."""
    return runs[release, "both"]


_mlflow: dict[str, list[Seen]] = {}
_weave: dict[str, list[Seen]] = {}


def mlflow_of(launch: Launch) -> list[Seen]:
    """All of the run's trajectories; asked for once."""
    if launch.name not in _mlflow:
        _mlflow[launch.name] = in_mlflow(launch.variables["MLFLOW_TRACKING_URI"], launch.project)
    return _mlflow[launch.name]


def found_in_mlflow(launch: Launch, query: str | None = None, run_id: str | None = None) -> set[str]:
    return ids_in_mlflow(launch.variables["MLFLOW_TRACKING_URI"], launch.project, query, run_id)


def weave_of(read_back: ReadBack, launch: Launch) -> list[Seen]:
    """All of the run's trajectories; asked for once."""
    if launch.name not in _weave:
        _weave[launch.name] = in_weave(read_back, launch.project)["all"]
    return _weave[launch.name]


def keyed(seen: list[Seen]) -> dict[str, Seen]:
    found = {one.trace_id: one for one in seen}
    assert len(found) == len(seen), "a trajectory twice"
    return found


@pytest.mark.row("S1")
def test_both_backends_have_the_same(both: Launch, read_back: ReadBack, release: str, record_property: Told) -> None:
    here = {trace_id: len(one.spans) for trace_id, one in both.recorded.items()}
    assert len(here) == 80
    for seen in (mlflow_of(both), weave_of(read_back, both)):
        assert {trace_id: one.spans for trace_id, one in keyed(seen).items()} == here
    record_property("told", f"{release}: 80 in each")


def spoken(text: str) -> str:
    """As veRL dumps it: without special tokens."""
    return re.sub(r"<\|(?:im_start|im_end|pad)\|>", "", text)


@pytest.mark.row("S2")
def test_texts_are_what_the_engine_read_and_said(both: Launch, read_back: ReadBack, release: str) -> None:
    """The engine's own record of tokens, as bytes: the tokenizer has one token a byte."""
    for seen in (mlflow_of(both), weave_of(read_back, both)):
        for one in seen:
            asked, said = one.texts["prompt_text"], one.texts["response_text"]
            number = one.attributes["sample_index"]
            assert numbers(asked) == {number}
            assert asked.startswith("<|im_start|>system") and asked.endswith("<|im_start|>assistant\n")
            first, tools, second = one.texts["response_parts"]
            assert (list(first), list(tools), list(second)) == (["model"], ["tools"], ["model"])
            assert first["model"] + tools["tools"] + second["model"] == said
            rollout = re.fullmatch(r"I am rollout (\d+)\. <tool_call>(.*)</tool_call><\|im_end\|>", first["model"])
            assert rollout is not None
            key = {"api_key": REDACTED} if int(number) % 10 == 7 else {}
            assert json.loads(rollout[2])["arguments"] == {"number": int(number), **key}
            assert str(2 * int(number)) in tools["tools"]
            answer = 2 * int(number) + int(rollout[1]) % 2
            assert second["model"] == f"So rollout {rollout[1]} says #### {answer}<|im_end|>"
    assert len(both.truth["calls"]) == 240


@pytest.mark.row("S3")
def test_exactly_n_samples_of_each_worker_and_the_same_again(
    runs: Runs, both: Launch, release: str, record_property: Told
) -> None:
    rows = [one.attributes for one in both.recorded.values()]
    assert len(rows) == SAMPLES * both.workers * both.n == 80
    assert set(Counter(row["uid"] for row in rows).values()) == {both.n}, "whole groups"
    chosen = {row["sample_index"] for row in rows}
    assert len(chosen) == 20
    share = both.prompts * both.n / both.workers
    workers = [8, 16, 24, 30] if release == "V1" else None
    if workers is None:  # the classic trainer cuts the batch without looking: 7.5 groups a worker
        place = {100 + prompt: prompt * both.n for prompt in range(both.prompts)}
        assert all(place[sample] // share == (place[sample] + both.n - 1) // share for sample in chosen)
        per_worker = Counter(place[sample] // share for sample in chosen)
    else:
        per_worker = Counter(sum(sample - 100 >= end for end in workers) for sample in chosen)
    assert set(per_worker.values()) == {SAMPLES}
    for kind in ("weave", "mlflow"):
        again = {one.attributes["sample_index"] for one in runs[release, kind].recorded.values()}
        assert again == chosen, "veRL's own switch, another run, other group keys"
    record_property("told", f"{release}: 80 of 120, the same 20 samples again")


@pytest.mark.row("S4")
@pytest.mark.parametrize("kind", ["both", "mlflow"])
def test_mlflow_finds_by_every_attribute(runs: Runs, release: str, kind: str) -> None:
    launch = runs[release, kind]
    everything = keyed(mlflow_of(launch))
    one = sorted(everything.values(), key=lambda seen: seen.trace_id)[0]
    for name in (
        "step", "sample_index", "rollout_n", "validate", "uid", "data_source", "experiment_name", "project_name",
        "agent_name",
    ):  # fmt: skip
        value = one.attributes[name]
        expected = {id for id, seen in everything.items() if seen.attributes[name] == value}
        assert found_in_mlflow(launch, f"tags.{name} = '{value}'") == expected, name
        assert found_in_mlflow(launch, f"tags.{name} = 'none of them'") == set()
    for name in ("reward", "advantage", "trained_in_step", "acc"):
        middle = sorted(seen.facts[name] for seen in everything.values())[len(everything) // 2]
        expected = {id for id, seen in everything.items() if seen.facts[name] >= middle}
        assert found_in_mlflow(launch, f"feedback.{name} >= {middle!r}") == expected, name
    both_kinds = f"tags.rollout_n = '{one.attributes['rollout_n']}' AND feedback.reward > 0.5"
    expected = {
        id for id, seen in everything.items()
        if seen.attributes["rollout_n"] == one.attributes["rollout_n"] and seen.facts["reward"] > 0.5
    }  # fmt: skip
    assert found_in_mlflow(launch, both_kinds) == expected


@pytest.mark.row("S4")
def test_weave_finds_by_every_attribute(both: Launch, read_back: ReadBack) -> None:
    everything = keyed(weave_of(read_back, both))
    known = next(iter(both.recorded.values())).attributes
    names = [
        "step", "sample_index", "rollout_n", "validate", "uid", "data_source", "experiment_name", "project_name",
        "agent_name",
    ]  # fmt: skip
    middle = sorted(seen.facts["reward"] for seen in everything.values())[40]
    conditions = {name: where((f"attributes.{name}", "$eq", known[name])) for name in names}
    conditions["reward"] = where(("output.reward", "$gte", middle))
    conditions["score"] = where(("feedback.[wandb.runnable.reward].payload.output", "$gte", middle))
    conditions["advantage"] = where(("feedback.[wandb.runnable.advantage].payload.output", "$gt", 0.0))
    conditions["two"] = where(("attributes.rollout_n", "$eq", known["rollout_n"]), ("output.reward", "$gte", middle))
    found = {name: set(keyed(seen)) for name, seen in in_weave(read_back, both.project, **conditions).items()}
    for name in names:
        expected = {id for id, seen in everything.items() if seen.attributes[name] == str(known[name])}
        assert found[name] == expected, name
    high = {id for id, seen in everything.items() if seen.facts["reward"] >= middle}
    assert found["reward"] == found["score"] == high
    assert found["advantage"] == {id for id, seen in everything.items() if seen.facts["advantage"] > 0}
    same = {id for id, seen in everything.items() if seen.attributes["rollout_n"] == str(known["rollout_n"])}
    assert found["two"] == same & high


@pytest.mark.row("S5")
def test_project_and_experiment_are_those_of_the_trainer(both: Launch, read_back: ReadBack) -> None:
    for seen in (mlflow_of(both), weave_of(read_back, both)):  # read from the experiment and project of that name
        assert {one.attributes["experiment_name"] for one in seen} == {EXPERIMENT}
        assert {one.attributes["project_name"] for one in seen} == {both.project}


@pytest.mark.row("S6")
@pytest.mark.parametrize("kind", ["both", "mlflow", "weave"])
def test_trajectories_are_linked_to_the_run_that_the_logger_opened(
    runs: Runs, release: str, kind: str, read_back: ReadBack, record_property: Told
) -> None:
    launch = runs[release, kind]
    opened = launch.truth["runs"]
    backends = list(launch.status()["backends"])
    if "mlflow" in backends:
        linked = found_in_mlflow(launch, run_id=opened["mlflow"]) if "mlflow" in opened else set()
        everything = mlflow_of(launch)
        assert linked == {one.trace_id for one in everything if "mlflow" in opened}
        assert {one.run for one in everything} == {opened.get("mlflow")}
    if "weave" in backends:
        expected = f"dev/{launch.project}/{opened['wandb']}" if "wandb" in opened else None
        assert {one.run for one in weave_of(read_back, launch)} == {expected}


@pytest.mark.row("S7")
@pytest.mark.parametrize("kind", ["weave", "mlflow"])
def test_verls_switches_are_followed_where_no_flag_says_otherwise(
    runs: Runs, release: str, kind: str, read_back: ReadBack, record_property: Told
) -> None:
    launch = runs[release, kind]
    assert list(launch.status()["backends"]) == [kind]
    assert len(launch.recorded) == 80, "max_samples_per_step_per_worker is veRL's"
    delivered = launch.status()["backends"][kind]["delivered"]
    here, there = mlflow_of(launch), weave_of(read_back, launch) if kind == "weave" else []
    assert (bool(here), bool(there)) == (kind == "mlflow", kind == "weave"), "once, and nowhere else"
    trainers = delivered - len(here) - len(there)
    assert 0 <= trainers <= 5
    assert all(one.texts["response_text"] for one in here + there)
    shown = autotrace(launch, "status", str(launch.run))
    older = release == "0.7.1" and kind == "weave"
    key = "trainer.rollout_trace" if older else "actor_rollout_ref.rollout.trace"
    for name in ("backend", "token2text", "max_samples_per_step_per_worker"):
        assert f"(veRL's {key}.{name})" in shown
    logger = "+".join(LOGGERS[kind][release]) or "no logger"
    record_property("told", f"{release}: {kind} with {logger}")


@pytest.mark.row("S7")
def test_flags_win_over_verls_switches(both: Launch, read_back: ReadBack) -> None:
    assert set(both.status()["backends"]) == {"mlflow", "weave"}, "not weave alone, as veRL's switch has it"
    assert len(both.recorded) == 80, "five samples a worker, not veRL's three"
    shown = autotrace(both, "status", str(both.run))
    assert "(option --backend)" in shown
    assert "max_samples_per_step_per_worker  5  (option --max-samples-per-step-per-worker)" in shown


def autotrace(launch: Launch, *words: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "autotrace.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=launch.folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.row("S8")
@pytest.mark.parametrize("kind", ["weave", "mlflow"])
def test_a_budget_holds(
    runs: Runs, release: str, kind: str, read_back: ReadBack, weave_proxy: Proxy, record_property: Told
) -> None:
    launch = runs[release, kind]
    told = launch.status()["backends"][kind]
    budget = told["step_budget"]
    delivered = weave_of(read_back, launch) if kind == "weave" else mlflow_of(launch)
    groups = Counter(one.attributes["uid"] for one in delivered)
    assert set(groups.values()) == {launch.n}, "whole groups"
    assert 0 < len(groups) < 20
    assert told["over_budget"] == 80 - len(delivered)
    sizes = [told["sent_bytes"]]
    if kind == "weave":
        path = f"/v2/dev/{launch.project}/calls/complete"
        sizes.append(sum(size for taken, size in weave_proxy.taken if taken == path))
    group = budget / 10
    for size in sizes:
        assert budget - 1.5 * group <= size <= 1.05 * budget, "as full as whole groups allow, and never over by 5 %"
    assert told["gb_a_day"] > 0 and told["gb_a_day"] <= forecast(told["sent_bytes"], 0)
    assert f"{80 - len(delivered)} over the budget" in autotrace(launch, "status", str(launch.run))
    record_property("told", f"{release} {kind}: {sizes[-1] / budget:.0%}")


@pytest.mark.row("S9")
def test_rewards_are_those_of_verls_dump_and_advantages_those_the_trainer_used(
    both: Launch, read_back: ReadBack, release: str, record_property: Told
) -> None:
    rows = {
        (row["uid"], str(row["session"]) if "session" in row else spoken(row["response"])): row
        for row in both.truth["rows"]
    }
    assert len(rows) == 120
    for seen in (mlflow_of(both), weave_of(read_back, both)):
        for one in seen:
            said = spoken(one.texts["response_text"]).replace(REDACTED, CANARY)
            own = one.attributes["rollout_n"] if release == "V1" else said
            row = rows[one.attributes["uid"], own]
            assert one.facts["reward"] == pytest.approx(row["reward"], rel=1e-6)  # veRL's went through a float32
            assert one.facts["advantage"] == row["advantage"]
            assert one.facts["trained_in_step"] == 1
            assert one.attributes["sample_index"] == str(row["sample"])
    record_property("told", f"{release}: 80 rewards and advantages equal")


@pytest.mark.row("S10")
def test_a_group_stands_side_by_side(both: Launch, read_back: ReadBack, release: str, record_property: Told) -> None:
    samples = {one.attributes["sample_index"] for one in both.recorded.values()}
    sample = min(sample for sample in samples if sample % 10 != 7)  # what spells a key has no token ids
    words = ["compare", "--step", "1", "--sample", str(sample)]
    local = json.loads(autotrace(both, *words, "--run", str(both.run), "--json"))
    uri = both.variables["MLFLOW_TRACKING_URI"]
    remote = json.loads(autotrace(both, *words, "--tracking-uri", uri, "--json"))
    assert len(local["trajectories"]) == len(remote["trajectories"]) == both.n
    by_id = [{one["trace_id"]: one for one in found["trajectories"]} for found in (local, remote)]
    assert by_id[0].keys() == by_id[1].keys()
    for trace_id, here in by_id[0].items():
        there = by_id[1][trace_id]
        assert here["tool_calls"] == there["tool_calls"]
        for fact in ("reward", "advantage"):
            assert here["facts"][fact] == there["facts"][fact] == both.recorded[trace_id].facts[fact]
    parted = [one for one in local["divergence"][1:] if one["tokens"]]
    assert len(parted) == both.n - 1, "each says its own number"
    assert {one["tokens"]["turn"] for one in parted} == {1}
    shown = autotrace(both, *words, "--run", str(both.run))
    assert "leaves A in turn 1" in shown and "advantage" in shown
    calls = read_back(f"dev/{both.project}", all={"filter": {"trace_ids": _dashed(by_id[0])}})["all"]
    shapes: dict[str, set[str]] = {}
    for call in calls:
        turn = sum(other["op_name"] == call["op_name"] and other["trace_id"] == call["trace_id"]
                   and other["started_at"] < call["started_at"] for other in calls)  # fmt: skip
        keys = sorted((call["inputs"] or {}).keys()), sorted(call["output"]) if isinstance(call["output"], dict) else 0
        shapes.setdefault(f"{call['func_name']} {turn}", set()).add(str(keys))
        assert _longest(call["inputs"]) <= 32 >= _longest(call["output"]), "no long list of numbers"
    assert all(len(keys) == 1 for keys in shapes.values()), "the same keys in all of a group"
    record_property("told", f"{release}: {both.n} rollouts")


def _dashed(ids: Any) -> list[str]:
    return [f"{id[:8]}-{id[8:12]}-{id[12:16]}-{id[16:20]}-{id[20:]}" for id in ids]


def _longest(value: Any) -> int:
    if isinstance(value, dict):
        return max(map(_longest, value.values()), default=0)
    return max([len(value), *map(_longest, value)]) if isinstance(value, list) else 0


@pytest.mark.row("S11")
def test_the_key_is_in_no_byte_that_was_written(runs: Runs, weave_proxy: Proxy, record_property: Told) -> None:
    """Run folders, logs, both MLflow stores, W&B's store; not what W&B's own logger writes for itself."""
    spellings = [CANARY.encode(), quote(CANARY).encode(), *_in_base64(CANARY), CANARY.encode("utf-16-le")]
    top = next(iter(runs.values())).folder.parent.parent
    files = [path for path in top.rglob("*") if path.is_file() and not {WANDB_FOLDER, "model"} & set(path.parts)]
    assert {"mlflow.db", "server.db", "weave.db", "run.json", "state.db", "log", "shipper.log"} <= {
        path.name for path in files
    }
    assert any(REDACTED.encode() in path.read_bytes() for path in files if path.name == "weave.db")
    found = [(str(path), word) for path in files for word in spellings if word in path.read_bytes()]
    found = [place for place in found if not _the_programs_own(Path(place[0]))]
    assert found == []
    record_property("told", f"{len(files)} files")


def _in_base64(word: str) -> list[bytes]:
    """As it stands in base64 at any offset."""
    found = []
    for shift in range(3):
        whole = base64.b64encode(b"x" * shift + word.encode())
        found.append(whole[4 * (shift > 0) : -4])
    return found


def _the_programs_own(path: Path) -> bool:
    """What the program writes itself: its record of what the engine said, and veRL's dump."""
    return path.name == "out.json" or path.parent.name == "dump"


@pytest.mark.row("S9")
def test_the_sync_trainer_of_080_run_as_a_module_tells_what_it_trained_on(releases: None, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "autotrace.bootstrap.launch", "--backend", "jsonl", "--drain-timeout", "10"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    environ["PYTHONPATH"] = os.pathsep.join([str(RELEASES / "0.8.0"), str(ROOT)])
    program = [sys.executable, str(HERE / "sync_program.py")]
    done = subprocess.run([*command, *program], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "facts of the trainer: 2" in done.stdout
