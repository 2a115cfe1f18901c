"""Exceptions that end calls which did not fail (``outcomes`` of a spec)."""

from __future__ import annotations

import asyncio
import builtins
import importlib
from collections.abc import Iterator

import click
import pytest
import trio
import typer

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


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(),
        SystemExit(0),
        SystemExit(False),
        SystemExit(pytest.ExitCode.OK),
        click.exceptions.Exit(0),
        typer.Exit(),
    ],
    ids=repr,
)
def test_the_end_of_a_command_is_no_failure(recorder: Recorder, error: BaseException) -> None:
    def main() -> None:
        raise error

    def steps() -> Iterator[int]:
        yield 1
        raise error

    with pytest.raises(type(error)):
        recorder.wrap(main, role="trajectory")()
    with pytest.raises(type(error)):
        list(recorder.wrap(steps, role="trajectory")())
    closes = recorder.records(Close)
    assert [(close.status, close.attributes, close.error) for close in closes] == [
        ("OK", {"outcome": "exited"}, None)
    ] * 2


def test_a_group_has_the_status_that_its_exceptions_share(recorder: Recorder) -> None:
    group = (
        getattr(builtins, "BaseExceptionGroup", None) or importlib.import_module("exceptiongroup").BaseExceptionGroup
    )

    def fails(*raised: BaseException) -> None:
        raise group("", [group("", raised[:1]), *raised])

    fail = recorder.wrap(fails)
    for raised in ((KeyboardInterrupt(),), (asyncio.CancelledError(),), (asyncio.CancelledError(), ValueError())):
        with pytest.raises(group):
            fail(*raised)
    assert [close.status for close in recorder.records(Close)] == ["INTERRUPTED", "CANCELLED", "ERROR"]


def test_trio_cancels(recorder: Recorder) -> None:
    async def main() -> None:
        with trio.move_on_after(0):
            await recorder.wrap(trio_sleeps)()

    trio.run(main)
    (close,) = recorder.records(Close)
    assert close.status == "CANCELLED" and close.attributes == {"outcome": "cancelled"}


async def trio_sleeps() -> None:
    await trio.sleep_forever()
