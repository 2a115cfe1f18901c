"""An answer that is a plain object is read by its attributes, and none of its code runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotrace.record import faults
from autotrace.run.losses import losses
from autotrace.spool.records import Close

from .conftest import Recorder


class Plain:
    def __init__(self, content: Any, **more: Any) -> None:
        self.content = content
        self._client = "not shown"
        vars(self).update(more)

    @property
    def lazily(self) -> str:
        raise AssertionError("a property of the host's")

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            return object.__getattribute__(self, name)
        raise AssertionError("code of the host's")

    __getattr__ = __repr__ = __str__ = __len__ = __iter__ = __eq__ = __hash__ = None  # type: ignore[assignment]


class Slots:
    __slots__ = ("content", "unset")

    def __init__(self, content: Any) -> None:
        self.content = content


class Below(Slots):
    """A subclass that has a dictionary, too."""


def circle() -> SimpleNamespace:
    made = SimpleNamespace(content="round")
    made.itself = made
    return made


@pytest.mark.parametrize("role", ["llm", "tool", "agent", "trajectory"])
def test_attributes_are_read(recorder: Recorder, role: str) -> None:
    def ask(answer: Any) -> Any:
        return answer

    asked = recorder.wrap(ask, role=role, include=("result",))
    message = SimpleNamespace(content="deep", tool_calls=[Slots("call")])
    for answer in (Plain("a"), SimpleNamespace(content="a"), Slots("a"), Below("a"), [Slots("a")]):
        asked(answer)
    asked(Plain([SimpleNamespace(message=message)]))
    asked(circle())
    outputs = [close.output for close in recorder.records(Close)]
    names = ("Plain", "SimpleNamespace", "Slots", "Below")
    assert outputs[:4] == [{"type": name, "content": "a"} for name in names]
    assert outputs[4] == [{"type": "Slots", "content": "a"}]
    (choice,) = outputs[5]["content"]
    assert choice["message"]["content"] == "deep" and choice["message"]["tool_calls"][0]["content"] == "call"
    assert outputs[6]["itself"]["itself"]["content"] == "round"


def test_a_helper_that_returns_its_client_is_not_searched(recorder: Recorder) -> None:
    recorder.wrap(lambda: Plain("a"), key="make")()
    (close,) = recorder.records(Close)
    assert close.output == {"…": f"{__name__}.Plain"}


def test_an_answer_that_stores_nothing_is_counted(recorder: Recorder) -> None:
    recorder.wrap(lambda: object(), key="ask", role="llm")()
    assert recorder.records(Close)[0].output == {"…": "builtins.object"} and faults.counts == {"drop:answer": 1}
    assert losses(faults.counts)[0].startswith("1 answer not recorded: the object stores nothing")
