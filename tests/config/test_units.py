"""Sizes as people write them."""

from __future__ import annotations

import pytest

from autotrace.config.written import parse_bytes


def test_sizes() -> None:
    assert parse_bytes("1.5GB") == 1_500_000_000 and parse_bytes("20 kb") == 20_000
    with pytest.raises(ValueError, match="500MB"):
        parse_bytes("many")
