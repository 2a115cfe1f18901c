"""Fields that are made when they are asked for: a prompt repeats all earlier turns, so to hold it for every turn takes
memory and time that grow with the square of the turns.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached(cached_property[T]):
    """``functools.cached_property`` without a lock, which takes longer than most of what is asked for: two threads may
    make the same value twice."""

    if not TYPE_CHECKING:

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


class Deferred(Generic[T]):
    """A value that ``make`` makes, anew each time."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], T | None]) -> None:
        self.make = make


class Continued(Deferred[str]):
    """The prompt of a call as text: that of the call ``base``, its answer, and then what is new in this one; all that
    is new where ``base`` is None."""

    __slots__ = ("base",)

    def __init__(self, make: Callable[[], str], base: str | None) -> None:
        super().__init__(make)
        self.base = base


class Packed(Deferred[list[T]]):
    """Numbers as an array of ``code`` has them, four bytes each, as a list: that takes ten times the memory."""

    __slots__ = ("code", "data")

    def __init__(self, code: str, data: bytes) -> None:
        """Bytes at the end of ``data`` that do not fill a number are cut off."""
        self.code, self.data = code, data[: len(data) - len(data) % 4]

    def make(self) -> list[T]:
        """The list."""
        numbers: array[Any] = array(self.code, self.data)
        return numbers.tolist()


class DeferrableField(Generic[T]):
    """A dataclass field of type ``T | None``, default None, that also takes a ``Deferred``. Who reads it gets the
    value."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    @overload
    def __get__(self, instance: None, owner: type) -> None: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T | None: ...

    def __get__(self, instance: Any, owner: type) -> T | None:
        if instance is None:
            return None  # what a dataclass takes for the default
        value: T | Deferred[T] | None = instance.__dict__.get(self._name)
        return value.make() if isinstance(value, Deferred) else value

    def __set__(self, instance: Any, value: T | Deferred[T] | None) -> None:
        instance.__dict__[self._name] = value
