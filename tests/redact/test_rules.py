"""Every rule of ``rules.json`` finds what it is for, wherever it stands, and nothing that only looks like it."""

from __future__ import annotations

import datetime
import json
import re

import pytest

from autotrace.redact import rules
from autotrace.redact.credentials import REDACTED, without_credentials
from tests.places import ROOT

MIX = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
KINDS = {"": MIX, "l": MIX.lower(), "u": MIX.upper(), "x": "0123456789abcdef"}
DATA = json.loads((ROOT / "autotrace" / "redact" / "rules.json").read_text())


def written_out(example: str) -> str:
    """An example of the file, which holds nothing that looks like a real key, as it looks."""
    return re.sub(r"\{([lux]?)(\d+)\}", lambda match: (KINDS[match[1]] * 9)[: int(match[2])], example)


def parts(example: str) -> tuple[str, str, str]:
    """What stands before the secret of an example, the secret, what stands behind it."""
    if "[[" not in example:
        return "", written_out(example), ""
    before, _, rest = written_out(example).rpartition("[[")
    secret, _, behind = rest.partition("]]")
    return before, secret, behind


EXAMPLES = [
    written_out(example) for rule in (*rules.TOKENS, *rules.HOOKS) for example in rule.masked if "[[" not in example
]


@pytest.mark.parametrize("rule", [*rules.TOKENS, *rules.HOOKS], ids=lambda rule: rule.name)
def test_a_shape(rule: rules.Rule) -> None:
    for before, secret, behind in map(parts, rule.masked):
        assert re.search(rule.pattern, before + secret + behind)[0].endswith(secret), secret  # type: ignore[index]
        assert re.search(r"[\w-]{18,}", secret, re.A), secret
        assert without_credentials(before + secret + behind) == before + REDACTED + behind
        for text in ("{}", "The key: {}, say.", "é{}\n", "a={}&b", '"{}"', "x_{} y", "(" + "word " * 500 + "{})"):
            cleaned = without_credentials(text.format(before + secret + behind))
            assert secret not in cleaned and REDACTED in cleaned, text
            assert len(cleaned) >= len(text) - 2  # the rest stays
    for text in map(written_out, rule.kept):
        assert without_credentials(f"see {text} there") == f"see {text} there"


@pytest.mark.parametrize("rule", rules.PLACES, ids=lambda rule: rule.name)
def test_a_place(rule: rules.CredentialContext) -> None:
    for example in rule.masked:
        before, secret, behind = parts(example)
        for around in ("", "word " * 500 + "\n"):
            assert without_credentials(around + before + secret + behind) == around + before + REDACTED + behind
        assert re.search(rule.pattern, before + secret + behind)
    for text in map(written_out, rule.kept):
        assert without_credentials(text) == text


def test_each_rule_says_where_it_comes_from() -> None:
    assert datetime.date.fromisoformat(DATA["checked"])
    every = [rule for kind in ("tokens", "hooks", "places") for rule in DATA[kind]]
    assert len({rule["name"] for rule in every}) == len(every) > 90
    for rule in every:
        assert rule["masked"] and rule["kept"] and len(rule["source"]) > 5, rule["name"]


def test_several_in_one_text() -> None:
    first, second = "ghp_" + MIX, "sk-" + MIX
    assert without_credentials(f"{first},{second};{first}") == f"{REDACTED},{REDACTED};{REDACTED}"


@pytest.mark.parametrize("newline", ["\n", "\\n"])
@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_private_keys(kind: str, newline: str) -> None:
    lines = ["before", f"-----BEGIN {kind}-----", MIX, MIX + "+/==", f"-----END {kind}-----", "after, all of it"]
    cleaned = without_credentials(newline.join(lines))
    assert cleaned == newline.join(["before", REDACTED, "after, all of it"])
    cut = without_credentials(newline.join(lines[:4])[:-20])
    assert cut == f"before{newline}{REDACTED}"


def test_what_only_speaks_of_private_keys() -> None:
    text = 'if "-----BEGIN PRIVATE KEY-----" in text: raise ValueError("this is a private key")'
    assert without_credentials(text) == text
