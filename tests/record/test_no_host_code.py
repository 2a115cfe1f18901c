"""Recording a value calls nothing that belongs to the host: no special method, property, descriptor or metaclass."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from typing import Any, ClassVar, NamedTuple

import attrs
import msgspec
import numpy as np
import pydantic
import pytest
import sqlalchemy
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event, orm

from autotrace.config.plan import Settings
from autotrace.record import faults
from autotrace.record.snapshot import Limits, snapshot
from autotrace.redact.redactor import Redactor
from autotrace.spool.records import Close
from tests.cases import examples

from .conftest import Recorder

ran: list[str] = []
"""Names of the methods that ran."""

SPECIAL = (
    "__getattr__", "__getattribute__", "__getitem__", "__iter__", "__len__", "__int__", "__float__", "__index__",
    "__bool__", "__hash__", "__eq__", "__lt__", "__contains__", "__repr__", "__str__", "__format__", "__sizeof__",
    "__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__next__", "__call__", "__enter__", "__dir__",
    "__reversed__", "__missing__", "__length_hint__", "__array__", "__buffer__", "__complex__", "__bytes__",
    "__fspath__", "__set__", "__delete__", "__setattr__",
)  # fmt: skip
PUBLIC = (
    "keys", "values", "items", "get", "copy", "tolist", "item", "shape", "dtype", "device", "name", "args", "size",
    "mode", "_fields", "__dict__", "__class__", "model_fields", "to_dict", "lower", "encode", "startswith",
)  # fmt: skip
BASES: tuple[tuple[type, Callable[[type], Any]], ...] = (
    (object, lambda kind: object.__new__(kind)),
    (dict, lambda kind: _filled(kind, lambda value: dict.__setitem__(value, "a", 1))),
    (list, lambda kind: _filled(kind, lambda value: list.append(value, "a"))),
    (tuple, lambda kind: tuple.__new__(kind, (1, "a", 2))),
    (str, lambda kind: str.__new__(kind, "text")),
    (int, lambda kind: int.__new__(kind, 3)),
    (float, lambda kind: float.__new__(kind, 0.5)),
    (set, lambda kind: _filled(kind, lambda value: set.add(value, 1))),
    (frozenset, lambda kind: frozenset.__new__(kind, [1])),
    (ValueError, lambda kind: ValueError.__new__(kind, "bad")),
    (np.ndarray, lambda kind: np.ndarray.__new__(kind, (2, 2))),
    (np.float64, lambda kind: np.float64.__new__(kind, 0.5)),
)


def _filled(kind: type, fill: Callable[[Any], None]) -> Any:
    value = kind.__mro__[1].__new__(kind)
    fill(value)
    return value


def _counting(name: str) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        ran.append(name)
        raise AssertionError(f"{name} was called")

    return method


def _passing_on(name: str) -> Callable[..., Any]:
    """Of a metaclass: a failing test has to show the class."""
    original = getattr(type, name)

    def method(*args: Any) -> Any:
        ran.append(f"metaclass {name}")
        return original(*args)

    return method


@st.composite
def hostile(draw: st.DrawFn) -> Any:
    """An instance of a class made up for the occasion, whose methods and properties count their calls."""
    base, make = draw(st.sampled_from(BASES))
    members: dict[str, Any] = {name: _counting(name) for name in draw(st.sets(st.sampled_from(SPECIAL), max_size=12))}
    if "__eq__" in members:
        members.setdefault("__hash__", _counting("__hash__"))
    for name in draw(st.sets(st.sampled_from(PUBLIC), max_size=6)):
        members[name] = property(_counting(name))
    if draw(st.booleans()):
        members["__dataclass_fields__"] = {"a": None, "b": None}
    metaclass = type("Meta", (type,), {})
    kind = metaclass("Made", (base,), members)
    value = make(kind)
    for name in draw(st.sets(st.sampled_from(("__getattribute__", "__hash__", "__eq__", "__instancecheck__")))):
        type.__setattr__(metaclass, name, _passing_on(name))
    return value


structures = st.recursive(
    st.one_of(hostile(), st.text(max_size=4), st.integers(), st.none(), st.binary(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(st.integers(), inner, st.integers()),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=8,
)


@settings(max_examples=examples(400), deadline=None)
@given(structures)
def test_nothing_is_called(value: Any) -> None:
    ran.clear()
    copied = snapshot(value, Limits())
    msgspec.msgpack.encode(Redactor(Settings()).clean("value", copied))
    assert ran == []


def test_keys_of_the_host_are_not_called() -> None:
    kind = type("Key", (), {"__str__": _counting("__str__"), "__repr__": _counting("__repr__")})
    ran.clear()
    copied = snapshot({kind(): 1, kind(): 2}, Limits())
    assert ran == [] and sorted(copied.values()) == [1, 2]


@dataclass
class Data:
    a: int
    b: list[int] = field(default_factory=list)


@attrs.define
class Attrs:
    a: int
    b: list[int]


class Struct(msgspec.Struct):
    a: int
    b: list[int]


class Model(pydantic.BaseModel):
    a: int
    b: list[int]


class Named(NamedTuple):
    a: int
    b: list[int]


class Slotted:
    __slots__ = ("a", "b")
    __dataclass_fields__: ClassVar = {"a": None, "b": None}

    def __init__(self) -> None:
        self.a, self.b = 1, [2]


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    "value",
    [
        Data(1, [2]),
        make_dataclass("Small", [("a", int), ("b", list)], slots=True)(1, [2]),
        Attrs(1, [2]),
        attrs.make_class("Old", ["a", "b"])(1, [2]),
        Struct(1, [2]),
        Model(a=1, b=[2]),
        Named(1, [2]),
        Slotted(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_declared_fields_are_read(value: Any) -> None:
    assert snapshot(value, Limits()) == {"type": type(value).__qualname__, "a": 1, "b": [2]}


def test_an_enumeration_is_its_name() -> None:
    assert snapshot([Level.HIGH], Limits()) == ["HIGH"]


def test_a_mapped_row_issues_no_query() -> None:
    @dataclass
    class Row:
        id: int
        text: str

    registry = orm.registry()
    columns = sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True), sqlalchemy.Column("text", sqlalchemy.Text)
    registry.map_imperatively(Row, sqlalchemy.Table("rows", registry.metadata, *columns))
    engine = sqlalchemy.create_engine("sqlite://")
    registry.metadata.create_all(engine)
    queries: list[str] = []
    with orm.Session(engine) as session:
        row = Row(id=1, text="y")
        session.add(row)
        session.commit()  # which expires what the row holds: the next attribute that is read asks the database
        event.listen(engine, "before_cursor_execute", lambda *args: queries.append(args[2]))
        copied = snapshot(row, Limits())
        assert queries == [] and copied["type"].endswith("Row")
        assert row.text == "y" and len(queries) == 1


class Asking(type):
    """Answers to nothing, and cannot be hashed."""

    def __eq__(cls, other: object) -> bool:
        ran.append("metaclass __eq__")
        raise AssertionError

    __hash__ = None  # type: ignore[assignment]

    def __getattribute__(cls, name: str) -> Any:
        ran.append(f"metaclass {name}")
        return type.__getattribute__(cls, name)


def test_what_is_returned_or_raised_is_not_asked_and_nor_is_its_class(recorder: Recorder) -> None:
    class Value(metaclass=Asking):
        pass

    class Failure(Exception, metaclass=Asking):
        args = property(_counting("args"))  # type: ignore[assignment]
        __traceback__ = property(_counting("__traceback__"))  # type: ignore[assignment]
        __class__ = property(_counting("__class__"))  # type: ignore[assignment]

    def given_back(value: Any) -> Any:
        return value

    def raised(error: Exception) -> None:
        raise error

    value, error = Value(), Failure("reason")
    given_back, raised = recorder.wrap(given_back, key="one"), recorder.wrap(raised, key="two")
    ran.clear()
    assert given_back(value) is value
    try:
        raised(error)
    except BaseException as arrived:
        assert arrived is error
    assert ran == [] and not faults.counts
    failed = next(record.error for record in recorder.records(Close) if record.error)
    assert failed[0].endswith("Failure") and "reason" in failed[1] and failed[2]


def test_an_error_that_ends_the_process_when_it_is_printed_is_not_printed(recorder: Recorder) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    def search() -> None:
        raise Silent

    with pytest.raises(Silent):
        recorder.wrap(search, key="one")()
    assert not faults.counts and recorder.records(Close)[0].status == "ERROR"
