"""Keep-rules as they are written after ``--keep``."""

from __future__ import annotations

import pytest

from autotrace.config.written import KeepRules


@pytest.mark.parametrize(
    ("words", "rules"),
    [
        ([], None),
        (["errors", "random=0.1"], KeepRules(errors=True, random=0.1)),
    ],
)
def test_words(words: list[str], rules: KeepRules | None) -> None:
    assert KeepRules.parse(words) == rules


@pytest.mark.parametrize("word", ["eror", "errors=1", "slowest=5", "random", "random=x", "random=2"])
def test_a_wrong_word_is_answered_with_what_to_write(word: str) -> None:
    with pytest.raises(ValueError, match="write"):
        KeepRules.parse([word])
