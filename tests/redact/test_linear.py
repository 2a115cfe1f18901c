"""Redaction takes time in proportion to the text, whatever a looping model repeats."""

from __future__ import annotations

import time

import pytest

from autotrace.config.plan import Settings
from autotrace.redact.redactor import Redactor

SIZE = 30_000
"""Characters; a quadratic step of 100 ns a pair would take seconds."""
REPEATED = [
    "eyJ-",
    "eyJ-a",
    "AKIAAAAAAAAAAAAAAAAA-",
    "AKIAAAAAAAAAAAAAAAAA.",
    "-----BEGIN PRIVATE KEY-----.",
    "password=abc,",
    "password=abc ",
    "password: abc ",
    "token=,a",
    "token=",
    "the_token=",
    "sk-",
    "Authorization: ",
    "password: ",
    "://",
    "eyJ",
    "-----BEGIN",
    "-----BEGIN RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY----- a",
    "--password ",
    "--password",
    "'",
    '"',
    "\\",
    '\\"',
    "=",
    ":",
    "=:",
    "password='",
    'password="',
    'password=\\"',
    "'password': '",
    "'password', '",
    '"token":',
    "token",
    "secret",
    "password",
    "key=a,",
    "token=a,b",
    "token=(",
    "token=[",
    "token=),",
    "api_key=x1)",
    "a://b@",
    "a://b:c",
    "a:",
    "http://",
    "http://a:b@",
    "@://",
    "-u a:",
    "--user a:b",
    "-u ",
    "Bearer ",
    "bearer  ",
    "Basic ",
    "Basic a",
    "cookie: a",
    "Cookie:\n",
    "authorization: basic ",
    "hooks.slack.com/services/",
    "eyJaaaaaaaaaaaaaaaaaaaa",
    "eyJaaaaaaaaaaaaaaaaaaaa.",
    "sk-aaaaaaaaaaaaaaaa",
    "sk-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-",
    "SG.aaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaa ",
    "aaaaaaaaaaaaaaaaaaaa.",
    '"value": "',
    "'value':'a','name':'",
    '"value": "a", "name": "',
    '{"name": "',
    '\\"value\\": \\"',
    "password\n",
    "password =",
    "password = ",
    "token =\n",
    "a.token",
    "--token=",
    "-token",
    "x_password:",
    "x_key",
    "KEY=",
    "A_KEY=",
    "PRIVATE KEY",
    "_",
    "-",
    ".",
    "password=aA1(",
    "pass",
    "pw:",
    "password\\",
    'password\\\\"',
    "bearer\t",
    "Bearer \n",
    "token token ",
    "'token'",
    "'token',",
    "'token','a'",
    "[('token','",
    "password=<",
    "password=${",
    "password={{",
    "password: <a",
    "$(",
    "token='<",
    "token='{",
    "jwt jwt=",
    "Digest ",
    "sk-a1",
    "AKIA",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=",
    "€token=",
    "password=a.a(",
    "password=self.",
    "<password>",
    "<password ",
    "<a:pw>b",
    "<password>a</",
    "password: |\n ",
    "token: |\n a\n ",
    " password: >\n  a\n",
    "machine ",
    "machine a login b ",
    "default login password ",
    "mysql ",
    "mysql -u ",
    "mysql -p",
    "password is ",
    "the password ",
    "password for a ",
    "password is a1",
    "api key is a1,",
    "x['password'] = ",
    "x['password'] = '",
    'password = """',
    "password = f'",
    "password = `",
    "password || ",
    "password string = ",
    "mysql-",
    "sshpass -p",
    "sshpass ",
    "?key=",
    "&key=a",
    "&sig=a",
    "?x-a-signature=",
]


def _seconds(*texts: str) -> list[float]:
    """The least CPU time that each takes, in turns: what else the machine does, it does to all of them."""
    redactor = Redactor(Settings(max_string=1 << 30))
    spent: list[list[float]] = [[] for _ in texts]
    for _ in range(3):
        for text, times in zip(texts, spent, strict=True):
            began = time.thread_time()
            redactor.clean("text", text)
            times.append(time.thread_time() - began)
    return [min(times) for times in spent]


@pytest.mark.parametrize("unit", REPEATED)
@pytest.mark.parametrize("before", ["", "token="], ids=["alone", "behind a name"])
def test_a_repetition_takes_linear_time(unit: str, before: str) -> None:
    """Eight times the text takes eight times as long; a quadratic step would take 64 times as long."""
    short, long = _seconds(*(before + unit * (size // len(unit)) for size in (SIZE // 2, 4 * SIZE)))
    assert long <= 24 * short + 0.01


def test_what_is_repeated_is_looked_at_once() -> None:
    """Not each of the names in it."""
    distinct = "".join(f"jwt{number % 1_000_000}:" for number in range(8 * SIZE // 10))
    repeated, looked_at = _seconds("jwt:" * (8 * SIZE // 4), distinct)
    assert repeated <= looked_at
