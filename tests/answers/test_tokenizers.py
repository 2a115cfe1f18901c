"""A tokenizer that somebody names: in the list, as an option, afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autotrace.cli.main import main
from autotrace.config.written import located
from autotrace.ship.readers import of_run
from autotrace.tables.conditions import equals
from autotrace.trajectory.model import Trajectory
from autotrace.view.tokens import packed
from tests.answers.letters import saved
from tests.answers.talking import ANSWERS, SURE
from tests.places import Place
from tests.view.conftest import unpacked

PROGRAM = (Path(__file__).parent / "talking.py").read_text()
SPEC = """
- target: talking.solve
  role: trajectory
  attributes: {sample_index: task, data_source: way, rollout_n: attempt}
- target: talking.Numbers.ask
  role: llm
  capture: {include: [temperature]}
  tokens: {prompt: prompt_ids, response: result}
"""
OTHER = """
- target: talking.Inner.generate
  role: llm
  capture: {include: [said]}
  tokens: {prompt: prompt_ids, response: result}
"""


@pytest.fixture
def call() -> Callable[..., Result]:
    """``call("ls", ...)``: the result of ``autotrace ls ...``."""
    return lambda *words: CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False)


def traced(place: Place, spec: str, *options: str) -> Path:
    """The run folder of the program."""
    place.write("talking.py", PROGRAM)
    place.write("lists/list.yaml", spec)
    ran = place.record(["python", "talking.py"], ["--spec", "lists/list.yaml", *options])
    assert ran.returncode == 0, ran.stderr
    (run,) = place.runs()
    return run


def of(run: Path, way: str) -> Trajectory:
    """Its first rollout."""
    reader = of_run(run)
    (row, _) = (row for row in reader.select(equals(data_source=way), roots=True) if row.role == "trajectory")
    return reader.load(row.trace_id)


def texts(run: Path, way: str = "numbers") -> list[tuple[str | None, str | None]]:
    """Of its turns."""
    return [(span.new_prompt_text, span.response_text) for span in of(run, way).llm_spans]


SAID = [("What do you see in picture 3?", "I look."), (SURE, ANSWERS[0])]


@pytest.mark.parametrize("named", ["option", "list"])
def test_it_decodes_for_backends_and_readers(named: str, place: Place, call: Callable[..., Result]) -> None:
    saved(place.cwd / "model")
    if named == "option":
        run = traced(place, SPEC, "--tokenizer", "model")
    else:  # a folder is found from the list's own
        run = traced(place, f"{SPEC.rstrip()}\n  tokenizer: ../model\n")
    shutil.rmtree(place.cwd / "model")
    assert texts(run) == SAID, "the run folder keeps a copy"
    lines = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    assert {span.get("response_text") for line in lines for span in line["spans"] if span["role"] == "llm"} == {
        "I look.", *ANSWERS
    }  # fmt: skip
    assert call("grep", "giraffe", run, "--json").stdout.count("\n") == 1


def test_it_is_named_afterwards(place: Place, call: Callable[..., Result]) -> None:
    run = traced(place, SPEC)
    assert texts(run) == [(None, None)] * 2
    model = saved(place.cwd / "model")
    assert call("ship", run, "--tokenizer", model).exit_code == 0
    assert texts(run) == SAID
    assert f"{model}  (option --tokenizer of autotrace ship)" in " ".join(call("status", run).stdout.split("\n"))


def test_each_list_entry_has_its_own(place: Place) -> None:
    saved(place.cwd / "model"), saved(place.cwd / "judge", 1)
    spec = f"{SPEC.rstrip()}\n  tokenizer: ../model\n{OTHER.rstrip()}\n  tokenizer: ../judge\n"
    run = traced(place, spec)
    assert texts(run) == SAID
    shifted = [tuple("".join(chr(ord(letter) + 1) for letter in text or "") for text in turn) for turn in SAID]
    assert texts(run, "outer") == shifted
    reader = of_run(run)
    for way, answer in (("numbers", SAID[1][1]), ("outer", shifted[1][1])):
        _, arrays = unpacked(packed(of(run, way), reader.run.decode))
        assert bytes(arrays["text"]).decode().endswith(answer), "token by token, too"


def test_what_cannot_be_is_an_error_with_its_place(place: Place, call: Callable[..., Result]) -> None:
    (place.cwd / "empty").mkdir()
    place.write("list.yaml", f"{SPEC.rstrip()}\n  tokenizer: ./modle\n")
    checked = place.cli("check", "list.yaml")
    words = f"list.yaml:9:14: `tokenizer: ./modle`: there is no folder {place.cwd / 'modle'}; name a folder, or a"
    assert words in checked.stdout + checked.stderr
    for name, problem in (("./empty", "holds no tokenizer"), ("list.yaml", "is a file"), ("a b", "there is no folder")):
        code, said = place.refusal(["true"], ["--tokenizer", name])
        assert code == 2 and problem in said and "option --tokenizer: " in said
    assert place.runs() == []


def test_a_name_on_the_hub_stays_as_it_is(tmp_path: Path) -> None:
    assert located("Qwen/Qwen3-8B", str(tmp_path)) == "Qwen/Qwen3-8B"
    assert located("gpt2", str(tmp_path)) == "gpt2"
    folder = saved(tmp_path / "gpt2")
    assert located("gpt2", str(tmp_path)) == str(folder), "a folder is nearer"
