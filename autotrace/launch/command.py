"""Find the command behind ``autotrace-run``, whether the command is Python, and words that would defeat the run."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from autotrace.config import exit_codes

_PYTHON = re.compile(r"^(python|pypy)[0-9.]*t?$")
_VERL_TRACE = re.compile(r"^(?P<plus>\+{0,2})trainer\.rollout_trace\.(?P<key>\w+)=(?P<value>.*)$")


class CommandError(Exception):
    """Reports a command that cannot be started; ``code`` is the shells' exit code for the failure."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Command:
    """Holds ``argv`` as typed and the path of the executable file."""

    argv: tuple[str, ...]
    path: str

    @property
    def is_python(self) -> bool:
        """Tell whether this very process becomes a Python interpreter: by the file's name or by the ``#!`` line.

        Such a process waits for delivery at its own exit; any other command (a shell script, ``uv run``) needs a
        parent.
        """
        return any(_PYTHON.match(os.path.basename(name)) for name in (self.path, _shebang(self.path)))

    def interpreter(self, environ: Mapping[str, str]) -> str | None:
        """Return the path of the Python that runs the command; None if nobody can tell."""
        if _PYTHON.match(os.path.basename(self.path)):
            return self.path
        word = _shebang(self.path)
        if not word or not _PYTHON.match(os.path.basename(word)):
            return None
        try:
            return find([word], environ).path
        except CommandError:
            return None

    def execute(self, environ: Mapping[str, str]) -> NoReturn:
        """Replace this process by the command. Never returns; raises ``OSError``."""
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores both signals; a program expects the default
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execve(self.path, list(self.argv), dict(environ))
        except OSError as error:
            import errno

            # A script without `#!`: every shell, and execvp(3), hands such a script to sh.
            if error.errno != errno.ENOEXEC:
                raise
            os.execve("/bin/sh", ["sh", self.path, *self.argv[1:]], dict(environ))


def find(argv: Sequence[str], environ: Mapping[str, str]) -> Command:
    """Find the file that a shell would run for ``argv``. Raises ``CommandError`` (127: none, 126: not executable)."""
    name = argv[0]
    if "/" in name:
        candidates = [name]
    else:
        folders = environ.get("PATH", os.defpath).split(os.pathsep)
        candidates = [os.path.join(folder or os.curdir, name) for folder in folders] if name else []
    present = [path for path in candidates if os.path.isfile(path)]
    for path in present:
        if os.access(path, os.X_OK):
            return Command(tuple(argv), path)
    if present:
        raise CommandError(f"{present[0]}: permission denied; make it executable (chmod +x)", exit_codes.NOT_EXECUTABLE)
    if os.path.isdir(name) and "/" in name:
        raise CommandError(f"{name}: is a directory", exit_codes.NOT_EXECUTABLE)
    where = "no such file" if "/" in name else "command not found"
    raise CommandError(f"{name}: {where}", exit_codes.NOT_FOUND)


def refuse_dead_keys(argv: Sequence[str]) -> str | None:
    """Refuse veRL's ``trainer.rollout_trace.*`` in ``argv``, which no release with an agent loop reads.

    Return one sentence, or None. Without ``+`` Hydra stops the run after minutes of imports. With ``+`` veRL reads and
    overwrites the key (0.5.0 ``agent_loop.py:228``), and autotrace follows veRL (``adapters.verl.agent_loop``).
    """
    for word in argv:
        match = _VERL_TRACE.match(word)
        if match and not match["plus"]:
            return (
                f"{word}: veRL has no such key and would stop; write actor_rollout_ref.rollout.trace.{match['key']}="
                f"{match['value']} (veRL 0.5 and newer), or leave it out: autotrace needs no veRL key"
            )
    return None


def _shebang(path: str) -> str:
    """Return the program of the ``#!`` line, also behind ``env`` or pip's ``/bin/sh`` detour for long paths; "" for
    none."""
    try:
        with open(path, "rb") as file:
            head = file.read(1024)
    except OSError:
        return ""
    if not head.startswith(b"#!"):
        return ""
    lines = head.decode("latin-1").splitlines()
    words = lines[0][2:].split()
    if words and os.path.basename(words[0]) == "sh" and len(lines) > 1 and lines[1].startswith("'''exec'"):
        words = lines[1].replace('"', " ").split()[1:2]
    elif words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word][:1]
    return words[0] if words else ""
