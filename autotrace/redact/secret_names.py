"""The one list of names whose values are secrets (in records, command lines and environments), and where such names
stand in a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

NOT, TEXT, SECRET = 0, 1, 2
"""``TEXT``: a text under this name is a secret, a number is not (``token=151643`` is one of a model's tokens)."""

FRAGMENTS = ("pass", "secret", "token", "key", "auth", "cookie", "cred", "jwt", "pw")
"""Every name that ``kind`` takes for a secret contains one of these."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ANYWHERE = re.compile(r"api_?key|access_?key|private_?key|secret|passwor[dt]|passwd|passphrase|passcode")
_KEY = re.compile(
    r"(?:account|auth|signing|encryption|decryption|master|storage|shared|subscription|consumer|webhook|license|deploy|"
    r"service|ssh|hmac|aes|application|functions)_?key$"
)
_AT_THE_END = re.compile(
    r"(?:^|_)(?:cred(?:ential)?s?|authorization|cookies?|pwd|pw|client_key_data|(?:auth|access|refresh)_?tokens)$"
)
_WHOLE = frozenset({"auth", "bearer", "jwt"})
_PASS = re.compile(r"(?:^|db_|user_|login_|root_|admin_|smtp_|ftp_|ssh_|mysql_|redis_|proxy_)pass$")
_TEXT_AT_THE_END = re.compile(
    r"_(?:auth|jwt|bearer)$|(?:^|_)pat$|(?:^|_)(?:openai|anthropic|gemini|mistral|hf|wandb|llm|app|client)_?key$"
    r"|(?:auth|access|api|refresh|bearer|session|[cx]srf|private|personal)_?token$"
)
_KEY_OF_A_SHELL = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_KEY")
_NO_SECRET_KEYS = frozenset(
    {
        "PUBLIC", "PRIMARY", "FOREIGN", "SORT", "CACHE", "GROUP", "PARTITION", "UNIQUE", "INDEX", "ROUTING", "SHARD",
        "HOT", "PRESS", "ID", "TYPE", "NAME", "DICT", "INFO", "LIB",
    }
)  # fmt: skip
_OF_A_TEXT = frozenset(
    {
        "pad", "eos", "bos", "unk", "sep", "cls", "mask", "eot", "eom", "eod", "stop", "start", "begin", "end", "image",
        "video", "audio", "special", "next", "first", "last", "prev", "previous", "current", "new", "per", "page",
        "sync", "continuation", "think", "prompt", "response", "input", "output", "decoded", "generated", "sampled",
        "top", "max", "min", "num", "by", "added", "extra", "vocab", "call",
    }
)  # fmt: skip
"""What stands before ``_token`` where that is a piece of text, or a position in a listing."""


def kind(name: str) -> int:
    """``NOT``, ``TEXT`` or ``SECRET``. ``x-auth-token``, ``accessToken`` and ``HF_TOKEN`` are read alike; ``tokens``,
    ``token_ids`` and ``max_tokens`` are not secrets."""
    words = re.sub(r"[\W_]+", "_", _CAMEL.sub("_", name)).strip("_").lower()
    if _ANYWHERE.search(words) or _AT_THE_END.search(words) or _KEY.search(words) or words in _WHOLE:
        return SECRET
    if _PASS.search(words) or _TEXT_AT_THE_END.search(words):
        return TEXT
    if _KEY_OF_A_SHELL.fullmatch(name) and name.split("_")[-2] not in _NO_SECRET_KEYS:
        return TEXT
    if words != "token" and not words.endswith("_token"):
        return NOT
    return NOT if words.removesuffix("token").strip("_").rpartition("_")[2] in _OF_A_TEXT else TEXT


secret_kind = lru_cache(maxsize=10_000)(kind)


def fragments(plain: str, lower: str) -> list[str]:
    """The ``FRAGMENTS`` that may be part of a secret's name in ``plain``. ``lower`` is ``plain`` in small letters."""
    having = [fragment for fragment in FRAGMENTS if fragment in lower]
    if having and having[-1] == "pw" and pw_at(plain, lower, 0) < 0:
        del having[-1]
    return having


def pw_at(plain: str, lower: str, start: int) -> int:
    """Where, from ``start`` on, ``pw`` or ``pwd`` is, or ends, a name (in *upwards* it does not); -1: nowhere."""
    at = lower.find("pw", start)
    while at >= 0:
        before, following = plain[at - 1 : at], lower[at + 2 : at + 3]
        begins = not before.isalnum() or (plain[at] == "P" and not before.isupper())
        if begins and (following == "d" or not following.isalnum()):
            return at
        at = lower.find("pw", at + 2)
    return -1


def name_starts(lower: str, having: Sequence[str]) -> list[int]:
    """Where the fragments ``having`` stand, in order."""
    starts = []
    for fragment in having:
        at = lower.find(fragment)
        while at >= 0:
            starts.append(at)
            at = lower.find(fragment, at + len(fragment))
    starts.sort()
    return starts
