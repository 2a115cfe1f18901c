"""Build the values of fields on access: a prompt repeats all earlier turns, so storing every turn's prompt
takes memory and time that grow with the square of the turns."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached(cached_property[T]):
    """Store a computed property as ``functools.cached_property`` does, but without a lock, which costs more than most
    values: two threads may compute the same value twice."""

    if not TYPE_CHECKING:

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


class Deferred(Generic[T]):
    """Hold a function ``make`` that builds the value anew on each access."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], T | None]) -> None:
        self.make = make


class Continued(Deferred[str]):
    """Hold the prompt of a call as text: the prompt of the call ``base``, the answer of ``base``, and the new part. The
    new part is everything if ``base`` is None."""

    __slots__ = ("base",)

    def __init__(self, make: Callable[[], str], base: str | None) -> None:
        super().__init__(make)
        self.base = base


class Packed(Deferred[list[T]]):
    """Hold numbers as the bytes of an array of ``code``, four bytes each; a list takes ten times the memory."""

    __slots__ = ("code", "data")

    def __init__(self, code: str, data: bytes) -> None:
        """Take ``data`` without trailing bytes that do not fill a number."""
        self.code, self.data = code, data[: len(data) - len(data) % 4]

    def make(self) -> list[T]:
        """Return the numbers as a list."""
        numbers: array[Any] = array(self.code, self.data)
        return numbers.tolist()


class DeferrableField(Generic[T]):
    """Describe a dataclass field of type ``T | None``, default None, that also accepts a ``Deferred``. Readers get the
    value."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    @overload
    def __get__(self, instance: None, owner: type) -> None: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T | None: ...

    def __get__(self, instance: Any, owner: type) -> T | None:
        if instance is None:
            return None  # the default of the dataclass
        value: T | Deferred[T] | None = instance.__dict__.get(self._name)
        return value.make() if isinstance(value, Deferred) else value

    def __set__(self, instance: Any, value: T | Deferred[T] | None) -> None:
        instance.__dict__[self._name] = value
