"""What autotrace makes is its owner's alone, and a descriptor is looked at before it is used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotrace.run import files
from tests.waiting import DEADLINE


@pytest.fixture(autouse=True)
def generous_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_files_and_folders_are_the_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "c"
    files.folder(folder)
    assert [_mode(each) for each in (folder, folder.parent, folder.parent.parent)] == [0o700] * 3
    for make in (files.new, files.append, files.overwrite, files.shared):
        path = folder / make.__name__
        os.close(make(path))
        assert _mode(path) == 0o600
    files.replace(folder / "replaced", b"text")
    files.touch(folder / "touched")
    files.ensure(folder / "ensured")
    assert {_mode(path) for path in folder.iterdir()} == {0o600}
    assert (folder / "replaced").read_bytes() == b"text" and len(list(folder.iterdir())) == 7


@pytest.mark.parametrize("make", [files.new, files.append, files.overwrite, files.shared, files.touch, files.ensure])
def test_no_link_is_followed(tmp_path: Path, make: object) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError):
        make(tmp_path / "link")  # type: ignore[operator]
    assert not (tmp_path / "theirs").exists()


def test_a_link_that_is_replaced_leaves_what_it_pointed_to(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    files.replace(tmp_path / "link", b"ours")
    assert (tmp_path / "theirs").read_text() == "theirs" and (tmp_path / "link").read_bytes() == b"ours"


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        files.folder(tmp_path / "file" / "below")


def test_a_descriptor_that_the_host_closed_is_let_go(tmp_path: Path) -> None:
    descriptor = files.Descriptor(files.new(tmp_path / "ours"))
    fd = descriptor.number()
    os.close(fd)
    assert os.open(tmp_path / "theirs", os.O_CREAT | os.O_RDWR) == fd
    with pytest.raises(files.Taken):
        descriptor.number()
    descriptor.close()
    assert not descriptor.open and os.write(fd, b"theirs") == 6, "closed under their hands"
    os.close(fd)


def test_a_removed_files_inode_in_use_again(tmp_path: Path) -> None:
    descriptor = files.Descriptor(files.new(tmp_path / "ours"))
    fd = descriptor.number(size=0)
    os.write(fd, b"12345")
    assert descriptor.number(size=5) == fd
    with pytest.raises(files.Taken):
        descriptor.number(size=4)


def test_a_line_for_the_terminal_is_not_written_into_what_a_daemon_has_there_now(tmp_path: Path) -> None:
    code = """
import os, socket, sys
from autotrace.config import stderr
stderr.remember()
kept = os.dup(2)
stderr.say("before")
for there, flags in (("data", os.O_RDWR), ("log", os.O_WRONLY | os.O_APPEND)):
    os.close(2)
    assert os.open(os.path.join(sys.argv[1], there), os.O_CREAT | flags, 0o600) == 2
    stderr.say("after")
os.dup2(kept, 2)
stderr.say("again")
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stderr) == (0, "before\nagain\n")
    assert (tmp_path / "data").read_text() == "" and (tmp_path / "log").read_text() == "after\n"


def test_nothing_else_creates_files() -> None:
    """Exempt are Ray's notice, which runs where autotrace is not installed, the temporary folder of an unpacked wheel,
    and the build, which writes the compiled lists."""
    package = Path(files.__file__).parent.parent
    creating = re.compile(r"O_CREAT|\.(write_text|write_bytes|mkdir|makedirs|copyfile)\(")
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        for line in path.read_text().splitlines()
        if creating.search(line)
    }
    assert found == {"run/files.py", "adapters/ray/cluster.py", "spec/compiler.py", "spec/sources.py"}
