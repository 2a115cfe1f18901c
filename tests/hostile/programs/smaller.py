"""Values and targets that recording once stumbled over: each call is recorded, with all that was passed."""

from __future__ import annotations

import json
import threading
import weakref
from typing import Any

from . import report


def take(value: Any, beside: str) -> None:
    """What is traced."""


class Named:
    """A key, of the same type as others."""


def _keys() -> dict[str, str]:
    """Keys of one type that say nothing of themselves stay apart."""
    values = {f"value {number}": f"behind a key {number}" for number in range(3)}
    take({Named(): value for value in values.values()}, "arguments")
    return values


def _deep() -> dict[str, str]:
    """A value that contains itself, and one deeper than can be walked."""
    cycle: dict[str, Any] = {"text": "in a circle"}
    cycle["again"] = [cycle]
    take(cycle, "beside a cycle")
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    take(deep, "beside the deep")
    return {name: name for name in ("in a circle", "beside a cycle", "beside the deep")}


def _numbers() -> dict[str, str]:
    """Numbers that no format has room for."""
    for number, value in enumerate((1 << 200, -(1 << 63) - 1, float("nan"), float("-inf"), 10**5000, complex(1, 2))):
        take(value, f"beside number {number}")
    return {f"beside number {number}": f"beside number {number}" for number in range(6)}


def _libraries() -> dict[str, str]:
    """Functions of libraries that recording itself uses (they are targets in ``libraries.yaml``)."""
    keys = weakref.WeakKeyDictionary({(key := Named()): 1})
    thread = threading.Thread(target=keys.get, args=(key,))
    thread.start()
    thread.join()
    take(json.dumps([1]), "after the libraries")
    return {"last": "after the libraries"}


WORK = {"keys": _keys, "deep": _deep, "numbers": _numbers, "libraries": _libraries}


def main(variant: str) -> None:
    """Tells the texts that must have been recorded."""
    report(expected=WORK[variant]())
