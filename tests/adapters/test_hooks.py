"""What adapters attach to a library's methods: its callers notice nothing of it."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from typing import Any

import pytest

from autotrace.adapters.hooks import showing
from autotrace.record import faults


class Seen:
    """What was shown."""

    def __init__(self) -> None:
        self.before: list[Any] = []
        self.after: list[Any] = []

    def came(self, *args: Any, **kwargs: Any) -> None:
        self.before.append((args, kwargs))

    def went(self, result: Any, *args: Any, **kwargs: Any) -> None:
        self.after.append((result, args, kwargs))


def plain(*args: Any, **kwargs: Any) -> Any:
    return [args, kwargs]


async def awaited(*args: Any, **kwargs: Any) -> Any:
    return [args, kwargs]


def called(function: Any, *args: Any, **kwargs: Any) -> Any:
    result = function(*args, **kwargs)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


@pytest.mark.parametrize("original", [plain, awaited])
def test_arguments_and_result_are_shown_whatever_they_are_called(original: Any) -> None:
    seen, given = Seen(), {"shown": 1, "before": 2, "after": 3, "original": 4, "site": 5}
    made = showing(original, "test", before=seen.came, after=seen.went)
    assert inspect.iscoroutinefunction(made) == inspect.iscoroutinefunction(original)
    result = called(made, 0, **given)
    assert result == [(0,), given]
    assert seen.before == [((0,), given)] and seen.after == [(result, (0,), given)]


@pytest.mark.parametrize("original", [plain, awaited])
def test_what_fails_in_it_is_counted_and_the_call_goes_on(original: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "counts", Counter())

    def fail(*_: Any) -> None:
        raise ValueError

    assert called(showing(original, "test", before=fail, after=fail), 1) == [(1,), {}]
    assert faults.counts == {"fault:test": 2}


def test_what_the_library_raises_arrives() -> None:
    seen = Seen()

    def broken() -> None:
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        showing(broken, "test", before=seen.came, after=seen.went)()
    assert len(seen.before) == 1 and not seen.after
