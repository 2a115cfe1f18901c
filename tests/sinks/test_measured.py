"""What autotrace measures of a call is shown by every backend, without a line in any of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource

from autotrace.sinks import payload
from autotrace.sinks.jsonl.sink import line_of
from autotrace.sinks.mlflow.spans import encode
from autotrace.sinks.otlp.spans import otel_span
from autotrace.sinks.weave.calls import WeaveCalls
from autotrace.spool.records import MEASURED
from autotrace.trajectory.model import Span, Trajectory

START = 1_700_000_000_000_000_000


@dataclass
class Measured(Span):
    """A span with one field more."""

    retries: int | None = None


def jsonl(trajectory: Trajectory) -> dict[str, Any]:
    """The fields of the root."""
    line: dict[str, Any] = line_of(trajectory)["spans"][0]
    return line


def weave(trajectory: Trajectory) -> dict[str, Any]:
    """The attributes of its call."""
    attributes: dict[str, Any] = WeaveCalls(trajectory, "team/project", None).of(trajectory.root)["attributes"]
    return attributes


def mlflow(trajectory: Trajectory) -> dict[str, Any]:
    """The attributes of its span that are numbers, without our prefix."""
    attributes = encode(trajectory)[0].attributes
    return {name.removeprefix("autotrace."): value for name, value in attributes.items() if type(value) is int}


def otlp(trajectory: Trajectory) -> dict[str, Any]:
    """The attributes of its span, without our prefix."""
    attributes = otel_span(trajectory, trajectory.root, Resource({})).attributes or {}
    return {name.removeprefix("autotrace."): value for name, value in attributes.items()}


BACKENDS = [jsonl, mlflow, otlp, weave]


def one(**measured: int) -> Trajectory:
    """A trajectory of one call."""
    span = Measured("1" * 16, None, "Planner.explain", "trajectory", "key", START, START + 10, "OK", **measured)
    return Trajectory("2" * 32, "run", [span])


@pytest.mark.parametrize("show", BACKENDS)
@pytest.mark.parametrize("value", [0, 3])
def test_a_new_field_is_shown_even_where_it_is_0(
    show: Callable[[Trajectory], dict[str, Any]], value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(payload.NOT_MEASURED, "retries", None)
    assert show(one(retries=value))["retries"] == value
    assert "retries" not in show(one())


@pytest.mark.parametrize("show", [jsonl, mlflow, weave])
def test_the_items_of_a_stream_are_shown_where_there_were_any(show: Callable[[Trajectory], dict[str, Any]]) -> None:
    assert show(one(items=7))["items"] == 7
    assert "items" not in show(one())


def test_in_json_lines_they_stand_last() -> None:
    assert list(jsonl(one(items=7, first_item_ns=START + 1)))[-3:] == ["attributes", "items", "first_item_ns"]


def test_every_measured_field_is_one_of_a_span() -> None:
    assert set(payload.NOT_MEASURED) == set(MEASURED)
