"""Exported files appear whole or not at all, and a format is one module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import autotrace.export
from autotrace.export import format
from autotrace.export.format import ExportError, Staging, write_lines
from autotrace.trajectory.model import Span, Trajectory


def trajectories(count: int) -> Iterator[Trajectory]:
    for number in range(count):
        yield Trajectory(f"{number:032x}", "run", [Span("1" * 16, None, "f", "trajectory", "k", 0)])


def failing() -> Iterator[Trajectory]:
    yield from trajectories(3)
    raise OSError(28, "No space left on device")


def test_every_module_of_the_folder_with_a_format_is_listed() -> None:
    folder = Path(autotrace.export.__file__).parent
    having = {path.stem for path in folder.glob("*.py") if "\ndef write(" in path.read_text()}
    assert having == set(format.FORMATS)
    assert all(callable(format.get(name)) for name in format.FORMATS)


def test_a_failed_export_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "0.jsonl").write_text("earlier\n")
    with pytest.raises(OSError, match="No space"):
        write_lines(failing(), str(tmp_path), lambda one: (f"{int(one.trace_id, 16)}.jsonl", 1), one_file=False)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"0.jsonl": "earlier\n"}


def test_lines_of_many_files_in_any_order(tmp_path: Path) -> None:
    files = 2_000
    written = write_lines(
        trajectories(3 * files),
        str(tmp_path),
        lambda one: (f"{int(one.trace_id, 16) % files}.jsonl", 7),
        one_file=False,
    )
    assert (written.trajectories, written.files) == (3 * files, files)
    assert {path.read_text() for path in tmp_path.iterdir()} == {"7\n7\n7\n"}


def test_what_a_format_leaves_out_is_counted_by_reason(tmp_path: Path) -> None:
    written = write_lines(trajectories(4), str(tmp_path), lambda one: "no text", one_file=True)
    assert (written.trajectories, written.files, written.left_out) == (0, 0, {"no text": 4})
    assert list(tmp_path.iterdir()) == []


def test_a_link_of_the_users_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("old")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "there" / "file")
    write_lines(trajectories(1), str(tmp_path / "link.jsonl"), lambda one: ("unused", 1), one_file=True)
    assert (tmp_path / "link.jsonl").is_symlink() and (tmp_path / "there" / "file").read_text() == "1\n"


def test_what_is_no_file_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    """``--out /dev/null``: who may replace it must not."""
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        write_lines(trajectories(2), str(pipe), lambda one: ("unused", 1), one_file=True)
        assert reader.read() == b"1\n1\n"
        with pytest.raises(OSError), Staging(tmp_path) as stage:
            stage.append("pipe.jsonl", b"1\n")
            raise OSError
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


def test_one_file_is_named_or_goes_to_standard_output(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    write_lines(trajectories(2), str(tmp_path / "new" / "mine.jsonl"), lambda one: ("unused", 1), one_file=True)
    assert (tmp_path / "new" / "mine.jsonl").read_text() == "1\n1\n"
    write_lines(trajectories(2), "-", lambda one: ("unused", 1), one_file=True)
    assert capfdbinary.readouterr().out == b"1\n1\n"
    with pytest.raises(ExportError, match="several files"):
        write_lines(trajectories(2), "-", lambda one: ("unused", 1), one_file=False)


def test_files_and_folders_are_the_owners_alone(tmp_path: Path) -> None:
    with Staging(tmp_path / "new") as stage:
        stage.append("validation/1.jsonl", b"1")
    modes = [os.stat(tmp_path / name).st_mode & 0o777 for name in ("new/validation/1.jsonl", "new/validation", "new")]
    assert modes == [0o600, 0o700, 0o700]
