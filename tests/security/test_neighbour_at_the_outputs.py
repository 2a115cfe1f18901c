"""Another user of this machine beside files that a person names in a folder in which everybody may write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotrace.export.format import Staging
from autotrace.run import files
from autotrace.run.info import RunInfo
from autotrace.sinks.backend import Destination
from autotrace.sinks.mlflow.sink import MlflowSink
from autotrace.sinks.parquet.backend import BACKEND as PARQUET
from autotrace.sinks.protocol import Refused
from autotrace.sinks.weave.http import _setting
from autotrace.tables.storage import LocalStorage, StorageError, check

HIS = 4321


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder such as /tmp."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def give(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``path`` the neighbour's. Root can; whoever else runs the test becomes somebody else."""
    if os.getuid() == 0:
        os.chown(path, HIS, HIS, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "getuid", lambda: HIS)


@pytest.mark.parametrize("kind", ["link", "pipe", "file"])
def test_no_export_goes_where_a_neighbour_leads(shared: Path, tmp_path: Path, kind: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    mine = tmp_path / "mine"
    mine.write_text("mine")
    out = shared / "out.jsonl"
    if kind == "link":
        out.symlink_to(mine)
    elif kind == "pipe":
        os.mkfifo(out)
    else:
        out.write_text("his")
    give(out, monkeypatch)
    with pytest.raises(PermissionError, match="another user made it"), Staging(str(shared)) as staging:
        staging.append("out.jsonl", b"secret")
    assert mine.read_text() == "mine"


def test_the_part_of_an_export_cannot_be_made_first(shared: Path) -> None:
    with Staging(str(shared)) as staging:
        part, again = staging.path("a.jsonl"), staging.path("b.jsonl")
        assert part.name[2:] != again.name[2:] and str(os.getpid()) not in part.name.split(".")
        staging.append("a.jsonl", b"a")
    assert (shared / "a.jsonl").read_bytes() == b"a"


def test_tables_are_not_written_into_a_folder_of_a_neighbours(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "rows"
    source.write_bytes(b"rows")
    LocalStorage(str(shared / "lake")).put("project/run/rows", source)
    assert (shared / "lake" / "project" / "run" / "rows").read_bytes() == b"rows"
    (shared / "his").mkdir()
    give(shared / "his", monkeypatch)
    with pytest.raises(StorageError, match="belongs to another user"):
        LocalStorage(str(shared / "his")).put("project/run/rows", source)


def test_a_database_of_a_neighbours_is_not_the_default(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := shared / "run").mkdir()
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    database, sink = shared / "mlflow.db", MlflowSink(RunInfo("r", "", [], "", 1, ["mlflow"]), folder, {})
    assert sink._chosen_uri() == f"sqlite:///{database}"
    database.touch()
    assert sink._chosen_uri() == f"sqlite:///{database}"
    give(database, monkeypatch)
    with pytest.raises(Refused, match="another user made it"):
        sink._chosen_uri()


@pytest.mark.parametrize("kind", ["pipe", "his", "mine"])
def test_settings_of_wandb_are_this_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "none"))
    Path("wandb").mkdir()
    settings = Path("wandb/settings")
    if kind == "pipe":
        os.mkfifo(settings)
    else:
        settings.write_text("[default]\nentity = team\n")
    if kind == "his":
        give(settings, monkeypatch)
    assert _setting("entity") == ("team" if kind == "mine" else None)


def test_a_number_of_another_file_system_makes_nobody_the_owner(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "none"))
    Path("wandb").mkdir()
    settings, database, run = Path("wandb/settings"), shared / "mlflow.db", shared / "run"
    settings.write_text("[default]\nentity = team\n")
    database.touch()
    run.mkdir(mode=0o700)
    for path in (settings, database, run):
        give(path, monkeypatch)
    monkeypatch.setenv("AUTOTRACE_RUN_OWNER", str(run.stat().st_uid))
    assert files.is_own(run)  # of a run folder, the number counts
    assert files.exposed(run) and files.planted(database) and _setting("entity") is None


def test_the_address_of_a_lake_has_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="has credentials") as refused:
        check("s3://AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI@bucket/lake", lambda _: True)
    assert "wJalr" not in str(refused.value)
    monkeypatch.setenv("AUTOTRACE_TABLES", "s3://id:wJalrXUtnFEMI@bucket/lake")
    assert "wJalr" not in PARQUET.health(Destination()).text
