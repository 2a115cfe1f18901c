"""Fresh large values, faster than any disk: what waits to be written is bounded in bytes."""

from __future__ import annotations

from . import peak_memory, report


def take(value: object) -> None:
    """Holds nothing."""


def give(number: int, size: int) -> str:
    """A large result."""
    return f"{number:08}" * (size // 8)


def main(variant: str) -> None:
    """``string`` of 8 MB, ``strings`` (1,000 of 8 KB in a list), ``result`` of 8 MB, ``bytes``."""
    calls = 60
    for number in range(calls):
        if variant == "string":
            take(f"{number:08}" * (1 << 20))
        elif variant == "strings":
            take([f"{number}-{item}-" + "x" * 8_000 for item in range(1_000)])
        elif variant == "bytes":
            take(b"%08d" % number * (1 << 20))
        else:
            give(number, 8 << 20)
    report(calls=calls, peak=peak_memory())
