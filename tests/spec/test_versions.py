"""Version ranges: which can hold at all, and which hold for what is installed."""

from __future__ import annotations

import pytest

from autotrace.spec import names


@pytest.mark.parametrize(
    "text",
    [
        "verl>=0.5", "verl>=0.5,<0.8", "verl<0.11", "verl==0.9.*", "verl~=0.9.1", "verl!=0.7.0", "verl>0.5,<0.6",
        "verl>0.5,<0.5.1", "verl==0.9.1", "verl>=0.6,!=0.6.0,<0.7", "verl===custom", "verl<=0.5,>=0.5",
    ],
)  # fmt: skip
def test_ranges_that_some_release_is_in(text: str) -> None:
    assert names.wrong_range(text) is None


@pytest.mark.parametrize(
    "text", ["verl>=0.9,<0.5", "verl==0.5,==0.6", "verl>0.5,<0.5", "verl==0.5.*,>=0.6", "verl>=1.0rc1,<1.0"]
)
def test_ranges_that_no_release_is_in(text: str) -> None:
    assert "excludes every release" in (names.wrong_range(text) or "")


def test_prereleases_and_unreadable_versions_are_in_range() -> None:
    assert names.within("verl>=0.9", "0.10.0.dev0")
    assert names.within("vllm>=0.10", "dev")
    assert not names.within("verl>=0.5,<0.8", "0.9.1")
