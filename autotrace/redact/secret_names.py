"""The one list of names whose values are secrets: in records, command lines and environments."""

from __future__ import annotations

import re

NOT, TEXT, SECRET = 0, 1, 2
"""``TEXT``: a text under this name is a secret, a number is not (``token=151643`` is one of a model's tokens)."""

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
