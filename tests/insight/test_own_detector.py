"""A detector of another package: the one of ``docs/findings.md``, installed, and those that do what they should not."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from autotrace.insight import registry
from autotrace.insight.examine import examine
from autotrace.insight.finding import Code
from autotrace.insight.profile import MAX_MARKS, Mark, decode, encode
from autotrace.insight.settings import TrainerSettings
from tests.insight import made
from tests.ship.spools import PROMPT, Process, attributes, new_run
from tests.waiting import DEADLINE

PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text()
RUDE = 4711


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With the package of the page on the path, as ``pip install --target`` puts it there."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("packages")
    for name, kind in {"politeness.py": "python", "pyproject.toml": "toml"}.items():
        (block,) = re.findall(rf"```{kind}\n(# {re.escape(name)}\n.*?)```", PAGE, re.S)
        (source / name).write_text(block)
    uv = [sys.executable, "-m", "uv", "--quiet", "pip", "install", "--python", sys.executable, "--target", str(target)]
    subprocess.run([*uv, str(source)], check=True, timeout=DEADLINE)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTRACE")}
    path = os.pathsep.join([str(target), kept.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**kept, "PYTHONPATH": path}


def autotrace(environ: dict[str, str], *words: str) -> str:
    """What a command says that succeeds."""
    command = [sys.executable, "-m", "autotrace.cli.main", *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def spoken(process: Process, *answers: list[int]) -> str:
    """A trajectory of one turn an answer."""
    trace, prompt = os.urandom(16), PROMPT
    root = process.open(trace, "trajectory", attributes=attributes())
    for answer in answers:
        call = process.open(trace, "llm", root, prompt)
        process.close(trace, call, answer)
        prompt = prompt + answer
    process.close(trace, root)
    return trace.hex()


def test_the_one_of_the_page_is_found_by_the_shipper_and_shown(environ: dict[str, str], tmp_path: Path) -> None:
    run = new_run(tmp_path, backends=["jsonl"])
    process = Process(run)
    rude = spoken(process, [5, 6], [7, RUDE, 8])
    spoken(process, [5, 6], [7, 8])
    process.exit()
    autotrace(environ, "ship", str(run))
    lines = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    assert [line["trace_id"] for line in lines if "MY-RUDE" in line.get("findings", [])] == [rude]
    listed = autotrace(environ, "ls", str(run), "--where", "finding = 'MY-RUDE'", "--json")
    assert [json.loads(line)["trace_id"] for line in listed.splitlines()] == [rude]
    (found,) = map(json.loads, autotrace(environ, "diagnose", str(run), "--code", "my-rude", "--json").splitlines())
    assert (found["title"], found["trajectories"], found["of"]) == ("the model is rude", 1, 2)
    (place,) = found["places"]
    assert (place["trace_id"], place["turn"], place["token"]) == (rude, 2, 1)


def test_it_looks_at_what_was_recorded_before_it_was_installed(environ: dict[str, str], tmp_path: Path) -> None:
    run = new_run(tmp_path, backends=["jsonl"])
    process = Process(run)
    rude = spoken(process, [RUDE])
    process.exit()
    without = {name: value for name, value in environ.items() if name != "PYTHONPATH"}
    autotrace(without, "ship", str(run))
    assert "MY-RUDE" not in autotrace(without, "diagnose", str(run))
    said = autotrace(environ, "diagnose", str(run))
    assert "MY-RUDE" in said and rude[:12] in said


CODE = Code("MY-OWN", "", "", "", "", "", 0.5)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Make ``find`` the one detector of another package."""
    caches = (registry.own, registry.codes, registry.stamp)

    def installed(find: Callable[[Any], Any], codes: Any = (CODE,)) -> None:
        class Point:
            name = "mine"
            load = staticmethod(lambda: find)

        find.codes = codes  # type: ignore[attr-defined]
        monkeypatch.setattr(registry, "entry_points", lambda group: [Point])
        for cache in caches:
            cache.cache_clear()

    yield installed
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize(
    "bad", ["no mark", Mark(7), Mark("MY-OWN", "2"), Mark("MY-OWN", 1, 2.5), Mark("MY-OWN", note=None)],  # type: ignore[arg-type]
    ids=["no mark", "code", "turn", "token", "note"],
)  # fmt: skip
def test_what_it_cannot_say_loses_nothing_of_what_else_is_found(
    bad: Any, install: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    registry._failed.clear()
    install(lambda one: iter([Mark("MY-OWN", 1), bad, Mark("MY-OWN", 3)]))
    root = made.span("trajectory", None)
    cut = made.llm(root.span_id, 0, [1], [2, 3], attributes={"finish_reason": "length"})
    profile = decode(encode(examine(made.trajectory(cut, root=root), TrainerSettings())))
    assert profile is not None and profile.turns
    assert [(mark.code, mark.turn) for mark in profile.marks] == [("AT-TRUNCATED", 1), ("MY-OWN", 1)]
    assert "the detector mine failed" in caplog.text


def test_its_numbers_may_be_numpys_and_its_words_no_text(install: Callable[..., None]) -> None:
    install(lambda one: [Mark("MY-OWN", numpy.int64(2), numpy.int32(5), "half a \ud800", "\udfff")])
    profile = decode(encode(examine(made.trajectory(), TrainerSettings())))
    assert profile is not None
    assert profile.marks == [Mark("MY-OWN", 2, 5, "half a ?", "?")]


def test_one_that_never_ends_ends(install: Callable[..., None]) -> None:
    install(lambda one: (Mark("MY-OWN", turn) for turn in itertools.count(1)))
    assert len(examine(made.trajectory(), TrainerSettings()).marks) == MAX_MARKS


@pytest.mark.parametrize("codes", [("MY-OWN",), CODE, None], ids=["texts", "no tuple", "none"])
def test_one_without_codes_is_not_used_and_says_why(codes: Any, install: Callable[..., None]) -> None:
    install(lambda one: [Mark("MY-OWN")], codes)
    (own,) = registry.own()
    assert own.problem.startswith("TypeError: ") and own.find is None
    assert "MY-OWN" not in registry.codes() and "AT-TRUNCATED" in registry.codes()
    assert examine(made.trajectory(), TrainerSettings()).marks == []
