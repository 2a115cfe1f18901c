"""List the names whose values are secrets (in records, command lines and environments), and find names in a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from autotrace.redact.rules import NO_SECRET_KEYS, NO_SECRETS, OF_A_TEXT, PASSWORDS

NOT, TEXT, SECRET, PARAMETER = 0, 1, 2, 3
"""Kinds of names. ``TEXT``: a text is a secret, a number is not (``token=151643`` is a token of a model).
``PARAMETER``: a text is a secret if the text looks like a secret: ``key`` of an address."""

_FOREIGN = tuple(word for word in PASSWORDS if word.isascii() and "pass" not in word)
FRAGMENTS = ("pass", "secret", "token", "key", "auth", "cookie", "cred", *_FOREIGN, "pw")
"""Fragments of secrets' names: every name that ``kind`` takes for a secret contains a fragment, in plain letters. Only
``jwt`` has none: a shape finds the values."""
_FOREIGN_NAME = re.compile(rf"(?:^|_|[^\x00-\x7f])(?:{'|'.join(PASSWORDS).replace(' ', '_')})[是为為は는은]?$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ANYWHERE = re.compile(r"api_?key|access_?key|private_?key|secret|passwor[dt]|passwd|passphrase|passcode")
_KEY = re.compile(
    r"(?:account|auth|signing|encryption|decryption|master|storage|shared|subscription|consumer|webhook|license|deploy|"
    r"service|service_role|ssh|hmac|aes|application|functions)_?key$"
)
_AT_THE_END = re.compile(
    r"(?:^|_)(?:cred(?:ential)?s?|authorization|cookies?|pwd|pw|client_key_data|(?:auth|access|refresh|api)_?tokens)$"
)
_WHOLE = frozenset({"auth", "bearer", "jwt"})
_PASS = re.compile(
    r"(?:^|db_|user_|login_|root_|admin_|smtp_|ftp_|ssh_|mysql_|redis_|proxy_|vault_|become_|sudo_|mongo_|keystore_|^pg)pass$"
)
_TEXT_AT_THE_END = re.compile(
    r"_(?:auth|jwt|bearer)$|(?:^|_)pat$|(?:^|_)(?:openai|anthropic|gemini|mistral|hf|wandb|llm|app|client|supabase|anon|"
    r"stripe|sendgrid|twilio|mailgun)_?key$|(?:^|_)(?:conn(?:ection)?_str(?:ing)?|webhook_url)$"
    r"|(?:auth|access|api|refresh|bearer|session|[cx]srf|private|personal)_?token$"
)
_ABOUT = re.compile(
    r"_(?:len(?:gth)?|count|min|max|policy|hint|field|required|set|files?|path|number|word|santa|type|label|name|colou?r|strength)$"
)
"""Matches ends of names that describe a secret without holding the secret."""
_KEY_OF_A_SHELL = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_KEY")


def kind(name: str) -> int:
    """Return ``NOT``, ``TEXT`` or ``SECRET`` for a name.

    ``x-auth-token``, ``accessToken`` and ``HF_TOKEN`` are read alike; ``tokens``, ``token_ids`` and ``max_tokens`` are
    not secrets.
    """
    words = re.sub(r"[\W_]+", "_", _CAMEL.sub("_", name)).strip("_").lower()
    if " " not in name and _ABOUT.search(words):
        return NOT
    if _ANYWHERE.search(words) or _AT_THE_END.search(words) or _KEY.search(words) or words in _WHOLE:
        return SECRET
    if _PASS.search(words) or _TEXT_AT_THE_END.search(words):
        return TEXT
    if _FOREIGN_NAME.search(words):
        return PARAMETER if words.endswith("parola") else TEXT
    if _KEY_OF_A_SHELL.fullmatch(name) and name.split("_")[-2] not in NO_SECRET_KEYS:
        return TEXT
    if words != "token" and not words.endswith("_token"):
        return NOT
    return NOT if words.removesuffix("token").strip("_").rpartition("_")[2] in OF_A_TEXT else TEXT


_CAMEL_CASE = re.compile(r"[a-z]*(?:[A-Z][a-z]{2,}|[A-Z]{2,}(?=[A-Z][a-z]|\Z))*")


def is_mixed(value: str) -> bool:
    """Tell whether at least eight letters mix upper and lower case, without being words joined as in source code."""
    mixed = len(value) >= 8 and value.isalpha() and not value.islower() and not value[1:].islower()
    return mixed and not value.isupper() and _CAMEL_CASE.fullmatch(value) is None


_WORD = re.compile(r"[A-Z]{1,8}|.{0,2}|\d{1,6}|[\s\u0120\u010a\u2581#<].*|.*[^\x21-\x7e].*", re.DOTALL)
_WORDS = frozenset({"token", "secret"})
OF_A_MODEL = ("logprob", "logprobs", "token_id", "token_ids")
"""Names beside a piece of text, or a list, that is a model's token."""


def is_word(name: str, value: object) -> bool:
    """Tell whether the value under ``token`` or ``secret`` is a model's token, a coin, or the word of a game."""
    if type(value) is list:
        return bool(value) and all(is_word(name, each) for each in value)
    return name.lower() in _WORDS and type(value) is str and _WORD.fullmatch(value) is not None


_SENTENCE = re.compile(r"[\u3001-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
"""Matches a letter of a language that writes sentences without blanks."""


def is_strong(value: str) -> bool:
    """Tell whether a text under ``token``, which may be a token of a model, is a credential."""
    random = any(map(str.isdigit, value)) or is_mixed(value)
    return len(value) >= 8 and " " not in value and random and _SENTENCE.search(value) is None


_PLACEHOLDER = re.compile(
    r"(?:(?i:basic|bearer)\s+)?(?:<[^<>]*>(?::<[^<>]*>)?|\{\{?[^{}]*\}?\}|![vV]ault|!Ref|!secret|\$\{?\w+\}?|\$\(.*\)|%\w|\*+|\.{3}|"
    r"(?i:(?:[a-z]{1,9}[_-]){0,3}(?:x{3,}|\.{3})))"
)
_NO_SECRET = re.compile(rf"(?:bearer|sk|hf)?(?:{'|'.join(NO_SECRETS)})")
_NO_WORD = re.compile(r"[\W_]+")
_CAPITALS = re.compile(r"[A-Z]+_[A-Z_]+")
_FIELDS = re.compile(r"\{[^{}]*\}")
_NO_LETTERS = re.compile(r"[\W\d_]+")


def says_nothing(value: str) -> bool:
    """Tell whether a value stands for a missing secret, or names a scheme: ``<your key>``, ``EMPTY``, ``omit``."""
    return bool(_PLACEHOLDER.fullmatch(value) or _NO_SECRET.fullmatch(_NO_WORD.sub("", value).lower()))


def is_placeholder(value: str, name: str) -> bool:
    """Tell whether the value only names the expected secret: ``<your key>``, ``${TOKEN}``, ``PASSWORD``."""
    is_format = "{" in value and not any(map(str.isalnum, _FIELDS.sub("", value)))
    if is_format or says_nothing(value) or _CAPITALS.fullmatch(value):
        return True
    if any(map(str.isdigit, value)):
        return False
    return _NO_LETTERS.sub("", value).lower() == _NO_LETTERS.sub("", name.rpartition(".")[2]).lower()


secret_kind = lru_cache(maxsize=10_000)(kind)


def fragments(plain: str, lower: str) -> list[str]:
    """Find the ``FRAGMENTS`` that may be part of a secret's name in ``plain``. ``lower`` is ``plain`` in small
    letters."""
    having = [fragment for fragment in FRAGMENTS if fragment in lower]
    if having and having[-1] == "pw" and pw_at(plain, lower, 0) < 0:
        del having[-1]
    return having


def pw_at(plain: str, lower: str, start: int) -> int:
    """Find the first ``pw`` or ``pwd``, at or after ``start``, that is or ends a name (*upwards* does not count); -1 if
    none does."""
    at = lower.find("pw", start)
    while at >= 0:
        before, following = plain[at - 1 : at], lower[at + 2 : at + 3]
        begins = not before.isalnum() or (plain[at] == "P" and not before.isupper())
        if begins and (following == "d" or not following.isalnum()):
            return at
        at = lower.find("pw", at + 2)
    return -1


def name_starts(lower: str, having: Sequence[str]) -> list[int]:
    """Find the positions of the fragments ``having``, in order."""
    starts = []
    for fragment in having:
        at = lower.find(fragment)
        while at >= 0:
            starts.append(at)
            at = lower.find(fragment, at + len(fragment))
    starts.sort()
    return starts
