"""List the libraries that recording itself calls. No function of these libraries is wrapped: recording a call would
call the function again."""

from __future__ import annotations

_USED = frozenset(
    {
        "_weakrefset", "abc", "autotrace", "base64", "codecs", "collections", "contextlib", "contextvars", "enum",
        "fnmatch", "functools", "genericpath", "hashlib", "io", "msgspec", "os", "posixpath", "queue", "re", "reprlib",
        "signal", "struct", "threading", "time", "types", "typing", "weakref", "wrapt", "zlib",
    }
)  # fmt: skip


def refusal(module: str) -> str | None:
    """Return the reason why nothing in ``module`` is wrapped; None where wrapping is allowed."""
    library = module.partition(".")[0]
    if library not in _USED:
        return None
    return f"autotrace uses {library} to record a call, which would record itself: name the function that calls it"
