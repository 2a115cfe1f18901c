"""Answers of tools that are errors. Structure first: the fields of an object, the title of a page, a status, an exit
code. Then a short list of English forms, to which a file of your own can add (``AUTOTRACE_ERROR_FORMS``).

What defines, lists or quotes an error is an answer, so a form counts at the beginning of an answer, or in a short one.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from autotrace.config import environment as env
from autotrace.trajectory.model import Span
from autotrace.trajectory.tool_calls import text_of

_log = logging.getLogger("autotrace")
SHORT = 300
"""Characters of an answer that are looked at; of a longer one its beginning and its structure count alone."""
LONGEST_OBJECT = 4000
"""Characters of the longest object whose fields are looked at."""

# -- structure --------------------------------------------------------------------------------------------------------

_ERRORS = {"error", "errors", "err", "exception", "fault", "error_message", "errormessage", "error_msg", "errormsg"}
_FLAGS = {"iserror", "is_error", "has_error", "failed", "timed_out", "timedout"}
_GOOD = {"success", "ok", "succeeded"}
_STATUS = {"status", "statuscode", "status_code", "http_status", "code", "cod", "errcode", "errno", "error_code",
           "result", "outcome", "type"}  # fmt: skip
_NUMBERS = ("code", "errcode", "errno", "error_code")
_EXITS = {"exit_code", "exitcode", "returncode", "return_code"}
_MESSAGES = {"message", "msg", "errmsg", "err_msg", "reason", "detail", "details", "description", "title"}
_EMPTY: tuple[Any, ...] = (None, "", False, 0, "null", "none", "None", [], {})
_KILLED = (124, 137, 139)
"""Exit codes of a program that its limits of time or memory ended."""
_FAILED = re.compile(r"(?:error|fail|failed|failure|exception|timeout|timed[_ ]out|rejected|denied)\Z", re.IGNORECASE)
_LABEL = re.compile(
    r"\s*(?:(?:<[\w:-]{1,40}>|(?:observation|output|result|response|answer|stderr|tool \w+)\s*:)\s*)+", re.IGNORECASE
)
"""What agents write before an answer."""

# -- forms ------------------------------------------------------------------------------------------------------------

_END = (
    r"(?!\s*[:=]?\s*[-+]?\d+(?:\.\d|\s?m?s\b))"
    r"(?=\s*(?:$|\n|[:!\[\]();,\u2013\u2014\uff1a\uff01\uff0c-]|\.(?:\s|$)|[45]\d\d\b))"
)
"""Behind a word that names an error: it is a heading, or all that is said, and no figure."""
_VERB = r"(?:connect|reach|resolve|find|locate|fetch|load|open|access|read|get|start|create|parse|run|execute)\b"
_STATUS_WORDS = (
    r"(?:bad request|unauthorized|forbidden|not found|too many requests|internal server error|bad gateway"
    r"|(?:service )?(?:temporarily )?unavailable|gateway time-?out|(?:server |client )?error)"
)
BEGINS = (
    rf"(?:(?:\w+ ){{0,3}}(?:error|exception|failure|timeout)|failed|fatal|timed out)\"?{_END}",
    rf"(?:fehler|erreur|errore|erro|ошибка|错误|错误信息|失败|エラー|오류){_END}",
    r"(?:an? )?(?:\w+ )?error (?:occurred|while|when|during|calling|executing|from|response|code)\b",
    r"failed (?:to \w|\w+ing\b)",
    r"[\w.]*(?-i:[A-Za-z](?:Error|Exception|Timeout))\b\s*(?:[:(\[]|$|\n)",
    rf"(?:http\S*\s+(?:error\s+)?)?[45]\d\d\b\s*[:-]?\s*{_STATUS_WORDS}(?=\W|$)(?! is\b)",
    r"(?:http|status|code|status code)\W*[45]\d\d\b",
    rf"(?:unauthori[sz]ed|forbidden|bad gateway|service unavailable|invalid \w+(?: \w+){{0,2}}){_END}",
    rf"(?:unable to|could not|couldn't|cannot|can't) {_VERB}",
    rf"(?:rate|usage|daily|monthly|request) limit\w*(?: reached| exceeded)?{_END}",
    r"(?:panic|fatal|uncaught): |(?:npm err!|make: \*\*\*|rpc error|mcp error|net::err_|ora-\d)",
    r"(?:\w+ ){1,3}(?:failed|refused|aborted)(?=\W*\Z|\s*:| with\b)|(?:killed|aborted|terminated)\W*\Z",
    r"'\w+' object (?:has no|is not)|\w+ index out of range|name '\w+' is not defined|division by zero",
)
"""How the text of an error begins, in whatever case."""
WITHIN = (
    r"(?:could not|couldn't|cannot|can't|unable to|failed to) (?:connect|reach|resolve|be (?:found|reached|loaded))",
    r"timed out|(?:deadline|time limit|timeout(?: \S+)?) exceeded|(?:did|does|is) not respond|not responding",
    r"connection (?:was )?(?:refused|reset|closed|lost)|reset (?:by|before)|broken pipe|no route to host",
    r"(?:status|error|response) code:? ?[45]\d\d|http(?:/\d\S*)? [45]\d\d\b",
    r"(?:quota|limit|credits?|retries)(?: \w+)? exceeded|too many requests|rate limit|request rate",
    r"(?:please|and) (?:try again|retry)|try again (?:later|in \w+ \w+)|retry later",
    r"(?:service|server|upstream|backend)(?: \w+){0,3} (?:unavailable|unreachable|overloaded|down)|no healthy",
    r"no such (?:file|table|column|element|container|host|key|module|process)\b|(?:does|did) not exist",
    r"(?:command|module|file|page|element|host|container|sandbox|database|table) (?:\S+ )?(?:was )?not found",
    r"(?:permission|access) (?:is )?denied|operation not permitted|no space left|segmentation fault|out of memory",
    r"(?:exited|failed|terminated|returned)(?: with)?(?: exit| non-zero)? (?:code|status)\W{0,3}-?[1-9]",
    r"traceback \(most recent|panicked at|\[errno \d+\]|unhandled (?:promise )?(?:exception|rejection)",
    r"something went wrong|encountered an? (?:\w+ )?error|unexpected error|unusual traffic",
)
"""What is said of failures alone, within a short answer; in small letters."""
_OF_PAGES = re.compile(
    r"<title>\s*(?:[45]\d\d\b|error|access denied|just a moment|forbidden|service unavailable)|<error>",
    re.IGNORECASE,
)
_SPEAKS_OF = re.compile(
    r"\A\W*(?:try|catch|def|class|import|from|return|public|const|let|function|#include)\b"
    r"|\b(?:is|are|was) an? (?!\w*\s?(?:error|problem|issue|bug|invalid|unknown))"
    r"|\b(?:describes?|refers? to|defined as|stands for|means that|indicates)\b|\boccurs? (?:when|if)\b"
    r"|\A\W*(?:[0-9a-f]{7,40} \S|[\w./-]+\.\w{1,5}:\d+:|\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S* \[?(?:info|debug|notice))",
    re.IGNORECASE,
)
"""An answer that defines an error or tells of one; a list of commits or hits; a log of what went well."""
_UNKNOWN = re.compile(
    r"\W*(?:error:?\s*)?(?:unknown|no such|undefined) (?:function|tool)|\W*tool \S+ (?:not found|does not)"
    r"|\W*\S+ is not a (?:valid|known) (?:tool|function)",
    re.IGNORECASE,
)
_ARGUMENTS = re.compile(
    r"\W*(?:error:?\s*)?(?:invalid (?:json|arguments?|parameters?)|\d+ validation errors? for"
    r"|missing (?:\d+ )?(?:required )?(?:arguments?|parameters?))",
    re.IGNORECASE,
)
_OF_ITS_OWN = re.compile(
    r"(?:container|sandbox|docker|kernel|pod|daemon|vm)\b[^\n]{0,60}(?:not found|died|not running|expired|unavailable)"
    r"|(?:error response from|(?:failed to|cannot|could not) (?:start|create|reach|connect to)[^\n]{0,30}) ?"
    r"(?:daemon|container|sandbox|kernel|pod|vm)|no such container|no space left on device",
    re.IGNORECASE,
)
"""Errors of a tool that executes something, and not of what it executes."""
_BEGINS = re.compile(rf"\W*(?:{'|'.join(BEGINS)})", re.IGNORECASE)
_WITHIN = tuple(map(re.compile, WITHIN))  # one after the other, without IGNORECASE: four times as quick


def kind(output: Any, executes: bool = False) -> str | None:
    """What a tool's answer says, if it says that something went wrong: ``error``, that the tool is ``unknown``, or
    that its ``arguments`` are wrong. ``executes``: errors of what it runs are its answers, and only its own count."""
    value = output[0] if isinstance(output, (list, tuple)) and output else output
    if isinstance(value, dict) and not executes and _is_error(value):
        return "error"
    answer = text_of(value)
    return (_kind_of_short if len(answer) < SHORT else _kind)(answer, executes)


def _kind(answer: str, executes: bool) -> str | None:
    label = _LABEL.match(answer)
    short = answer[label.end() if label else 0 :][:SHORT].replace("\u2019", "'").lstrip() or answer[:SHORT]
    if executes:
        return "error" if "Traceback" not in short and _OF_ITS_OWN.search(short) else None
    if short.startswith("{") and len(answer) <= LONGEST_OBJECT:
        try:
            value = msgspec.json.decode(answer)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            value = None
        if isinstance(value, dict):
            return "error" if _is_error(value) else None
    if _UNKNOWN.match(short):
        return "unknown"
    if _ARGUMENTS.match(short):
        return "arguments"
    says: Any = _BEGINS.match(short)
    if not says and answer.lstrip().startswith("<"):
        says = _OF_PAGES.search(answer[:SHORT])
    if not says and len(answer) < SHORT:
        lowered = short.lower()
        says = any(form.search(lowered) for form in _WITHIN) or any(form.search(short) for form in own_forms())
    return "error" if says and not _SPEAKS_OF.search(short) else None


_kind_of_short = functools.lru_cache(maxsize=1024)(_kind)
"""The rollouts of a prompt often ask the same and are told the same."""


def _is_error(value: dict[Any, Any]) -> bool:
    fields = {str(name).lower(): part for name, part in value.items()}
    named = [fields[name] for name in _ERRORS if fields.get(name) not in _EMPTY]
    if any(part is True or not isinstance(part, (int, float)) for part in named):  # a number: how many, or a figure
        return True
    if any(fields.get(name) is True for name in _FLAGS) or any(fields.get(name) is False for name in _GOOD):
        return True
    if any(isinstance(code := fields.get(name), int) and (code < 0 or code in _KILLED) for name in _EXITS):
        return True
    said = [part for name in _MESSAGES if isinstance(part := fields.get(name), str) and part]
    if not said or "id" in fields:  # something that has a status, not the status of the call
        return False
    if any(_is_bad(fields.get(name)) for name in _STATUS) or _has_error_number(fields):
        return True
    return set(fields) <= {*_MESSAGES, "type", "documentation_url", "request_id"} and kind(said[0]) is not None


def _has_error_number(fields: dict[str, Any]) -> bool:
    """A message and a number that is neither 0 nor a good status, and no data."""
    codes = [fields.get(name) for name in _NUMBERS if type(fields.get(name)) is int]
    has_data = any(fields.get(name) not in _EMPTY for name in ("data", "result"))
    return not has_data and any(code and not 200 <= code < 300 for code in codes)


def _is_bad(code: Any) -> bool:
    """A status, as a number or a word, that is one of a failure."""
    if isinstance(code, str):
        return _FAILED.search(code) is not None or re.fullmatch("[45][0-9]{2}", code) is not None
    return isinstance(code, int) and 400 <= code < 600


# -- forms of one's own -----------------------------------------------------------------------------------------------


@functools.cache
def own_forms() -> tuple[re.Pattern[str], ...]:
    """The regular expressions of the file that ``AUTOTRACE_ERROR_FORMS`` names, one a line, searched for within short
    answers. Logs what it leaves out."""
    path = os.environ.get(env.ERROR_FORMS, "").strip()
    try:
        lines = Path(path).expanduser().read_text("utf-8").splitlines() if path else []
    except (OSError, RuntimeError, UnicodeError) as error:  # RuntimeError: no such user behind ~
        _log.warning("%s=%s cannot be read: %s", env.ERROR_FORMS, path, error)
        return ()
    forms = []
    for number, line in enumerate(map(str.strip, lines), 1):
        try:
            if line and not line.startswith("#"):
                forms.append(re.compile(line, re.IGNORECASE))
        except Exception as error:  # re.error, OverflowError, RecursionError, ValueError
            _log.warning("%s:%d is not a regular expression: %s", path, number, error)
    return tuple(forms)


_TIMEOUT = re.compile(r"timed?out|deadline|timelimit", re.IGNORECASE)
"""In the name of an exception's class."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def classed(message: str) -> str:
    """A message without what differs from call to call: numbers, quoted parts, addresses."""
    short = message.strip().splitlines()[0][:200] if message.strip() else ""
    return _NUMBER.sub("#", _QUOTED.sub("'…'", _ADDRESS.sub("#", short)))[:120]


def is_timeout(span: Span) -> bool:
    """It ended because time was up."""
    return span.status == "TIMEOUT" or (
        span.error is not None and _TIMEOUT.search(span.error[0].rpartition(".")[2]) is not None
    )
