"""What ``Retry-After`` may hold."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from autotrace.redact.masking import without_password
from autotrace.sinks.http import retry_after


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("", None), (None, None), ("soon", None)]
)
def test_a_number(value: str | None, seconds: float | None) -> None:
    assert retry_after(value) == seconds


def test_a_date() -> None:
    assert 50 < (retry_after(formatdate(time.time() + 60, usegmt=True)) or 0) <= 61
    assert retry_after(formatdate(time.time() - 60, usegmt=True)) == 0.0


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("http://bob:p@ss@host:5000/x", "http://host:5000/x"),
        ("http://host", "http://host"),
        ("sqlite:////a@b/mlflow.db", "sqlite:////a@b/mlflow.db"),
    ],
)
def test_an_address_without_its_password(uri: str, address: str) -> None:
    assert without_password(uri) == address
