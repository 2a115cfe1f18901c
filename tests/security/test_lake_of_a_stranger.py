"""Links in a lake to the folders of projects and of runs are not followed below the path that a person typed."""

from __future__ import annotations

from pathlib import Path

import pytest

import autotrace
from autotrace.tables import commits
from tests.security import hostile, strangers


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("kind", ["run", "tables"])
def test_a_link_to_a_folder_is_not_followed(kind: str, depth: int, tmp_path: Path) -> None:
    mine, lake = tmp_path / "mine" / "project", tmp_path / "lake"
    mine.mkdir(parents=True)
    lake.mkdir()
    if kind == "run":
        run, process = hostile.honest(mine)
        process.exit()
    else:
        (lines,) = strangers.tables_with(tmp_path / "made", "run_id", "run").rglob(commits.FILE)
        run = lines.parent.parent.rename(mine / "run")
    if depth == 0:
        (lake / "project").symlink_to(mine)
    else:
        (lake / "project").mkdir()
        (lake / "project" / "run").symlink_to(run)
    with pytest.raises(FileNotFoundError):
        autotrace.open(lake)
    assert len(autotrace.open(mine)) == 1
