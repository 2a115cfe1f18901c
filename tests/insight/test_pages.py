"""The pages of findings say what the codes say; another package's detector is found, and may fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from autotrace.insight import registry
from autotrace.insight.examine import examine
from autotrace.insight.finding import Code
from autotrace.insight.needs import NEEDS, checked, needs
from autotrace.insight.profile import VERSION, Mark, decode, encode
from autotrace.insight.settings import TrainerSettings
from autotrace.trajectory.model import Trajectory
from tests.insight.made import llm, span, trajectory

DOCS = Path(__file__).parents[2] / "docs"


def test_each_finding_has_its_page_and_there_are_no_others() -> None:
    assert {path.stem for path in (DOCS / "findings").glob("*.md")} == registry.codes().keys()


def test_each_page_says_where_the_finding_is_and_from_which_share_on_it_counts() -> None:
    for code in registry.codes().values():
        text = (DOCS / "findings" / f"{code.code}.md").read_text()
        assert text.startswith(f"# {code.code}\n") and f"autotrace diagnose --code {code.code}\n" in text
        assert f"`autotrace/insight/families/{code.family}.py`" in text, code.code
        reported = "The finding is reported if at least "
        assert (reported in text) == bool(code.share) and (not code.share or f"{reported}{code.share:.0%} of" in text)


def test_codes_are_told_apart_and_their_words_are_sentences() -> None:
    for code in registry.codes().values():
        assert re.fullmatch(r"AT(-[A-Z_]+)+", code.code)
        assert all(words.endswith(".") for words in (code.what, code.why, code.remedy, code.normal)), code.code
        assert not code.title.endswith(".")
        assert 0 < code.weight <= 1


def test_the_data_that_a_page_names_is_known() -> None:
    known = {name.lower() for name in NEEDS}
    for code in registry.codes().values():
        assert known.issuperset(code.needs) or code.needs in (("any trajectory",), ("",)), code.code
    assert needs(registry.codes()["AT-MASK-EMPTY"]) == ["token ids", "the response and the mask"]


def test_a_detector_of_another_package_names_its_data() -> None:
    code = replace(own.codes[0], needs=("token ids",))  # type: ignore[attr-defined]
    assert checked({code.code: code}, ["rewards"]) == (0, {"token ids": 1})
    assert checked({code.code: code}, ["token ids"]) == (1, {})


def test_a_profile_is_the_same_after_it_was_stored() -> None:
    agent = span("agent", None)
    made = examine(trajectory(agent, llm(agent.span_id, 1, [1, 2], [3, 4])), TrainerSettings())
    assert decode(encode(made)) == made
    assert decode("{}") is decode('["old", 4711]') is None


def own(trajectory: Trajectory) -> Iterator[Mark]:
    yield Mark("MY-LONG", 1, 0, "n" * 1000)


def broken(trajectory: Trajectory) -> Iterator[Mark]:
    raise KeyError("oh")


own.codes = broken.codes = (Code("MY-LONG", "too long", "It is long.", "So.", "Less.", "None.", 0.1),)  # type: ignore[attr-defined]


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    points = [
        EntryPoint(name, f"tests.insight.test_pages:{name}", registry.GROUP) for name in ("own", "broken", "missing")
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    for cached in (registry.own, registry.codes, registry.stamp):
        cached.cache_clear()
    yield
    monkeypatch.undo()
    for cached in (registry.own, registry.codes, registry.stamp):
        cached.cache_clear()


def test_another_packages_detector_is_asked_and_one_that_fails_disturbs_nobody(others: None) -> None:
    agent = span("agent", None)
    profile = examine(trajectory(agent, llm(agent.span_id, 1, [1, 2], [])), TrainerSettings())
    assert [mark.code for mark in profile.marks] == ["AT-EMPTY-ANSWER", "MY-LONG"]
    assert len(profile.marks[1].note) < 300
    assert profile.stamp == registry.stamp() == f"{VERSION}+broken+own"
    assert "MY-LONG" in registry.codes()
    (missing,) = [detector for detector in registry.own() if detector.problem]
    assert missing.name == "missing"


@pytest.mark.parametrize("fault", ["fingerprint", "tree_of", "rendered_anew"])
def test_a_fault_in_what_is_kept_beside_the_marks_costs_no_mark(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise RuntimeError("a shape that nobody thought of")

    agent = span("agent", None)
    one = trajectory(agent, llm(agent.span_id, 1, [1, 2], [3] * 40), llm(agent.span_id, 2, [1, 2, *[4] * 40, 5], []))
    whole = examine(one, TrainerSettings()).marks
    assert {mark.code for mark in whole} == {"AT-RETOKENIZED", "AT-EMPTY-ANSWER"}
    monkeypatch.setattr(f"autotrace.insight.examine.{fault}", broken)
    profile = examine(one, TrainerSettings())
    assert profile.marks == whole
    assert profile.stamp == registry.stamp()
