"""The libraries that recording itself calls. None of their functions is wrapped: to record a call of one would call it
again."""

from __future__ import annotations

_USED = frozenset(
    {
        "_weakrefset", "abc", "autotrace", "base64", "codecs", "collections", "contextlib", "contextvars", "enum",
        "fnmatch", "functools", "genericpath", "hashlib", "io", "msgspec", "os", "posixpath", "queue", "re", "reprlib",
        "signal", "struct", "threading", "time", "types", "typing", "weakref", "wrapt", "zlib",
    }
)  # fmt: skip


def refusal(module: str) -> str | None:
    """Why nothing in ``module`` is wrapped; None where it may be."""
    library = module.partition(".")[0]
    if library not in _USED:
        return None
    return f"autotrace uses {library} to record a call, which would record itself: name the function that calls it"
