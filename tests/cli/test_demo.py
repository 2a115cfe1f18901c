"""``autotrace demo``: the recorded run, read by every command; the faults that are in it are found."""

from __future__ import annotations

import contextlib
import importlib.util
import shlex
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from autotrace.cli.main import main
from autotrace.cli.open import _copied
from autotrace.ship.readers import of_run

PLANTED = {
    "AT-RETOKENIZED", "AT-TOOL-RAISES", "AT-NO-SIGNAL-ERRORS", "AT-TRUNCATED-CONTEXT", "AT-STRAGGLER", "AT-MISMATCH",
}  # fmt: skip
"""What ``examples/recorded_run/program.py`` says of itself."""


def run(*words: str | Path) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run's folder, and what the command said."""
    runs = tmp_path_factory.mktemp("demo") / "with space"
    said = run("demo", "--run-dir", runs)
    (folder,) = runs.iterdir()
    return folder, said


def test_it_prints_what_was_planted_as_diagnose_does(demo: tuple[Path, str]) -> None:
    folder, said = demo
    assert "384 trajectories in 3 steps" in said and "convert: KeyError: CHF" in said
    assert {code for code in PLANTED if code in said} == PLANTED
    assert run("diagnose", folder) in said


def test_the_commands_that_it_names_work(demo: tuple[Path, str]) -> None:
    folder, said = demo
    commands = [shlex.split(line) for line in said.partition("\nNext:\n")[2].splitlines()]
    assert len(commands) >= 4 and all(words[0] == "autotrace" and str(folder) in words for words in commands)
    for words in commands:
        assert words[1] == "view" or run(*words[1:])


def test_the_copy_is_private_and_made_once(demo: tuple[Path, str]) -> None:
    folder, _ = demo
    made = [folder, *folder.rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700, 0o600}
    (folder / "mine").touch()
    run("demo", "--run-dir", folder.parent)
    assert list(folder.parent.iterdir()) == [folder] and (folder / "mine").exists()


def test_several_at_once_and_what_is_there_already(demo: tuple[Path, str], tmp_path: Path) -> None:
    folder = demo[0]
    with ThreadPoolExecutor(4) as at_once:
        made = list(at_once.map(lambda _: _copied(folder, tmp_path / "runs"), range(4)))
    assert set(made) == {tmp_path / "runs" / folder.name} and len(list((tmp_path / "runs").iterdir())) == 1
    half, linked = tmp_path / "half", tmp_path / "linked"
    (half / folder.name).mkdir(parents=True)
    linked.mkdir()
    (linked / folder.name).symlink_to(folder)
    for runs in (half, linked):
        done = CliRunner().invoke(main, ["demo", "--run-dir", str(runs)])
        assert done.exit_code == 2 and "is not the recorded run; choose another --run-dir" in done.output


def test_every_trajectory_has_what_the_token_view_colours(demo: tuple[Path, str]) -> None:
    folder, _ = demo
    sql = "SELECT count(*) FROM trajectories WHERE is_trajectory AND (advantage IS NULL OR entropy IS NULL"
    assert '"n": 0' in run(
        "sql", "--json", sql.replace("count(*)", "count(*) AS n") + " OR mismatch_mean IS NULL)", folder
    )


def test_its_tokens_have_texts_where_no_tokenizer_library_is_installed(
    demo: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tokenizers" else found(name))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with contextlib.closing(of_run(demo[0])) as reader:
        (row,) = reader.select(limit=1)
        first = reader.load(row.trace_id).llm_spans[0]
        said = reader.run.decode(first.response_ids or [])
        assert said and said == first.response_text


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, ["demo", "--run-dir", str(tmp_path / "file" / "runs")])
    assert done.exit_code == 2 and "the recorded run cannot be copied" in done.output
