"""Answers of tools that are the text of an error, told from answers that speak of errors.

An error names itself at its beginning, or is short and has a phrase that is said of failures alone, or is an object or
a page with a status. What defines, lists or quotes an error is an answer.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec

from autotrace.insight.error_words import (
    ARGUMENTS,
    BEGINS,
    CAUGHT,
    ELSEWHERE,
    FOREIGN,
    HINTS,
    INFRASTRUCTURE,
    LABEL,
    PHRASES,
    SPEAKS_OF,
    UNKNOWN,
    WHOLE,
)

WITHIN = 300
"""Characters of an answer that are looked at; a longer one is no text of an error within which to search."""
BEGINNING = 160
"""Characters that tell whether a longer answer begins as an error does."""
LONGEST_OBJECT = 4000
"""Characters of the longest object whose fields are looked at."""


_FAILED = re.compile(r"(?:error|fail|failed|failure|exception|timeout|timed[_ ]out|rejected|denied)\Z", re.IGNORECASE)
_SAID = (
    "message",
    "msg",
    "errmsg",
    "err_msg",
    "reason",
    "statustext",
    "status_text",
    "detail",
    "details",
    "description",
    "errormessage",
    "error_message",
    "title",
)
_ERRORS = (
    "error",
    "errors",
    "err",
    "exception",
    "fault",
    "errormessage",
    "error_message",
    "errormsg",
    "error_msg",
    "faultstring",
)
_FLAGS = ("iserror", "is_error", "timed_out", "timedout", "failed", "has_error")
_GOOD = ("success", "ok", "succeeded")
_CODES = (
    "status",
    "result",
    "outcome",
    "statuscode",
    "status_code",
    "code",
    "http_status",
    "httpcode",
    "cod",
    "errcode",
    "errno",
    "error_code",
    "type",
    "__type",
)
_NUMBERS, _MESSAGES = ("code", "cod", "errcode", "errno", "error_code"), ("message", "msg", "errmsg", "err_msg")
_EXITS = ("exit_code", "exitcode", "returncode", "return_code")
_HINTS = [(hint, number) for number, (hints, _) in enumerate(PHRASES) for hint in hints]
"""Which of the phrases a hint speaks for; in one list, for most texts have none."""
_EMPTY: tuple[Any, ...] = (None, "", False, 0, "null", "none", "None", [], {})


def kind(answer: str, executes: bool = False) -> str | None:
    """What a tool's answer says, if it says that something went wrong: ``error``, that the tool is ``unknown``, or
    that its ``arguments`` are wrong. ``executes``: errors of what it runs are its answers, and only its own count."""
    return (_kind_of_short if len(answer) < WITHIN else _kind)(answer, executes)


def _kind(answer: str, executes: bool) -> str | None:
    short = answer[:WITHIN].replace("\u2019", "'")
    first = short.lstrip()[:1]
    is_short = len(answer) < WITHIN or first in ("<", "{")
    lowered = (short if is_short else short[:BEGINNING]).lower()
    if short.isascii() and not _has(lowered, HINTS):
        return None
    label = LABEL.match(short)
    if label is not None and label.end() < len(short):
        short = short[label.end() :]
        first = short.lstrip()[:1]
    if executes:
        is_own = len(answer) < WITHIN and "Traceback" not in short and INFRASTRUCTURE.search(short) is not None
        return "error" if is_own else None
    if first == "{" and len(answer) <= LONGEST_OBJECT and (told := _object(answer)) is not None:
        return told or None
    if UNKNOWN.match(short):
        return "unknown"
    if ARGUMENTS.match(short):
        return "arguments"
    says: Any = BEGINS.match(short) or CAUGHT.match(short)
    if not says and is_short:
        says = (
            WHOLE.match(short)
            or any(PHRASES[number][1].search(short) for number in {at for hint, at in _HINTS if hint in lowered})
            or ((not short.isascii() or _has(lowered, FOREIGN)) and ELSEWHERE.search(short))
        )
    return "error" if says and not SPEAKS_OF.search(short) else None


_kind_of_short = functools.lru_cache(maxsize=1024)(_kind)
"""The rollouts of a prompt often ask the same and are told the same."""


def _has(text: str, words: tuple[str, ...]) -> bool:
    return any(map(text.__contains__, words))


def _object(answer: str) -> str | None:
    """``error`` or nothing, by the fields of an object; None: it is none."""
    try:
        value = msgspec.json.decode(answer)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return ("error" if _is_error(value) else "") if isinstance(value, dict) else None


def _is_error(value: dict[str, Any]) -> bool:
    fields = {name.lower(): part for name, part in value.items()}
    if any(fields.get(name) not in _EMPTY for name in _ERRORS) and not _are_figures(fields):
        return True
    if any(fields.get(name) is True for name in _FLAGS) or any(fields.get(name) is False for name in _GOOD):
        return True
    if any(isinstance(code := fields.get(name), int) and (code < 0 or code in (124, 137, 139)) for name in _EXITS):
        return True
    said = next((part for name in _SAID if isinstance(part := fields.get(name), str) and part), "")
    if not said:
        return False
    if "id" not in fields and (any(_bad(fields.get(name)) for name in _CODES) or _has_number(fields)):
        return True
    return (
        set(fields) <= {*_SAID, "type", "documentation_url", "requestid", "request_id", "path"}
        and kind(said) is not None
    )


def _are_figures(fields: dict[str, Any]) -> bool:
    """Errors in the sense of statistics, or how many there were."""
    return all(isinstance(fields.get(name, 0), int | float) for name in _ERRORS)


def _bad(code: Any) -> bool:
    """A status, as a number or a word, that is one of a failure."""
    if isinstance(code, str):
        return _FAILED.search(code) is not None or (code.isascii() and code.isdecimal() and 400 <= int(code) < 600)
    return isinstance(code, int) and 400 <= code < 600


def _has_number(fields: dict[str, Any]) -> bool:
    """A message with a number that is none of success, and nothing else."""
    if any(fields.get(name) not in _EMPTY for name in ("data", "result")) or not any(map(fields.get, _MESSAGES)):
        return False
    codes = [code for name in _NUMBERS if isinstance(code := fields.get(name), int) and not isinstance(code, bool)]
    return any(code != 0 and not 200 <= code < 300 for code in codes)
