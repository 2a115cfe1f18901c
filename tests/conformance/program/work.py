"""What the programs below call; a module they import."""

from __future__ import annotations

import os


def leaf(x: int) -> int:
    return x + 1


def pid(x: int = 0) -> int:
    leaf(x)
    return os.getpid()


class Tool:
    def method(self, x: int) -> int:
        return leaf(x)

    @staticmethod
    def static(x: int) -> int:
        return leaf(x)

    @classmethod
    def made(cls, x: int) -> int:
        return leaf(x)


def put(queue: object, x: int) -> None:
    queue.put(leaf(x))  # type: ignore[attr-defined]
