"""Paths: what they find in everything a host may pass."""

from __future__ import annotations

import gc
import weakref
from collections import UserDict
from types import SimpleNamespace
from typing import Any

import pytest
import wrapt

from autotrace.record import fields
from autotrace.record.fields import ABSENT, Path


class Node:
    """Answers to keys without being a Mapping, as nodes of OmegaConf and tensordicts do."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    def get(self, name: str, default: Any) -> Any:
        return self._values.get(name, default)


class Batch(dict[str, Any]):
    """Items, and something besides, as SkyRL's batches."""

    def __init__(self, **items: Any) -> None:
        super().__init__(items)
        self.about = {"uids": ["u"]}


class Broken:
    @property
    def name(self) -> str:
        raise RuntimeError("the host's")


@pytest.mark.parametrize(
    ("text", "value", "found"),
    [
        ("a", 1, 1),
        ("a.b", {"b": 2}, 2),
        ("a.b", UserDict(b=2), 2),
        ("a.b", SimpleNamespace(b=2), 2),
        ("a.b", Node(b=2), 2),
        ("a.items", {"items": 3}, 3),
        ("a.items", {}, ABSENT),
        ("a.about.uids", Batch(b=2), ["u"]),
        ("a.about", Batch(about=2), 2),
        ("a.items", Batch(b=2), ABSENT),
        ("a.0", [4, 5], 4),
        ("a.-1", (4, 5), 5),
        ("a.2", [4, 5], ABSENT),
        ("a.0", {"0": 6}, 6),
        ("a.0", {0: 6}, 6),
        ("a.0", SimpleNamespace(), ABSENT),
        ("a.b.c", SimpleNamespace(b={"c": None}), None),
        ("a.b.c", SimpleNamespace(b=None), ABSENT),
        ("a.name", Broken(), ABSENT),
        ("missing.b", 1, ABSENT),
    ],
)
def test_a_path_reads_attributes_keys_and_indexes(text: str, value: Any, found: Any) -> None:
    for _ in range(2):  # the second time the class is known
        assert Path(text).read({"a": value}) is found or Path(text).read({"a": value}) == found


def test_what_stands_for_something_else_is_asked_what_that_is() -> None:
    path = Path("a.keys")
    assert path.read({"a": wrapt.ObjectProxy(SimpleNamespace(keys=1))}) == 1
    assert path.read({"a": wrapt.ObjectProxy({"keys": 2})}) == 2


def test_classes_that_the_host_may_drop_are_not_kept() -> None:
    def use(kind: type) -> weakref.ref[type]:
        assert Path("a.b").read({"a": kind()}) == 1
        return weakref.ref(kind)

    class Local:
        b = 1

    gone = [use(Local), use(type("Made", (), {"b": 1}))]
    del Local
    gc.collect()
    assert [found() for found in gone] == [None, None]


def test_no_more_than_so_many_classes_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "_objects", set())
    monkeypatch.setattr(fields, "MAX_OBJECTS", 1)
    for value in (Node(b=1), SimpleNamespace(b=1)):
        assert Path("a.b").read({"a": value}) == 1
    assert fields._objects == {Node}
