"""Rows ``(id, object, score)``: what stands between two numbers is looked at like everything else."""

from __future__ import annotations

from . import peak_memory, report

CANARY = "hunter2" + "Zq7Rk2Vw9Xc4Bn6Mt1"


def store(row: object) -> None:
    """Takes a row."""


def main(variant: str) -> None:
    """``secret`` between numbers, ``long`` list of rows, ``huge`` text between numbers."""
    if variant == "secret":
        store((1, f"password={CANARY}", 2.0))
        store([1, {"api_key": CANARY}, 2.0])
        store([(1, f"password={CANARY}", 0.5), (2, {"token": CANARY}, 0.25)])
    elif variant == "long":
        store([0, *[f"item {number} " + "y" * 50 for number in range(20_000)], 1.0])
    else:
        store((1, "z" * (270 << 20), 2.0))
        store((2, "after it", 2.0))
    report(secrets={"row": CANARY}, peak=peak_memory())
