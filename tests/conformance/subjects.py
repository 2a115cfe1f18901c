"""One of each kind of thing a spec can name. Imported twice: bare, and as a module whose every name is a target."""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any

from tests.conformance import hostvar

closed: list[str] = []
"""What the ``finally`` clauses below did."""


class RefusedError(ValueError):
    """An error that can be referred to weakly."""


def _work(x: int, fail: bool = False) -> int:
    if fail:
        raise RefusedError(f"refused {x}")
    return x * 2


def function(x: int, *, fail: bool = False) -> int:
    """Twice x."""
    return _work(x, fail)


async def coroutine(x: int, *, fail: bool = False) -> int:
    """Twice x, in a moment."""
    hostvar.host.set("changed inside")
    return _work(x, fail)


def generator(x: int, *, fail: bool = False) -> Generator[int, Any, str]:
    """x numbers, then a word."""
    for number in range(x):
        try:
            sent = yield _work(number, fail)
            if sent is not None:
                yield sent
        except KeyError as error:
            yield -1
            assert error.__context__ is None
        finally:
            closed.append(f"generator {number}")
    return "end"


async def async_generator(x: int, *, fail: bool = False) -> AsyncGenerator[int, Any]:
    """x numbers."""
    for number in range(x):
        try:
            sent = yield _work(number, fail)
            if sent is not None:
                yield sent
        except KeyError as error:
            yield -1
            assert error.__context__ is None
        finally:
            closed.append(f"async generator {number}")


def returns_coroutine(x: int, *, fail: bool = False) -> Coroutine[Any, Any, int]:
    """Not marked as what it is."""
    return coroutine(x, fail=fail)


def returns_generator(x: int, *, fail: bool = False) -> Generator[int, Any, str]:
    return generator(x, fail=fail)


def returns_async_generator(x: int, *, fail: bool = False) -> AsyncGenerator[int, Any]:
    return async_generator(x, fail=fail)


@contextlib.contextmanager
def manager(x: int, *, fail: bool = False) -> Generator[int, None, None]:
    """Twice x, for a while."""
    try:
        yield _work(x, fail)
    except KeyError as error:
        closed.append(repr(error.__context__))
    finally:
        closed.append("manager")


@contextlib.asynccontextmanager
async def async_manager(x: int, *, fail: bool = False) -> AsyncGenerator[int, None]:
    """Twice x, for a while."""
    hostvar.host.set("changed inside")
    try:
        yield _work(x, fail)
    except KeyError as error:
        closed.append(repr(error.__context__))
    finally:
        closed.append("async manager")


def returns_manager(x: int, *, fail: bool = False) -> contextlib.AbstractContextManager[int]:
    return manager(x, fail=fail)


def returns_async_manager(x: int, *, fail: bool = False) -> contextlib.AbstractAsyncContextManager[int]:
    return async_manager(x, fail=fail)


def warns(x: int) -> int:
    warnings.warn("old", DeprecationWarning, stacklevel=2)
    return x


def factorial(x: int) -> int:
    return x * factorial(x - 1) if x else 1


def apply(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


class Base:
    def inherited(self, x: int, *, fail: bool = False) -> int:
        return _work(x, fail)

    def overridden(self, x: int, *, fail: bool = False) -> int:
        return _work(x, fail)


class Thing(Base):
    def __init__(self, x: int = 0, fail: bool = False) -> None:
        self.x = x
        self.fail = fail

    def method(self, x: int, *, fail: bool = False) -> int:
        """Twice x."""
        return _work(x, fail)

    async def async_method(self, x: int, *, fail: bool = False) -> int:
        return _work(x, fail)

    def generator_method(self, x: int, *, fail: bool = False) -> Generator[int, Any, str]:
        for number in range(x):
            yield _work(number, fail)
        return "end"

    @staticmethod
    def static(x: int, *, fail: bool = False) -> int:
        return _work(x, fail)

    @classmethod
    def class_method(cls, x: int, *, fail: bool = False) -> int:
        assert issubclass(cls, Thing)
        return _work(x, fail)

    @property
    def getter(self) -> int:
        """Twice x."""
        return _work(self.x, self.fail)

    with_default = functools.partialmethod(method, fail=False)

    class Inner:
        def method(self, x: int, *, fail: bool = False) -> int:
            return _work(x, fail)


class Cached:
    def __init__(self, x: int = 0, fail: bool = False) -> None:
        self.x = x
        self.fail = fail

    @functools.cached_property
    def cached(self) -> int:
        """Twice x, once."""
        return _work(self.x, self.fail)


class Later(Thing):
    def overridden(self, x: int, *, fail: bool = False) -> int:
        return super().overridden(x, fail=fail)


partial = functools.partial(_work)


class _Callable:
    def __call__(self, x: int, *, fail: bool = False) -> int:
        return _work(x, fail)


instance = _Callable()
c_function = math.sqrt
