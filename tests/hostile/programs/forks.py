"""Forks while recording: Python 3.12 and later warn of forks in a process with several threads."""

from __future__ import annotations

import multiprocessing
import os
import re
import threading
import time
import warnings

from . import report

FORKS = 20


def work(number: int) -> int:
    """What is traced."""
    return number + 1


def _fork() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def _forkpty() -> None:
    child, terminal = os.forkpty()
    if not child:
        os._exit(0)
    os.close(terminal)
    os.waitpid(child, 0)


def _process() -> None:
    process = multiprocessing.get_context("fork").Process(target=work, args=(1,))
    process.start()
    process.join()


def _warned(number: int) -> list[str]:
    """What the host is warned of in a round of forks."""
    work(number)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always" if number % 2 else "error")
        _fork()
        _forkpty()
        _process()
    return [re.sub(r"\d+", "N", str(warning.message)) for warning in caught]


def main(variant: str) -> None:
    """``alone``: nothing but the forks; ``thread``: the host has a thread itself; ``later``: it has one later on."""
    filters = [*warnings.filters]
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    if variant == "thread":
        thread.start()
    seen = [_warned(number) for number in range(FORKS)]
    _fork()  # not inside of ``catch_warnings``, which forgets what was changed
    if variant == "later":
        thread.start()
        seen += [_warned(number) for number in range(FORKS)]
    deadline = time.monotonic() + 120
    while [*warnings.filters] != filters and time.monotonic() < deadline:
        time.sleep(0.01)
    over.set()
    report(seen=[seen, [*warnings.filters] == filters])
