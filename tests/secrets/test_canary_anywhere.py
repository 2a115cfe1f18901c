"""Secrets in any position of any structure are in no byte of a spool: as arguments, results and exceptions."""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotrace.config.plan import Settings
from autotrace.record import calls, faults, flusher
from autotrace.spool.records import Open
from tests.cases import examples
from tests.record.conftest import Recorder

TOKEN = "ghp_Cana7yCana7yCana7yCana7yCana7y"
"""Recognised wherever it stands."""
PASSWORD = "cAnArY7+hunter2"
"""Recognised by what stands before it."""


@dataclass
class Account:
    user: Any
    password: Any


class Pair(NamedTuple):
    header: Any
    value: Any


class Text(str):
    __slots__ = ()


class Failed(Exception):
    pass


NAMES = ("password", "api_key", "Authorization", "x-api-key", "DB_PASSWORD", "pw", "pass", "clientSecret", "HF_TOKEN")
TEXTS = (
    "redis://:{}@host:1/0", "postgres://bob:{}@host/db", "Authorization: Basic {}", "Authorization: Bearer {}",
    "x-api-key: {}", "export SERVICE_KEY={}", "password: {}", "login --password {} now",
    '{{"name": "api_key", "value": "{}"}}',
    '[["x-api-key", "{}"]]', '{{"pass": "{}"}}', "Client(api_key='{}')", "a\npassword={}\nb", "curl -u bob:{} http://h",
)  # fmt: skip

in_texts = st.sampled_from(TEXTS).map(lambda text: text.format(PASSWORD))
anywhere = st.one_of(
    st.just(TOKEN),
    st.tuples(st.text(max_size=20), st.sampled_from([" ", "\n", "=", '"', "/", "é"])).map(
        lambda parts: parts[0] + parts[1] + TOKEN
    ),
    st.integers(0, 3000).map(lambda before: "word " * before + TOKEN + " more" * 2000),
    in_texts,
    in_texts.map(Text),
    in_texts.map(str.encode),
    st.sampled_from(NAMES).map(lambda name: {name: PASSWORD}),
    st.sampled_from(NAMES).map(lambda name: (name, PASSWORD)),
    st.sampled_from(NAMES).map(lambda name: ["run", f"--{name}", PASSWORD]),
    st.sampled_from(NAMES).map(lambda name: {"name": name, "value": PASSWORD}),
    st.sampled_from(NAMES).map(lambda name: Pair(name, PASSWORD)),
    st.just(Account("bob", PASSWORD)),
    st.just(OrderedDict(password=PASSWORD)),
    in_texts.map(lambda text: np.array([text])),
    in_texts.map(lambda text: np.array([text, None], dtype=object)),
    in_texts.map(ValueError),
)


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(st.one_of(inner, st.integers(), st.none()), max_size=3),
        inner.map(lambda value: (1, value, 2.5)),
        inner.map(lambda value: [1, *["x"] * 50, value, 2]),
        st.dictionaries(st.one_of(st.text(max_size=4), st.just(TOKEN), st.just((TOKEN, 1))), inner, max_size=3),
        inner.map(lambda value: Account(value, None)),
        inner.map(
            lambda value: frozenset([value]) if isinstance(value, str) else {value: 1} if value is None else [value]
        ),
    )


structures = st.recursive(anywhere, _around, max_leaves=6)


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    before = dict(calls.probes)
    faults.counts.clear()
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder))
        recorder.use(Settings(flush_interval=0.01, max_string=4_000))
        yield recorder
        flusher.stop()
    calls.probes.clear()
    calls.probes.update(before)


@settings(max_examples=examples(300), deadline=None)
@given(structures)
def test_no_secret_is_in_a_spool(recorder: Recorder, value: Any) -> None:
    def echo(first: Any, *rest: Any, **named: Any) -> Any:
        return first

    def fails(first: Any) -> None:
        raise Failed(first, f"cannot reach redis://:{PASSWORD}@host")

    recorder.wrap(echo, attributes={"kept": ("first",)})(value, value, other=value, password=PASSWORD)
    with pytest.raises(Failed):
        recorder.wrap(fails)(value)
    flusher.flush()
    assert not faults.counts
    files = [path for path in recorder.folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".seg" for path in files)
    for path in files:
        data = path.read_bytes()
        assert TOKEN.encode() not in data and b"Cana7yCana7y" not in data
        assert PASSWORD.encode() not in data and b"hunter2" not in data


def test_what_is_no_secret_is_there(recorder: Recorder) -> None:
    def fetch(url: str, headers: Any) -> str:
        return url

    headers = [("accept", "text/html"), ("x-api-key", PASSWORD)]
    recorder.wrap(fetch)(f"https://bob:{PASSWORD}@search.example/v1?q=apples", headers)
    opened = recorder.records(Open)[-1]
    assert opened.inputs["url"] == "https://bob:<redacted>@search.example/v1?q=apples"
    assert opened.inputs["headers"] == [["accept", "text/html"], ["x-api-key", "<redacted>"]]
