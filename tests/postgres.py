"""A PostgreSQL server of the distribution's packages, in a folder of its own, on a socket of its own."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.waiting import DEADLINE

PLACES = "/usr/lib/postgresql/*/bin"
"""Where Debian and Ubuntu keep what only the server's owner calls."""
NOBODY = 65534


class Postgres:
    """``uri(name)`` of a fresh database. The server ends with ``stop``; it may not run as root, and does not."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))  # pytest's folders are closed to other users
        self._folder.chmod(0o711)
        self._data, self._socket = self._folder / "data", self._folder / "socket"
        self._bin = _programs()
        self._as = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        for path in (self._data, self._socket):
            path.mkdir(mode=0o700)
            if self._as:
                os.chown(path, NOBODY, NOBODY)

    def start(self) -> None:
        """Make the cluster and start it; it listens on its socket alone."""
        self._run("initdb", "--auth=trust", "--username=test", "--encoding=UTF8", "--no-sync", "-D", str(self._data))
        options = f"-k {self._socket} -c listen_addresses= -c fsync=off -c max_connections=40"
        log = self._data / "log"
        self._run("pg_ctl", "-D", str(self._data), "-l", str(log), "-w", "-t", "120", "-o", options, "start")

    def uri(self, name: str, driver: str = "psycopg") -> str:
        """The URI of a new, empty database."""
        self._run("psql", "-h", str(self._socket), "-U", "test", "-d", "postgres", "-qc", f"CREATE DATABASE {name}")
        return f"postgresql+{driver}://test@/{name}?host={self._socket}"

    def stop(self) -> None:
        """End it at once."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    def _run(self, program: str, *words: str) -> None:
        path = os.path.join(self._bin, program) if program != "psql" else program
        done = subprocess.run(
            [path, *words], cwd=self._socket, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=DEADLINE, **self._as,  # type: ignore[call-overload]
        )  # fmt: skip
        assert done.returncode == 0, done.stdout


def _programs() -> str:
    found = sorted(glob.glob(PLACES)) or [os.path.dirname(shutil.which("initdb") or "")]
    assert found[-1], "no PostgreSQL here: apt-get install postgresql"
    return found[-1]
