"""Functions and classes of the program itself: run as ``python -m started`` and as ``python started.py``."""

from __future__ import annotations

import functools
import inspect
import pickle
import sys


def logged(function):  # type: ignore[no-untyped-def]
    @functools.wraps(function)
    def inner(*args, **kwargs):  # type: ignore[no-untyped-def]
        return function(*args, **kwargs)

    return inner


def plain(x: int) -> int:
    return x


@logged
def decorated(x: int) -> int:
    return x


async def asynchronous(x: int) -> int:
    return x


try:

    def conditional(x: int) -> int:
        return x
except ImportError:  # never
    pass


class Agent:
    def run(self, x: int) -> int:
        return plain(x)


def run() -> None:
    import asyncio

    assert __name__ == "__main__"
    assert (plain(1), decorated(2), conditional(3), Agent().run(4), asyncio.run(asynchronous(5))) == (1, 2, 3, 4, 5)
    assert inspect.getsource(plain).startswith("def plain") and plain.__code__.co_varnames[0] == "x"
    assert pickle.loads(pickle.dumps(plain)) is plain and pickle.loads(pickle.dumps(Agent().run))(6) == 6
    try:
        raise ValueError
    except ValueError as error:
        assert error.__traceback__ is not None
        assert error.__traceback__.tb_lineno == inspect.getsourcelines(sys.modules["__main__"].run)[1] + 8
    print("all answers right")


if __name__ == "__main__":
    run()
