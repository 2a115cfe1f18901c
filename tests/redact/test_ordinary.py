"""Texts are passed over quickly only where all rules together would find nothing, and searched only where they would
find something."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotrace.config.plan import Settings
from autotrace.redact import credentials, named_values, secret_names
from autotrace.redact.credentials import ORDINARY, REDACTED, signs, without_credentials
from autotrace.redact.redactor import Redactor
from tests.cases import examples
from tests.redact.test_rules import EXAMPLES

WORDS = [
    "pw", "pwd", "upwards", "db_pw: abc123xy", "dbPwd=abc123xy", "PW=abc123", "pwd is abc123xy", "the", "hello",
    "API key", "private_key", "token", "access token", "password", "passphrase", "secret", "is", "was", "will be", "=",
    "for the server", "use password", "identified by '", "IDENTIFIED BY '", "with password '", ":", '"', "'", "`", "`",
    "https://u:hunter2@h/", "a@b.c", "curl -u bob:hunter2", "--user a:hunter2", "mysql -u root -phunter2", "sshpass -p",
    "machine h login b password hunter2", "Bearer", "bearer", "basic", "Basic", "?key=a1B2c3D4", "&sig=a1B2c3D4e5F6",
    "x?x-goog-signature=a1B2c3D4", "S3cr3tW0rd!", "abcdef123456", "\u017fecret", "\u212aey", "你好", "<password>x",
    "Authorization: Basic", "<|im_start|>user", "-----BEGIN PRIVATE KEY-----", "MIIEabcdefgh0123456789==", "\n",
    "hooks.slack.com/services/T00/B00/a1B2c3D4e5F6g7H8i9", "iVBORw0KGgo", ";base64,", "\\", ",", "cookie", "\ud800",
]  # fmt: skip
TEXTS = st.lists(
    st.sampled_from(WORDS) | st.sampled_from(EXAMPLES),
    max_size=20,
).map(" ".join)


def by_all_rules(text: str) -> str:
    """``without_credentials`` without its short cuts."""
    runs = credentials._plain(text).encode().translate(credentials._RUNS)
    text = credentials._without_tokens(text, runs, REDACTED)
    text = credentials._without_private_keys(text, REDACTED)
    text = credentials.without_userinfo(text, REDACTED)
    lower = credentials._plain(text).lower()
    starts = secret_names.name_starts(lower, secret_names.FRAGMENTS)
    text = named_values._without(text, starts, REDACTED, False)
    text = credentials._without_members(text, REDACTED)
    text = credentials._without_schemes(text, REDACTED)
    for place, pattern, _ in credentials._PLACES:
        if any(needle in credentials._plain(text) for needles in place.needles.values() for needle in needles):
            text = pattern.sub(lambda match: match["head"] + REDACTED, text)
    return text


@settings(max_examples=examples(1500), deadline=None)
@given(TEXTS)
def test_short_cuts_change_nothing(text: str) -> None:
    expected = by_all_rules(text)
    assert without_credentials(text) == expected
    if signs(text) == ORDINARY:
        assert expected == text


@settings(max_examples=examples(1500), deadline=None)
@given(TEXTS, st.lists(st.integers(0, 200), max_size=6))
def test_the_signs_of_a_text_are_those_of_its_parts_and_of_where_they_meet(text: str, cuts: list[int]) -> None:
    borders = sorted(min(cut, len(text)) for cut in cuts)
    parts = [text[begin:end] for begin, end in itertools.pairwise([0, *borders, len(text)])]
    redactor = Redactor(Settings())
    known = redactor.signs_of_whole(text, map(redactor.signs, parts), borders)
    assert redactor.cleaned(text, known) == redactor.text(text)
    if known is not None:
        assert signs(text) <= known


FOLDED = [("s", "\u017f"), ("k", "\u212a"), ("i", "\u0131"), ("i", "\u0130")]
"""Letters of ASCII, and others that a pattern that ignores case takes for them."""


@pytest.mark.parametrize(("letter", "other"), FOLDED)
def test_letters_that_fold_to_ascii_are_that_letter(letter: str, other: str) -> None:
    for text in [
        f"{word} {value}" for word in (*WORDS, *EXAMPLES) for value in ("is abc123xy", "hunter2", "= a1B2c3D4")
    ]:
        folded = text.replace(letter, other)
        assert without_credentials(folded) == by_all_rules(folded)
        assert signs(folded) == signs(text.replace(letter.upper(), letter))
    assert without_credentials("the \u017fecret is abc123xy") == f"the \u017fecret is {REDACTED}"
    assert (
        without_credentials("CREATE USER x \u0131dentified by 'hunter2'")
        == f"CREATE USER x \u0131dentified by '{REDACTED}'"
    )


@settings(max_examples=examples(700), deadline=None)
@given(st.lists(TEXTS, max_size=5))
def test_the_signs_of_several_texts_are_those_of_each(texts: list[str]) -> None:
    redactor = Redactor(Settings())
    assert redactor.signs_of_each(texts) == list(map(redactor.signs, texts))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"redact_patterns": ("hello",)}, "say hello"),
        ({"max_string": 3}, "hello"),
        ({}, "data:image/png;base64,AAAA"),
        ({}, "iVBORw0KGgo"),
        ({}, "\ud800"),
    ],
)
def test_a_text_that_may_change_for_another_reason_is_not_ordinary(changed: dict[str, object], text: str) -> None:
    redactor = Redactor(dataclasses.replace(Settings(), **changed))  # type: ignore[arg-type]
    assert redactor.signs(text) is None
    assert signs(text) == ORDINARY


def test_usual_text_is_ordinary() -> None:
    """Else nothing is saved."""
    text = "The cat - which I saw upwards of 3 times - sat = lay on the mat, don't you think? <|im_end|>\n" * 20
    assert signs(text) == ORDINARY
    assert signs(f"{text}my key") == {"key"}
