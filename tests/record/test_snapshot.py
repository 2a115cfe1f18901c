"""Copies are exact where they are small, bounded where they are not, and never call user code."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pydantic
import pytest

from autotrace.config.plan import Settings
from autotrace.record.backlog import backlog
from autotrace.record.snapshot import Limits, snapshot
from autotrace.redact.redactor import REDACTED, Redactor
from autotrace.spool.records import Open
from tests.record.conftest import Recorder

LIMITS = Limits(6, 256)


class Hostile:
    def __repr__(self) -> str:
        raise AssertionError("repr was called")

    __str__ = __repr__

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was read")


class Text(str):
    __slots__ = ()


class Color(enum.Enum):
    RED = 1


@dataclass
class Output:
    token_ids: list[int]
    extra: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"role": "user", "content": "hi"}, {"role": "user", "content": "hi"}),
        ([{"a": [1, 2]}, "b"], [{"a": [1, 2]}, "b"]),
        ((1, "two"), [1, "two"]),
        (Output([1, 2], {"k": 0.5}), {"type": "Output", "token_ids": [1, 2], "extra": {"k": 0.5}}),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.array([1.0, 2.0]), [1.0, 2.0]),
        (np.zeros((100, 100)), {"…": "array", "dtype": "float64", "shape": [100, 100], "first": [0.0, 0.0, 0.0, 0.0]}),
        (Color.RED, "RED"),
        (list(range(1000)), {"…": "1000 numbers", "first": list(range(16))}),
        (ValueError("x"), {"type": "ValueError", "args": ["x"]}),
        (np.longdouble(0.5), 0.5),
        (
            np.array([0.5, 1], dtype=np.longdouble),
            {"…": "array", "dtype": "float128", "shape": [2], "first": [0.5, 1.0]},
        ),
        (np.array([{"a": 1}, "b"], dtype=object), [{"a": 1}, "b"]),
        ({1: "a", "1": "b", False: "c"}, {"1": "a", "1 #1": "b", "False": "c"}),
        ({(1, "a"): 1, (1, "b"): 2, None: 3}, {"(1, a)": 1, "(1, b)": 2, "None": 3}),
        ({Color.RED: 1}, {"RED": 1}),
        ((1, "x" * 10, 2.5), [1, "x" * 10, 2.5]),
        ([1, *["x"] * 400, 2], [1, *["x"] * 255, {"…": "146 more"}]),
    ],
)
def test_values(value: Any, expected: Any) -> None:
    assert snapshot(value, LIMITS) == expected


@pytest.mark.parametrize("wrap", [lambda text: text, lambda text: (1, text, 2), lambda text: {"a": [text]}, Text])
def test_a_long_string_is_cut_by_the_caller_and_its_length_told(wrap: Any) -> None:
    copied = snapshot(wrap("x" * 1_000_000), Limits(6, 256, 2_000))
    assert len(str(copied)) < 4_000
    cleaned = Redactor(Settings(max_string=2_000)).clean("value", copied)
    assert "x" * 2_000 + "… (998000 characters more)" in str(cleaned) and "x" * 2_001 not in str(cleaned)


def test_a_credential_across_the_cut_is_found() -> None:
    secret = "ghp_" + "a1B2" * 9
    for at in range(1_960, 2_001, 5):
        text = "x" * (at - 1) + " " + secret + " " + "y" * 10_000
        cleaned = Redactor(Settings(max_string=2_000)).clean("value", snapshot(text, Limits(6, 256, 2_000)))
        assert "ghp_" not in cleaned


def test_an_object_of_unknown_kind_is_its_type() -> None:
    assert snapshot(Hostile(), LIMITS) == {"…": f"{__name__}.Hostile"}


def test_a_copy_does_not_change_with_its_original() -> None:
    messages = [{"role": "user", "content": "hi", "tags": ["a"]}]
    copied = snapshot(messages, LIMITS)
    messages[0]["tags"].append("b")
    messages.append({})
    assert copied == [{"role": "user", "content": "hi", "tags": ["a"]}]


def test_depth_and_breadth_are_bounded() -> None:
    deep: Any = "end"
    for _ in range(100):
        deep = {"next": deep}
    assert len(str(snapshot(deep, LIMITS))) < 200
    assert len(snapshot([{"n": [n]} for n in range(10_000)], LIMITS)) == 257
    loop: list[Any] = []
    loop.append(loop)
    assert snapshot(loop, LIMITS)


@pytest.mark.parametrize(
    "inner", [{str(n): n for n in range(256)}, list(range(256)), tuple("x" * 600 for _ in range(256))]
)
def test_values_of_one_argument_are_bounded(inner: Any) -> None:
    def leaves(value: Any) -> int:
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 1 if items is None else sum(map(leaves, items))

    assert 6_000 < leaves(snapshot([[inner] * 250] * 8, LIMITS)) < 11_000


def test_every_snapshot_can_be_encoded() -> None:
    redactor = Redactor(Settings())
    odd = {
        1: "int key",
        ("a", 1): "tuple key",
        "big": 1 << 70,
        "bytes": b"\x00\x01",
        "set": {1},
        "nested": [{2: Hostile()}],
    }
    msgspec.msgpack.encode(redactor.clean("value", snapshot(odd, LIMITS)))


@pytest.mark.parametrize(
    "name",
    [
        "api_key", "OPENAI_API_KEY", "x-api-key", "Authorization", "access_token", "db_password", "client_secret",
        "token", "credentials", "X-Auth-Token", "accessToken", "HF_TOKEN", "aws_access_key_id", "Set-Cookie", "auth",
    ],
)  # fmt: skip
def test_secrets_are_told_by_name(name: str) -> None:
    redactor = Redactor(Settings())
    assert redactor.clean(name, "abc") == REDACTED
    assert redactor.clean("headers", {"deep": [{name: "abc"}]}) == {"deep": [{name: REDACTED}]}


@pytest.mark.parametrize(
    "name",
    ["token_ids", "prompt_token_ids", "max_tokens", "num_tokens", "keyboard", "tokens", "token", "pad_token", "author"],
)
def test_token_ids_are_no_secret(name: str) -> None:
    assert Redactor(Settings()).clean(name, [1, 2]) == [1, 2]


def test_tokens_of_a_model_are_no_secret() -> None:
    values = {"eos_token": "<eos>", "content": [{"token": " Hello", "logprob": -0.1}], "token": 151643}
    assert Redactor(Settings()).clean("x", values) == values


@pytest.mark.parametrize(
    "text",
    [
        "key sk-abcdefghijklmnopqrstuvwx",
        "hf_abcdefghijklmnopqrstuvwx",
        "Bearer abcdefghijklmnopqrstuvwx",
        "http://u:pw@host/",
    ],
)
def test_secrets_are_told_by_shape(text: str) -> None:
    cleaned = Redactor(Settings()).clean("text", text)
    assert REDACTED in cleaned and "abcdefghijklmnop" not in cleaned and "pw@" not in cleaned


def test_a_secret_behind_a_number_is_a_secret() -> None:
    redactor = Redactor(Settings())
    secret = "hf_abcdefghijklmnopqrstuvwx"
    assert redactor.clean("x", [1, secret, {"password": "p"}]) == [1, REDACTED, {"password": REDACTED}]


def test_own_keys_patterns_and_long_strings() -> None:
    redactor = Redactor(Settings(redact_keys=("patient_*",), redact_patterns=(r"\d{3}-\d{2}",), max_string=15))
    assert redactor.clean("x", {"Patient_Name": "Ann", "id": "123-45"}) == {"Patient_Name": REDACTED, "id": REDACTED}
    assert redactor.clean("x", "a" * 25) == "a" * 15 + "… (10 characters more)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"query": "q", "access_token": "abc/+"}', '{"query": "q", "access_token": "<redacted>"}'),
        (r'"{\"my_secret\": \"a b\", \"q\": 1}"', r'"{\"my_secret\": \"<redacted>\", \"q\": 1}"'),
        ("https://h/v1?a=1&api_key=K/1+2&z=3", "https://h/v1?a=1&api_key=<redacted>&z=3"),
        ('{"password": "cut off in the mid', '{"password": "<redacted>'),
        ("connect(api_key=settings.api_key)", "connect(api_key=settings.api_key)"),
        ('{"max_tokens": "5", "token_ids": "7"}', '{"max_tokens": "5", "token_ids": "7"}'),
        ('{"token": "abc", "X-Auth-Token": "d"}', '{"token": "<redacted>", "X-Auth-Token": "<redacted>"}'),
        ("https://h/?token=abc&next_token=5", "https://h/?token=<redacted>&next_token=5"),
    ],
)
def test_secrets_under_their_name_within_a_text(text: str, expected: str) -> None:
    assert Redactor(Settings()).clean("arguments", text) == expected


def test_a_copy_is_weighed() -> None:
    limits = Limits(6, 256, 10_000)
    snapshot([{"role": "user", "content": "x" * 9_000}, {"role": "user", "content": "y" * 9_000}], limits)
    assert 18_000 < limits.take_weight() < 22_000 and limits.take_weight() == 0
    snapshot("x" * 10_000_000, limits)
    assert 10_000 < limits.take_weight() < 50_000


def test_strings_that_wait_are_charged(recorder: Recorder) -> None:
    def echo(text: str) -> str:
        return text

    traced = recorder.wrap(echo)
    before = backlog.waiting()
    for number in range(20):
        traced(str(number) * 50_000)
    assert backlog.waiting() - before > 20 * 2 * 50_000
    recorder.records(Open)
    assert backlog.waiting() < 100_000


class Number(int):
    """Of the host's."""


@pytest.mark.parametrize(
    "value",
    [Number(7**2_000_000), Fraction(7**2_000_000, 3), [Fraction(3, 7**2_000_000)] * 100, {Number(7**2_000_000): 1}],
    ids=["int", "fraction", "fractions", "key"],
)
def test_huge_numbers_are_refused_by_their_length_and_not_written_out_first(value: Any) -> None:
    """To write out one of them takes seconds, or is an error, as the release of Python has it."""
    began = time.thread_time()
    copied = snapshot(value, LIMITS)
    assert time.thread_time() - began < 0.5
    assert len(str(copied)) < 10_000


def test_numbers_of_the_standard_library_are_written_out() -> None:
    values = [Fraction(1, 3), Decimal("1.50"), Number(7), Number(1 << 70), Decimal("7" * 10_000)]
    assert snapshot(values, LIMITS) == ["1/3", "1.50", 7, str(1 << 70), {"…": "long Decimal"}]


def test_what_a_pydantic_model_holds_beyond_its_fields_is_copied() -> None:
    class Answer(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        text: str = "hi"

    answer = Answer(function=Answer(), usage={"tokens": 3})  # type: ignore[call-arg]
    copied = snapshot(answer, Limits())
    assert (copied["text"], copied["function"]["text"], copied["usage"]) == ("hi", "hi", {"tokens": 3})
