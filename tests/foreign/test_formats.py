"""Each format opens from a file that its own project wrote (``makers``), as tables and as trajectories."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import autotrace
from autotrace.tables.errors import QueryError
from autotrace.trajectory.model import Trajectory

ROOT = Path(__file__).parents[2]
NEEDS = {
    "verl": "verl", "trl": "trl", "verifiers_legacy": "verifiers.utils.save_utils", "verifiers": "verifiers.v1",
    "inspect_logs": "inspect_ai", "harbor": "harbor.models.trajectories", "slime": "slime.utils.types",
    "miles": "miles.ray", "uni_agent": "uni_agent.framework",
    "otlp": "opentelemetry.exporter.otlp.proto.common", "mlflow_traces": "mlflow", "langfuse": "langfuse",
}  # fmt: skip
"""Maker -> the module without which what it wrote once is read."""
Made = Callable[[str], Path]


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folders: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("made") / name
            if installed(NEEDS[name]):
                words = [sys.executable, "-m", f"tests.foreign.makers.{name}", str(folders[name])]
                here = folders[name].parent  # no repository: Inspect records where it is
                path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
                done = subprocess.run(words, cwd=here, env={**os.environ, "PYTHONPATH": path}, capture_output=True)
                assert done.returncode == 0, done.stderr.decode()
            else:
                shutil.copytree(Path(__file__).parent / "files" / name, folders[name])
        return folders[name]

    return make


def listed(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of the trajectories, in the order of their starts."""
    table = autotrace.open(path).sql(f"SELECT {', '.join(columns)} FROM trajectories ORDER BY start_ns")
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def read(path: Path) -> list[Trajectory]:
    (run,) = autotrace.open(path)
    return sorted(run.trajectories(), key=lambda one: one.root.start_ns)


def said(one: Trajectory) -> list[str]:
    """Who spoke, turn by turn, tools by their names."""
    return [span.title or span.role for span in one.spans[1:]]


@pytest.mark.long  # test_metrics.py reads a row of such a dump
def test_the_dumps_of_verl(made: Made) -> None:
    folder = made("verl") / "first"
    rows = listed(folder, "step", "rollout_n", "llm_calls", "tool_calls", "reward", "ground_truth", "findings")
    assert [row[0] for row in rows] == [1] * 4 + [2] * 4 + [10] * 4
    assert [row[1:5] for row in rows[:3]] == [(0, 2, 1, 1.0), (1, 2, 1, 0.0), (0, 1, 0, 1.0)]
    assert [row[5] for row in rows[:4]] == ["3", "3", "4", "4"]
    assert [row[6] for row in rows[:4]] == [[], ["AT-TOOL-ERROR-TEXT"], [], ["AT-REWARD-NAN"]]
    (uids,) = {tuple(row[0] for row in listed(folder, "uid")[at : at + 4]) for at in (0, 4, 8)}
    assert uids[0] == uids[1] != uids[2] == uids[3]  # of one prompt
    first = read(folder)[0]
    assert said(first) == ["turn 1", "add", "turn 2"]
    assert [message["role"] for message in first.llm_spans[1].messages or ()] == [
        "system", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert first.facts["reward_extra_info"] == {"acc": True} and first.attributes["request_id"] == "r0"


@pytest.mark.long  # test_metrics.py reads a row of such a dump
def test_the_dumps_of_verls_second_trainer(made: Made) -> None:
    rows = listed(made("verl") / "second", "uid", "rollout_n", "validate", "step")
    assert rows[:4] == [("a_b", 0, None, 1), ("a_b", 1, None, 1), ("c", 0, None, 1), ("c", 1, None, 1)]
    assert [row[2] for row in rows[4:]] == [True] * 4


def test_one_file_of_a_folder_is_a_run_of_its_own(made: Made) -> None:
    (run,) = autotrace.open(made("verl") / "first" / "10.jsonl")
    assert run.steps() == [10]


def test_the_completions_of_trl(made: Made) -> None:
    folder = made("trl")
    assert listed(folder, "step", "rollout_n", "llm_calls", "tool_calls", "reward", "advantage") == [
        (step, *row) for step in (1, 2) for row in [(0, 2, 1, 1.5, 1.0), (1, 1, 0, 0.0, -1.0)]
    ]
    first, second = read(folder)[:2]
    assert first.facts["reward_extra_info"] == {"correct": 1.0, "format": 0.5}
    assert said(first) == ["turn 1", "add", "turn 2"] and first.spans[2].output == "3"
    assert first.spans[2].inputs == {"a": 1, "b": 2} and second.llm_spans[0].response_text == "It is 4."


def test_the_results_of_verifiers(made: Made) -> None:
    rows = listed(made("verifiers_legacy"), "sample_index", "rollout_n", "reward", "status", "error", "findings")
    assert rows == [
        ("0", 0, 0.0, "OK", None, []), ("0", 1, 1.0, "OK", None, []),
        ("1", 0, 0.0, "ERROR", "ToolCallError: no answer", ["AT-ROLLOUT-FAILED"]),
        ("1", 1, 1.0, "OK", None, ["AT-TRUNCATED"]),
    ]  # fmt: skip


def test_the_traces_of_verifiers(made: Made) -> None:
    folder = made("verifiers") / "evaluation"
    for one in read(folder):
        assert said(one) == ["turn 1", "add", "turn 2"] and one.facts["reward"] in (0.1, 1.1)
        first, last = one.llm_spans
        prompt, answer = first.prompt_ids or [], first.response_ids or []
        assert (last.prompt_ids or [])[: len(prompt) + len(answer)] == prompt + answer
        assert (last.prompt_base, last.prompt_tokens) == (first.span_id, len(last.prompt_ids or ()))
        assert len(last.logprobs or ()) == last.response_tokens and last.attributes["finish_reason"] == "stop"
        assert one.root.duration_ns and all(span.duration_ns for span in one.llm_spans)


def test_the_rollouts_of_prime_rl_stand_there_once(made: Made) -> None:
    folder = made("verifiers") / "training"
    rows = listed(folder, "step", "uid", "rollout_n", "validate", "advantage", "min_global_steps", "max_global_steps")
    assert sorted(rows) == [(3, "group", 0, False, 0.5, 2, 3), (3, "group", 1, False, 0.5, 2, 3)]


def test_the_logs_of_inspect(made: Made) -> None:
    for form in ("eval", "json"):
        (path,) = made("inspect_logs").rglob(f"*.{form}")
        rows = listed(path, "sample_index", "rollout_n", "data_source", "reward", "duration_s > 0", "findings")
        assert rows == [
            ("a", 0, "sums", 1.0, True, []), ("2", 0, "sums", 1.0, True, ["AT-TOOL-RAISES"]),
            ("a", 1, "sums", 0.0, True, ["AT-TRUNCATED"]), ("2", 1, "sums", 0.0, True, []),
        ]  # fmt: skip
        one = read(path)[1]
        assert said(one) == ["turn 1", "add", "turn 2"] and one.spans[2].error_text is not None


def test_atif(made: Made) -> None:
    (one,) = read(made("harbor"))
    assert said(one) == ["turn 1", "add", "turn 2"] and one.attributes["agent_name"] == "adder"
    assert [(span.prompt_tokens, span.prompt_keep, span.response_ids) for span in one.llm_spans] == [
        (3, 0, [4, 5]), (7, 5, [8, 9, 10]),
    ]  # fmt: skip
    assert one.root.duration_ns == 4 * 10**9 and one.llm_spans[0].messages[-1]["reasoning_content"] == "I ask."  # type: ignore[index]


def test_the_debug_rollouts_of_slime(made: Made) -> None:
    folder = made("slime")
    rows = listed(folder, "step", "validate", "uid", "sample_index", "rollout_n", "reward", "ground_truth", "findings")
    assert rows == [
        (5, validate, "0", str(number), number, float(number), "3", [] if number else ["AT-TRUNCATED"])
        for validate in (None, True) for number in (0, 1)
    ]  # fmt: skip
    one = read(folder)[0]
    assert said(one) == ["turn 1", "add", "turn 2"] and one.spans[2].output == "3"
    assert [(span.prompt_tokens, span.response_tokens, span.logprobs) for span in one.llm_spans] == [
        (10, 20, [-0.5] * 20), (42, 10, [-0.25] * 10),
    ]  # fmt: skip
    assert one.llm_spans[1].prompt_ids == [*range(10, 20), *range(100, 120), *range(200, 212)]


def test_the_debug_rollouts_of_miles(made: Made) -> None:
    folder = made("miles")
    (one,) = read(folder / "plain")
    assert said(one) == ["turn 1"] and one.facts["reward"] == 1.0
    assert (one.llm_spans[0].response_ids, one.llm_spans[0].response_text) == ([3, 4, 5], "It is 3.")
    assert [row[:2] for row in listed(folder / "trajectories", "sample_index", "llm_calls")] == [("7", 1), ("7", 1)]
    with pytest.raises(QueryError, match=r"2\.pt cannot be read: it has objects that only code could make"):
        read(folder / "experts")


def test_the_token_dumps_of_uni_agent(made: Made) -> None:
    rows = listed(made("uni_agent"), "step", "sample_index", "rollout_n", "reward", "llm_calls", "response_tokens")
    assert rows == [(4, "3", 1, 1.0, 2, 30), (4, "3", 1, 1.0, 1, 3)]
    first = read(made("uni_agent"))[0]
    assert first.llm_spans[1].prompt_ids == [1, 2, 3, *range(10, 30), *range(50, 56)]
    assert first.attributes["finished"] is True and first.root.response_mask == [1] * 20 + [0] * 6 + [1] * 10


def test_rows_of_messages(tmp_path: Path) -> None:
    """Written as OpenAI documents them: nobody's package writes such files."""
    rows = """
{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}], "reward": 1, "step": 2}
{"prompt": "2+2?", "completion": "4", "score": 0.5}
{"messages": [{"role": "user", "content": [{"type": "text", "text": "Look"}]}], "id": "x"}
{"something": "else"}
"""
    (tmp_path / "rows.jsonl").write_text(rows.strip())
    assert listed(tmp_path, "llm_calls", "reward", "step", "sample_index", "prompt") == [
        (1, 1.0, 2, None, "Hi"), (1, 0.5, None, None, "2+2?"), (0, None, None, "x", "user: Look"),
    ]  # fmt: skip


def test_formats_beside_each_other_are_runs_of_their_own(made: Made, tmp_path: Path) -> None:
    for name in ("slime", "harbor", "uni_agent"):
        shutil.copytree(made(name), tmp_path / name)
    shutil.copy(made("verl") / "first" / "1.jsonl", tmp_path)
    runs = autotrace.open(tmp_path)
    assert [len(list(run.trajectories())) for run in runs] == [4, 1, 4, 2]


@pytest.mark.parametrize("name", ["otlp", "mlflow_traces", "langfuse"])
def test_the_exported_spans(made: Made, name: str) -> None:
    for file in sorted(made(name).iterdir()):
        one = read(file)[0]
        assert said(one) == ["turn 1", "add", "turn 2"], file
        root, first, tool, last = one.spans
        assert tool.inputs == {"a": 1, "b": 2} and tool.output in ("3", 3) and last.response_text == "It is 3."
        assert first.messages and [message["role"] for message in first.messages][-2:] == ["user", "assistant"]
        assert (last.prompt_tokens, last.response_tokens, last.name) == (9, 2, "m")
        assert root.start_ns <= first.start_ns < tool.start_ns < last.start_ns
        assert all(span.end_ns and span.parent_id == root.span_id for span in one.spans[1:]) and root.end_ns
        if file.name != "observations.jsonl":
            assert one.facts["reward"] == 1.0 and one.attributes["step"] == 3
            assert one.attributes["session_id"] == "s1"


def test_a_failed_call_and_spans_without_a_model(made: Made) -> None:
    one, failed = read(made("otlp"))
    assert one.llm_spans[0].messages[-1]["reasoning_content"] == "Hm."  # type: ignore[index]
    assert one.llm_spans[0].messages[0] == {"role": "system", "content": "Be brief."}  # type: ignore[index]
    (turn,) = failed.llm_spans
    assert turn.error == ("error", "no answer", "") and turn.messages[0]["content"] == "What is 2 plus 2?"  # type: ignore[index]
