"""Describe a process: the program on the command line, the title, the machine's boot. Standard library only."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_WITH_VALUE = "WX"
_LAST = "mc"
"""Short options whose value is the program; other options may come before in the same word (``-Im``)."""


class Program(NamedTuple):
    """Describes the program that an interpreter runs."""

    kind: str
    """Kind: ``script`` | ``m`` | ``c`` | "" (the prompt, or a program from stdin)."""
    word: str
    """Path of the script, name of the module, or the code."""


def program(argv: Sequence[str]) -> Program:
    """Read the program in ``sys.orig_argv`` as Python does: ``-Xdev`` and ``-Wignore`` hold no ``m`` or ``c``."""
    return _read(iter(argv[1:]))[0]


def ignores_environment(argv: Sequence[str]) -> bool:
    """Tell whether ``sys.orig_argv`` has ``-E`` or ``-I``, which keep away the activation through the environment."""
    return not {"E", "I"}.isdisjoint(_read(iter(argv[1:]))[1])


def arguments(argv: Sequence[str]) -> list[str]:
    """Return the words of ``sys.orig_argv`` behind the program."""
    words = iter(argv[1:])
    _read(words)
    return list(words)


def _read(words: Iterator[str]) -> tuple[Program, str]:
    """Read the program, and the letters of the options before the program."""
    letters = ""
    for word in words:
        if word == "-" or not word.startswith("-"):
            return Program("" if word == "-" else "script", "" if word == "-" else word), letters
        if word.startswith("--"):
            if word == "--check-hash-based-pycs":
                next(words, None)
            continue
        for end, letter in enumerate(word[1:], 2):
            letters += letter
            if letter in _LAST:
                return Program(letter, word[end:] or next(words, "")), letters
            if letter in _WITH_VALUE:
                if end == len(word):
                    next(words, None)
                break
    return Program("", ""), letters


_SAFELY = "import sys; sys.path[:] = [folder for folder in sys.path if folder]; "
_AS_MODULE = "import runpy; sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
"""Code that does the same as ``-m``."""


def python_code(interpreter: str, code: str, *arguments: str) -> list[str]:
    """Return the command that runs ``code`` in any ``interpreter`` (Python 3.10 has no ``-P``), otherwise as
    ``python``.

    ``python_code`` and ``python`` begin every command that starts an interpreter.
    """
    return [interpreter, "-c", _SAFELY + code, *arguments]


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``module`` in an interpreter like this one, without imports from the current
    directory.

    A ``json.py`` of the user, or of somebody else in a shared folder, must not replace the standard module.
    """
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", "-m", module, *arguments]
    return python_code(sys.executable, _AS_MODULE, module, *arguments)


def title() -> str:
    """Return the process's title: interpreter and program. Never an argument and never code, because either may hold a
    secret."""
    setproctitle = sys.modules.get("setproctitle")
    if setproctitle is not None:  # Ray names its workers: ray::AgentLoopWorker.generate_sequences
        try:
            name = str(setproctitle.getproctitle())
        except Exception:
            name = ""
        if name.startswith("ray::"):
            return name[:80]
    kind, word = program(sys.orig_argv)
    words = {"script": [os.path.basename(word)], "m": ["-m", word], "c": ["-c"]}.get(kind, [])
    return " ".join([os.path.basename(sys.executable or "python"), *words])[:80]


def boot_id() -> str:
    """Return an id that tells this boot of the machine from any other boot; "" if the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
