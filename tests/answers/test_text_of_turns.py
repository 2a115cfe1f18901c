"""Token ids without a tokenizer hide nothing: what was recorded beside them is the text, for every reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autotrace.cli.main import main
from autotrace.export.conversation import conversation
from autotrace.ship.readers import of_run
from autotrace.sinks.mlflow.spans import encode as as_mlflow
from autotrace.sinks.weave.calls import WeaveCalls
from autotrace.tables.conditions import equals
from autotrace.trajectory.model import Trajectory
from autotrace.trajectory.span_text import answered_words, asked_words
from autotrace.view.detail import conversation as page
from tests.answers.talking import ANSWERS, SURE, ids
from tests.places import Place

HERE = Path(__file__).parent
SPOKEN = ("messages", "text", "outer")
Call = Callable[..., Result]


@pytest.fixture(scope="module")
def run(installation: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, traced."""
    place = Place(installation, tmp_path_factory.mktemp("talking"))
    for name in ("talking.py", "talking.yaml"):
        place.write(name, (HERE / name).read_text())
    ran = place.record(["python", "talking.py"], ["--backend", "parquet", "--spec", "talking.yaml"])
    assert ran.returncode == 0, ran.stderr
    (folder,) = place.runs()
    return folder


@pytest.fixture
def call(run: Path) -> Call:
    """``call("ls", ...)``: the result of ``autotrace ls ...``."""
    return lambda *words: CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False)


def of(run: Path, way: str) -> list[Trajectory]:
    """Its two rollouts."""
    reader = of_run(run)
    rows = [row for row in reader.select(equals(data_source=way), roots=True) if row.role == "trajectory"]
    return [reader.load(row.trace_id) for row in rows]


@pytest.mark.parametrize("way", SPOKEN)
def test_a_phrase_is_found_where_it_was_recorded(way: str, run: Path, call: Call) -> None:
    for phrase, places in ((SURE, 2), ("giraffe", 1), ("walrus", 1)):
        found = call("grep", phrase, run, "--where", f"data_source = '{way}'", "--json")
        lines = [json.loads(line) for line in found.stdout.splitlines()]
        assert len(lines) == places and {line["turn"] for line in lines} == {2}


def test_what_was_not_searched_is_said(run: Path, call: Call) -> None:
    found = call("grep", "giraffe", run, "--where", "data_source = 'numbers'")
    assert found.exit_code == 1 and "2 trajectories have token ids that were not decoded" in found.stderr
    assert "autotrace ship RUN --tokenizer" in found.stderr
    assert "not decoded" not in call("grep", "giraffe", run, "--where", "data_source = 'text'").stderr


@pytest.mark.parametrize("way", SPOKEN)
def test_a_turn_is_shown_with_its_prompt_and_its_answer(way: str, run: Path, call: Call) -> None:
    one, other = of(run, way)
    shown = call("show", one.trace_id, run, "--full").stdout
    assert SURE in shown and ANSWERS[0] in shown and "token ids" not in shown
    items = list(page(other))
    assert [item["text"] for item in items if item["role"] == "assistant"] == ["I look.", ANSWERS[1]]
    assert any(SURE in item["text"] for item in items if item["role"] != "assistant")
    assert not any("ids" in item for item in items)


def test_ids_that_nothing_says_in_words_are_ids(run: Path, call: Call) -> None:
    one, _ = of(run, "numbers")
    shown = call("show", one.trace_id, run, "--full").stdout
    answer = " ".join(map(str, ids(ANSWERS[0])))
    assert f"{len(ANSWERS[0])} token ids: {answer}" in shown and "temperature" not in shown.partition("turn 1")[0]
    assert f"token ids: {' '.join(map(str, ids('What')))}" in shown, "the prompt, too"
    assert f"{len(ANSWERS[0])} token ids: {answer}" in [item.get("ids") for item in page(one)]
    assert "token ids" not in " ".join(item["text"] for item in page(one)), "nobody searches for numbers"


@pytest.mark.parametrize("way", [*SPOKEN, "numbers"])
def test_where_rollouts_part(way: str, run: Path, call: Call) -> None:
    one, other = of(run, way)
    done = call("compare", one.trace_id, other.trace_id, "--run", run)
    at = len("I see a ")
    sides = [text[at:] if way != "numbers" else " ".join(map(str, ids(text[at:]))) for text in ANSWERS]
    words = " ".join(done.stdout.split())
    assert f"differs from A in turn 2, token {at} of the answer: {sides[0]} | {sides[1]}" in words


@pytest.mark.parametrize("way", SPOKEN)
def test_rows_for_training(way: str, run: Path, call: Call, tmp_path: Path) -> None:
    out = tmp_path / "train.jsonl"
    assert call("export", run, "--format", "sft", "--where", f"data_source = '{way}'", "--out", out).exit_code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["messages"][-1] for row in rows] == [{"role": "assistant", "content": text} for text in ANSWERS]
    assert all(SURE in row["messages"][-2]["content"] and row["messages"][-2]["role"] == "user" for row in rows)
    assert conversation(of(run, "numbers")[0]) != ""
    left_out = call("export", run, "--format", "sft", "--where", "data_source = 'numbers'", "--out", tmp_path / "none")
    assert "2 trajectories left out: their token ids could not be decoded" in left_out.stderr


@pytest.mark.parametrize("way", SPOKEN)
def test_backends_and_tables_have_the_same_text(way: str, run: Path, call: Call) -> None:
    said = [[(asked_words(span), answered_words(span)) for span in one.llm_spans] for one in of(run, way)]
    assert [turns[1][1] for turns in said] == list(ANSWERS)
    for one, answer in zip(of(run, way), ANSWERS, strict=True):
        for text in (str(as_mlflow(one)), json.dumps([WeaveCalls(one, "t/p", None).of(span) for span in one.spans])):
            assert answer in text and SURE in text
    query = "SELECT t.prompt_text, t.response_text FROM turns t JOIN trajectories USING (trace_id) WHERE data_source = "
    rows = call("sql", f"{query}'{way}'", run, "--json").stdout.splitlines()
    assert {tuple(json.loads(row).values()) for row in rows} == {turn for turns in said for turn in turns}
    kept = of_run(run.parent / "parquet")
    assert kept is not None
    for one in of(run, way):
        again = kept.load(one.trace_id)
        assert [(asked_words(span), answered_words(span)) for span in again.llm_spans] == [
            (asked_words(span), answered_words(span)) for span in one.llm_spans
        ]
        assert all(span.response_text is None for span in again.llm_spans), "nothing was decoded"
