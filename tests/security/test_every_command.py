"""Every command and every export format, on each place of ``strangers``: a new command, format or kind of place is
tried without a line here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotrace.run import layout
from tests.security import reading, strangers

NAME = re.compile(r"[\w.-]+")
"""What a command calls a file that it makes."""


@pytest.mark.parametrize(("name", "part"), reading.parts(strangers.PLACES, [*strangers.PLACES][::5]))
def test_no_id_leads_out_of_a_folder_or_into_the_page(name: str, part: tuple[int, bool], tmp_path: Path) -> None:
    theirs, mine, here = (tmp_path / folder for folder in ("theirs", "mine", "here"))
    for folder in (theirs, mine, here):
        folder.mkdir()
    (mine / "secret.json").write_text("{}")
    place = strangers.PLACES[name](theirs)
    bucket = theirs / "lake" if place == strangers.BUCKET else None
    was = reading.files_of(mine), reading.files_of(theirs)
    every = reading.commands(place, ships=False, others="_trace_id_" in name or "foreign" in name or "numbers" in name)
    if name != next(iter(strangers.PLACES)):  # it is all the same to these where they are called
        every = [words for words in every if words[0] not in ("demo", "help", "skill")]
    every += reading.writing(reading.commands(place, others=True))[1]
    every, writes = reading.writing(reading.part_of(every, part))
    answers = reading.run(every, here, mine, bucket=bucket, AUTOTRACE_RUN_DIR=str(place))
    assert answers and not reading.faults(answers)
    assert (reading.files_of(mine), reading.files_of(theirs)) == was
    made = [path.relative_to(here) for path in here.rglob("*")]
    assert all(NAME.fullmatch(word) for path in made for word in path.parts), made
    if (here / "page.html").exists():
        assert "<img src=x" not in (here / "page.html").read_text()
    changes = place.is_dir() and (place / layout.RUN_JSON).exists() if isinstance(place, Path) else False
    answers += reading.run(writes, here, mine, bucket=bucket)
    assert not reading.faults(answers)
    assert reading.files_of(mine) == was[0] and (changes or reading.files_of(theirs) == was[1])
    if ("foreign" in name or "numbers" in name) and any("atif" in words for words in every):
        (exported,) = (one for one in answers if one["words"][:1] == ["export"] and "atif" in one["words"])
        assert not exported["code"] and list((here / "exported").rglob("*.json")), exported
    assert not any("this is a bug" in one["out"] + one["err"] for one in answers)
