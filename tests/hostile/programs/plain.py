"""A program that does nothing special: what is looked at is where its records go and who can read them."""

from __future__ import annotations

import os

from . import report


def work(number: int) -> int:
    """What is traced."""
    return number


def main(variant: str) -> None:
    """Three calls; tells the variables that its children would inherit."""
    if variant == "umask":
        os.umask(0)
    for number in range(3):
        work(number)
    inherited = {name: value for name, value in os.environ.items() if name.startswith("AUTOTRACE")}
    report(calls=3, inherited=inherited)
