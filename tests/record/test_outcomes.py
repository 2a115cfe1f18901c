"""Exceptions that end calls which did not fail (``outcomes`` of a list)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotrace.record import errors
from autotrace.spool.records import Close

from .conftest import Recorder


class Left(BaseException):
    """By which a library leaves a call."""


class Handover(Left):
    """A kind of it that the list does not name."""


class Paused(Left):
    """A kind of it that the list does name."""


@pytest.fixture(autouse=True)
def others() -> Iterator[None]:
    before = dict(errors.outcomes)
    yield
    errors.outcomes.clear()
    errors.outcomes.update(before)


@pytest.mark.parametrize(
    ("error", "status", "outcome"),
    [(Left, "OK", "left"), (Handover, "OK", "left"), (Paused, "OK", "paused"), (KeyError, "ERROR", None)],
)
def test_the_nearest_name_counts_in_every_call(
    recorder: Recorder, error: type[BaseException], status: str, outcome: str | None
) -> None:
    def inner() -> None:
        raise error

    def outer() -> None:
        traced()

    traced = recorder.wrap(inner, role="tool")
    named = {f"{Left.__module__}.Left": "left", f"{Paused.__module__}.Paused": "paused"}
    with pytest.raises(error):
        recorder.wrap(outer, role="trajectory", outcomes=named)()
    closes = recorder.records(Close)
    assert [(close.status, (close.attributes or {}).get("outcome")) for close in closes] == [(status, outcome)] * 2
    assert all((close.error is None) is (status == "OK") for close in closes)
