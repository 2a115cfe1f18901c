"""Records of a stranger: a byte can become an empty dict, so the values that are decoded together have a bound."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from autotrace.spool.reader import SegmentReader
from tests.cases import some
from tests.ship.spools import Process, new_run, trajectory
from tests.waiting import DEADLINE

DENSE = {
    "maps": b"\x80", "lists": b"\x90", "nils": b"\xc0", "pairs": b"\x81\xa0\xc0", "nested": b"\x91\x91\x00",
    "numbers": b"\xd0\x80", "texts": b"\xa1a", "long lists": b"\xdc\x00\x01\x80", "long maps": b"\xde\x00\x00",
}  # fmt: skip
SIZE = 6 << 20


def hostile(parent: Path, item: bytes, records: int) -> Path:
    """A run with one good trajectory, and ``SIZE`` bytes of ``item`` as the arguments of calls of another one."""
    folder = new_run(parent)
    process = Process(folder)
    trajectory(process)
    count = SIZE // records // len(item)
    for _ in range(records):
        inputs = msgspec.Raw(b"\xdd" + count.to_bytes(4, "big") + item * count)
        span = process.open(b"x" * 16, "trajectory", inputs=inputs)
        process.close(b"x" * 16, span)
    process.exit()
    return folder


@pytest.mark.parametrize(("kind", "records"), some([*((kind, 200) for kind in DENSE), ("maps", 1)], ("maps", 200)))
def test_a_read_takes_memory_in_proportion_to_its_bytes(kind: str, records: int, tmp_path: Path) -> None:
    folder = hostile(tmp_path, DENSE[kind], records)
    (name,) = [path.name for path in (folder / "spool").iterdir()]
    reader, found = SegmentReader(folder, name), 0
    tracemalloc.start()
    try:
        while read := reader.read():
            found += len(read)
            del read
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < (64 << 20) + 16 * SIZE, f"{taken / SIZE:.0f} bytes for each"
    assert reader.sealed and found > 10, "the rest is read"


def test_a_record_of_ours_is_within_the_bound(tmp_path: Path) -> None:
    """As many values of one byte as are recorded of one argument, and a long text in another script."""
    folder = new_run(tmp_path)
    process = Process(folder)
    for _ in range(20):
        process.open(b"t" * 16, "tool", inputs={"flags": [None] * 8_000, "text": "一" * 400_000})
    process.exit()
    (name,) = [path.name for path in (folder / "spool").iterdir()]
    reader = SegmentReader(folder, name)
    while reader.read():
        pass
    assert reader.sealed and not reader.skipped


@pytest.mark.parametrize("command", ["ls", "show", "diagnose"])
def test_a_command_stays_small(command: str, tmp_path: Path) -> None:
    folder = hostile(tmp_path, DENSE["maps"], 40)
    code = (
        "import re, sys\n"
        "from autotrace.cli.main import main\n"
        "try: main()\n"  # not ru_maxrss: a process that was forked begins with its parent's
        "finally: print(re.search(r'VmHWM: *\\t*(.*) kB', open('/proc/self/status').read())[1], file=sys.stderr)\n"
    )
    words = [sys.executable, "-P", "-c", code, command, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stderr.split()[-1]) < 700 << 10, "kB; nearly 200 MB are those of the process itself"
