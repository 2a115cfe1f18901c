"""Messages of errors, told apart by what they have in common."""

from __future__ import annotations

import re

from autotrace.trajectory.model import Span

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


WITHIN = 300
"""Characters of an answer that are looked at; a longer one is no text of an error within which to search."""
_BEGINS = re.compile(
    r"\W*(?:error|exception|failed|failure|timeout|timed out|request timed|connection|rate limit|too many requests|"
    r"(?:http\W*)?[45]\d\d\b|internal server error|service unavailable|bad gateway|tool error|\[error|\"?error\"?\s*:|"
    r"traceback \(most recent|[\w.]*(?:error|exception):|an? (?:\w+ )?error occurred|(?:access|permission) denied|"
    r"unauthori[sz]ed|forbidden|\"?status\"?\s*:\s*\"?(?:error|failed)|\"?success\"?\s*:\s*false|"
    r"错误|出错|异常|失败|超时|请求失败|无法连接|连接失败|エラー|失敗|接続|タイムアウト|오류|실패|시간 초과|"
    r"fehler|zeitüberschreitung|erreur|échec|délai dépassé|erro\b|errore\b|falha|fallo\b|tiempo de espera|"
    r"ошибка|сбой|не удалось)",
    re.IGNORECASE,
)
"""How the text of an error begins."""
_WITHIN = re.compile(
    r"(?:could not|couldn't|cannot|can't|unable to|failed to) (?:connect|reach|resolve|contact)|timed out|"
    r"time limit exceeded|(?:did|does|is) not respond|not responding|name or service not known|"
    r"connection (?:refused|reset|aborted|closed)|(?:status|error|response) code:? ?[45]\d\d|"
    r"(?:quota|rate limit) (?:was )?exceeded|too many requests|"
    r"(?:service|server|backend|upstream|api|host|database|gateway|sandbox)(?: \w+){0,3}? "
    r"(?:unavailable|unreachable|overloaded|is down|is offline)|"
    r"<title>\s*(?:[45]\d\d\b|error)|\"error\"\s*:(?!\s*(?:null|\"\"|false|\{\s*\}|\[\s*\]))",
    re.IGNORECASE,
)
"""What is said of an error within a short text, a page or an object."""
_HINTS = (
    "connect", "time", "respon", "code", "exceed", "too many", "unavail", "unreach", "overload", " down", "offline",
    "not known", "<title>", '"error"', "reach", "resolve", "contact",
)  # fmt: skip
"""One of these is in whatever ``_WITHIN`` finds; to look for them is quicker."""
_UNKNOWN = re.compile(
    r"\W*(?:error:?\s*)?(?:unknown|no such|undefined) (?:function|tool)|\W*tool \S+ (?:not found|does not)",
    re.IGNORECASE,
)
_ARGUMENTS = re.compile(
    r"\W*(?:error:?\s*)?(?:invalid (?:json|arguments?|parameters?)|\d+ validation errors? for)", re.IGNORECASE
)
_ANY = re.compile("|".join(f"(?:{one.pattern})" for one in (_BEGINS, _UNKNOWN, _ARGUMENTS)), re.IGNORECASE)


def kind(answer: str) -> str | None:
    """What a tool's answer says, if it says that something went wrong: ``error``, that the tool is ``unknown``, or
    that its ``arguments`` are wrong."""
    short = answer[:WITHIN]
    if _ANY.match(short) is None:
        return "error" if _says_so(answer, short.lower()) else None
    if _UNKNOWN.match(short):
        return "unknown"
    if _ARGUMENTS.match(short):
        return "arguments"
    return "error" if _BEGINS.match(short) else None


def _says_so(answer: str, short: str) -> bool:
    if len(answer) >= WITHIN and answer.lstrip()[:1] not in ("<", "{"):
        return False
    return any(hint in short for hint in _HINTS) and _WITHIN.search(short) is not None
