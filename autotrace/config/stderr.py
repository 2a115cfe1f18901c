"""The lines that autotrace itself writes to a person's terminal: launcher, exit of a run, a node that cannot deliver.

Never used on success in a traced process, but for the one line of the run's first process at its exit.
"""

from __future__ import annotations

import os


def say(text: str) -> None:
    """One line on stderr; never raises (stderr may be closed)."""
    try:
        os.write(2, (text + "\n").encode(errors="replace"))
    except OSError:
        return


def complain(message: str) -> None:
    """``say``, with our name in front."""
    say(f"autotrace: {message}")
