"""A daemon closes all descriptors; what it opens next gets the number of ours. Nothing of ours may land in it."""

from __future__ import annotations

import os
import socket
import sqlite3
import tempfile
import time

from . import report


def work(number: int) -> int:
    """What is traced."""
    return number


def _calls(first: int, seconds: float = 1.2) -> int:
    """Traced calls for longer than several writes of the flusher; how many."""
    until, number = time.monotonic() + seconds, first
    while time.monotonic() < until:
        work(number)
        number += 1
        time.sleep(0.002)
    return number - first


def main(variant: str) -> None:
    """``file``, ``sqlite``, ``socket``."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        _main(variant, folder)


def _main(variant: str, folder: str) -> None:
    calls = _calls(0)
    os.closerange(3, 256)
    path = os.path.join(folder, "host")
    if variant == "file":
        files = [os.open(f"{path}{number}", os.O_RDWR | os.O_CREAT, 0o600) for number in range(20)]
        for file in files:
            os.write(file, b"the host's\n")
        calls += _calls(calls)
        intact = all(os.pread(file, 1 << 20, 0) == b"the host's\n" for file in files)
    elif variant == "sqlite":
        bases = [sqlite3.connect(f"{path}{number}.db", isolation_level=None) for number in range(6)]
        for base in bases:
            base.execute("create table host (number)")
        calls += _calls(calls)
        for base in bases:
            base.execute("insert into host values (1)")
        intact = all(base.execute("pragma integrity_check").fetchone() == ("ok",) for base in bases)
        for base in bases:
            base.close()
        for number in range(6):
            with open(f"{path}{number}.db", "rb") as file:
                intact = intact and b"work" not in file.read()
    else:
        pairs = [socket.socketpair() for _ in range(10)]
        calls += _calls(calls)
        for pair in pairs:
            for end in pair:
                end.setblocking(False)
        intact = not any(_readable(end) for pair in pairs for end in pair)
    report(calls=calls, intact=intact)


def _readable(end: socket.socket) -> bool:
    try:
        return bool(end.recv(10))
    except BlockingIOError:
        return False
