"""Credentials within a text, by shape and by the name they stand under: everything but them stays as it is.

A text is looked at in two steps, because ordinary text is most of what is recorded. The first step is a few passes in C
over the bytes of the text, which has one byte a character (so positions agree): is there a run of characters that is
long enough for a token, and does a name of a secret occur at all? Only where that is so, a pattern is tried, at that
place.
"""

from __future__ import annotations

import re
import string
from functools import lru_cache

from autotrace.redact import secret_names
from autotrace.redact.rules import PRIVATE_KEY_BEGINS, SCHEME, SHORTEST, SLACK_HOOK, TOKENS

REDACTED = "<redacted>"

_ALPHABET = (string.ascii_letters + string.digits + "_-").encode()
_RUNS = bytes(97 if byte in _ALPHABET else 32 for byte in range(256))
"""Translates a character of a token to ``a``, any other to a blank."""
_RUN = b"a" * SHORTEST
_TOKEN = re.compile("(?<![A-Za-z0-9])(?:" + "|".join(rule.pattern for rule in TOKENS) + ")")
_REST = re.compile(r"[\w.+/=-]*")
"""What may belong to a token behind its first run."""
_KEY_BEGINS = re.compile(PRIVATE_KEY_BEGINS.pattern)
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}-----")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=\s\\:,.()-]*")
_KEY_CUT_OFF = re.compile(r"[A-Za-z0-9+/=\s\\:,-]{16,}")
_LONGEST_KEY = 20_000
_SLACK_HOOK = re.compile(SLACK_HOOK.pattern)
_SCHEME = re.compile(SCHEME.pattern)

_WINDOW = 200
"""Characters behind a name that decide whether a value without quotes is a secret. A value that is none is looked at
again from each name in it, so that has to be a limited number of times."""
_FRAGMENTS = (b"pass", b"pw", b"secret", b"token", b"key", b"auth", b"cookie", b"credential", b"jwt")
"""Every name that ``secret_names.kind`` takes for a secret contains one of these."""
_SEPARATORS = (b":", b"=", b'"', b"'", b"-")
"""One of them stands at each name that has a value."""
_WORD = re.compile(r"[\w.\-]{0,64}")
_ASSIGNED = re.compile(r"\s{1,9}[:=]")
_QUOTED = r"[bru]{0,2}(?P<quote>\\{0,7}[\"'])(?P<value>(?s:.*?))(?:(?<!\\)(?P=quote)|\Z)"
_BARE = r"(?:[^\s\"'`&;,{}\[\]<>()]+|[,)(\]\[}{](?![\s,;)}\]\"'`]|\Z|[\w.\-]+[:=]))+"
_UNQUOTED = (
    r"(?P<scheme>(?i:bearer|basic|digest|negotiate|apikey|(?<=zation: )token)\s+)?"
    rf"(?P<bare>(?!:){_BARE})"
)
_AFTER_QUOTED_NAME = re.compile(
    rf"\\{{0,7}}[\"'](?:\s{{0,9}}(?::|=>?)\s{{0,9}}(?:{_QUOTED}|{_UNQUOTED})"
    rf"|(?P<pair>\s{{0,9}},\s{{0,9}})(?:(?P<member>\\{{0,7}}[\"'](?:value|val|v|default|content)\\{{0,7}}[\"']\s{{0,9}}:\s{{0,9}}))?"
    r"[bru]{0,2}(?P<pair_quote>\\{0,7}[\"'])(?P<pair_value>(?s:.*?))(?:(?<!\\)(?P=pair_quote)|\Z))"
)
_AFTER_NAME = re.compile(rf"\s{{0,9}}(?P<separator>:(?![:=])|=(?!=))\s{{0,9}}(?:{_QUOTED}|{_UNQUOTED})")
_AFTER_OPTION = re.compile(r"\s{1,9}(?:[\"'](?P<quoted>[^\"']+)[\"']|(?P<bare>[^\s\"'-][^\s\"']*))")
_CODE = re.compile(
    r"[A-Za-z_$.\[\]()|*%{}<>/-]+|(?:self|cls|os|settings|config|cfg|args)[.\[].*|[A-Za-z_][\w.]*[(\[].*"
)
"""What follows a name in source code and prose: names, calls, types, words."""
_TYPES = frozenset(
    {
        "str", "string", "bytes", "int", "integer", "float", "bool", "boolean", "none", "null", "nil", "true", "false",
        "any", "optional", "object", "dict", "list", "type", "required", "secret", "password", "token", "key", "value",
        "the", "a", "an", "is", "not", "your",
    }
)  # fmt: skip
_LINE = re.compile(r"[^\r\n\"'`<]*")
_PLACEHOLDER = re.compile(
    r"(?:(?i:basic|bearer)\s+)?(?:<[^<>]*>(?::<[^<>]*>)?|\{\{?[^{}]*\}?\}|\$\{?\w+\}?|\$\(.*\)|%\w|[A-Z]+_[A-Z_]+|\*+|(?i:x{3,})|\.{3})"
)
_NO_LETTERS = re.compile(r"[\W\d_]+")
_NUMBER = re.compile(r"[-+]?[\d.,]+")
_USERINFO = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30})://(?P<user>[^/\s:@\"'<>?#]{0,1024})"
    r"(?P<password>:(?!\d{1,5}[/?#])(?:[^/\s\"'<>]{0,1024}|[^@\s\"'<>]{0,256}))?@"
)
_MEMBER_BEFORE = re.compile(
    r"(?P<head>(?P<q>\\{0,7}[\"'])(?:value|val)(?P=q)\s{0,9}:\s{0,9}(?P=q))(?P<value>(?:(?!(?P=q)).){1,4096})"
    r"(?P<tail>(?P=q)\s{0,9},\s{0,9}(?P=q)(?:name|key|header)(?P=q)\s{0,9}:\s{0,9}(?P=q)(?P<name>[\w.\-]{1,64})(?P=q))"
)
_BASIC_OPTION = re.compile(r"(?<!\S)(?P<head>(?:-u|--user|--proxy-user)[ =][\"']?[^\s:\"']+:)(?P<value>[^\s\"']+)")

secret_kind = lru_cache(maxsize=10_000)(secret_names.kind)


def without_credentials(text: str, mask: str = REDACTED, any_value: bool = False) -> str:
    """``text`` with each credential replaced by ``mask``.

    ``any_value``: whatever stands behind a secret's name is its value, as on a command line. Otherwise what source code
    and prose have in that place stays: types, calls, ``token=token``, ``<your password>``.
    """
    data = text.encode("ascii", "replace")
    runs = data.translate(_RUNS)
    if _RUN in runs:
        text = _without_tokens(text, runs, mask)
        data = text.encode("ascii", "replace")
    if b"PRIVATE KEY" in data:
        text = _without_private_keys(text, mask)
        data = text.encode("ascii", "replace")
    if b"@" in data and b"://" in data:
        text = without_userinfo(text, mask)
        data = text.encode("ascii", "replace")
    if any(separator in data for separator in _SEPARATORS):
        starts = _name_starts(data.lower())
        if starts:
            text = _without_named(text, starts, mask, any_value)
    if b"earer " in data or b"Basic " in data or b"BEARER " in data:
        text = _SCHEME.sub(lambda match: match["scheme"] + mask, text)
    if b"-u " in data or b"-user" in data:
        text = _BASIC_OPTION.sub(lambda match: match["head"] + mask, text)
    return text


def _without_private_keys(text: str, mask: str) -> str:
    """PEM, also with its line ends escaped, or cut off."""
    pieces: list[str] = []
    written = body_ends = 0
    closing = _KEY_ENDS.search(text)
    for opening in _KEY_BEGINS.finditer(text):
        if opening.start() < written:
            continue
        at = opening.end("dashes")
        if at > body_ends:
            body_ends = _KEY_BODY.match(text, at).end()  # type: ignore[union-attr] # matches nothing, too
        while closing is not None and closing.start() < at:
            closing = _KEY_ENDS.search(text, at)
        if closing is not None and closing.start() <= min(body_ends, at + _LONGEST_KEY):
            end = closing.end()
        elif (rest := _KEY_CUT_OFF.match(text, at)) is not None:
            end = rest.end()
        else:
            continue
        pieces += (text[written : opening.start()], mask)
        written = end
    return "".join((*pieces, text[written:]))


def _without_tokens(text: str, runs: bytes, mask: str) -> str:
    """Tokens are looked for only in the words that hold a long enough run."""
    pieces: list[str] = []
    written = 0
    rest_ends = -1
    at = runs.find(_RUN)
    while at >= 0:
        start = max(written, runs.rfind(b" ", written, at) - 8)  # a prefix may be apart from its run: ``ya29.``
        if at > rest_ends:
            end = runs.find(b" ", at)
            rest_ends = len(text) if end < 0 else _REST.match(text, end).end()  # type: ignore[union-attr] # matches nothing, too
        end = rest_ends
        match = _TOKEN.search(text, start, end)
        if match is not None:
            pieces += (text[written : match.start()], mask)
            written = end = match.end()
        at = runs.find(_RUN, end)
    if written:
        text = "".join((*pieces, text[written:]))
    if "hooks.slack.com" in text:
        text = _SLACK_HOOK.sub(mask, text)
    return text


def without_userinfo(text: str, mask: str = REDACTED) -> str:
    """``text`` without the passwords and tokens in front of the hosts of its URLs."""
    return _USERINFO.sub(lambda match: _without_userinfo(match, mask), text)


def _without_userinfo(match: re.Match[str], mask: str) -> str:
    """A short user name stays, for people; a user without a password is a token where the scheme is HTTP."""
    scheme, user, password = match["scheme"], match["user"], match["password"] or ""
    if len(password) > 1:
        if len(user) <= 16 and password != ":x-oauth-basic":
            return f"{scheme}://{user}:{mask}@"
        return f"{scheme}://{mask}@"
    if not user or (not password and not scheme.lower().endswith(("http", "https"))):
        return match[0]
    return f"{scheme}://{mask}@"


def _without_named(text: str, starts: list[int], mask: str, any_value: bool) -> str:
    pieces: list[str] = []
    written = 0
    for at in starts:
        if at < written:
            continue
        end = _WORD.match(text, at).end()  # type: ignore[union-attr] # matches nothing, too
        follows = text[end : end + 1]
        if follows not in _FOLLOWS:
            continue
        start = at - _WORD.match(text[max(written, at - 64) : at][::-1]).end()  # type: ignore[union-attr]
        if follows.isspace() and text[start] != "-" and _ASSIGNED.match(text, end) is None:
            continue
        span = _value_of(text, start, end, any_value)
        if span is not None and span[0] >= written:
            pieces += (text[written : span[0]], mask)
            written = span[1]
    if written:
        text = "".join((*pieces, text[written:]))
    if "value" in text and ('"name' in text or "'name" in text or '"key' in text or '"header' in text):
        text = _MEMBER_BEFORE.sub(
            lambda match: match["head"] + mask + match["tail"] if secret_kind(match["name"]) else match[0], text
        )
    return text


_FOLLOWS = frozenset((":", "=", '"', "'", "\\", " ", "\t", "\n"))


def _name_starts(lower: bytes) -> list[int]:
    """Where fragments of names stand, in order."""
    starts = []
    for fragment in _FRAGMENTS:
        at = lower.find(fragment)
        while at >= 0:
            starts.append(at)
            at = lower.find(fragment, at + len(fragment))
    starts.sort()
    return starts


def _value_of(text: str, start: int, end: int, any_value: bool) -> tuple[int, int] | None:
    """Where the secret stands whose name is ``text[start:end]``; None where there is none."""
    written = text[start:end]
    name = written.lstrip("-.")
    kind = secret_kind(name)
    if not kind:
        return None
    character = text[end]
    if character in "\"'\\":
        match = _after(_AFTER_QUOTED_NAME, text, end)
        if match is None:
            return None
        if match["pair"] is not None:
            opening = text[max(0, start - 9) : start].rstrip("\"'\\ub")
            in_pair = opening.endswith(("[", "(")) and text[match.end() : match.end() + 1] in ("]", ")", "")
            if match["pair_value"] and (match["member"] or in_pair or written.startswith("--")):
                return match.span("pair_value")
            return None
        if match["quote"] is not None:
            return match.span("value") if match["value"] and not _is_placeholder(match["value"], name) else None
        if kind == secret_names.SECRET and not _CODE.fullmatch(match["bare"]):
            return _whole(match).span("bare")
        return None
    option = written.startswith("-") and (start == 0 or not text[start - 1].isalnum())
    if character.isspace() and option:
        match = _AFTER_OPTION.match(text, end)
        if match is not None:
            group = "quoted" if match["quoted"] else "bare"
            return match.span(group) if any_value or not _is_placeholder(match[group], name) else None
    match = _after(_AFTER_NAME, text, end)
    if match is None:
        return None
    if match["quote"] is not None:
        value = match["value"]
        weak = kind != secret_names.SECRET and not name.isupper() and not _is_strong(value)
        return match.span("value") if value and (any_value or not (weak or _is_placeholder(value, name))) else None
    value = match["bare"]
    if any_value:
        return _bare(match)
    in_url = text[start - 1 : start] in ("?", "&") and match["separator"] == "="
    if in_url or match["scheme"] or _is_bare_value(text, start, match, name, kind):
        return _bare(match, match["separator"] == ":" and name.lower().endswith(("cookie", "authorization")))
    return None


def _after(pattern: re.Pattern[str], text: str, end: int) -> re.Match[str] | None:
    """What stands behind a name: the whole of a quoted value, what fits into the window of one without quotes."""
    match = pattern.match(text, end, end + _WINDOW)
    return match if match is None or match["bare"] is not None else _whole(match)


def _whole(match: re.Match[str]) -> re.Match[str]:
    """``match`` without the limit of the window, if it came up to it."""
    if match.end() < match.endpos - 1 or match.endpos >= len(match.string):
        return match
    return match.re.match(match.string, match.pos) or match


def _bare(match: re.Match[str], header: bool = False) -> tuple[int, int]:
    """The value with its scheme, of a header's to the end of its line."""
    match = _whole(match)
    start = match.start("scheme") if match["scheme"] else match.start("bare")
    if header:
        return start, _LINE.match(match.string, match.end("bare")).end()  # type: ignore[union-attr] # matches nothing, too
    return start, match.end("bare")


def _is_strong(value: str) -> bool:
    """Whether a text under ``token``, which may be a token of a model, is a credential."""
    return len(value) >= 8 and any(map(str.isdigit, value)) and " " not in value


def _is_placeholder(value: str, name: str) -> bool:
    """Whether what should be a secret names what belongs there: ``<your key>``, ``${TOKEN}``, ``PASSWORD``."""
    if _PLACEHOLDER.fullmatch(value):
        return True
    if any(map(str.isdigit, value)):
        return False
    return _NO_LETTERS.sub("", value).lower() == _NO_LETTERS.sub("", name.rpartition(".")[2]).lower()


def _is_bare_value(text: str, start: int, match: re.Match[str], name: str, kind: int) -> bool:
    """Whether what follows a name without quotes is its value, and no code or prose."""
    value = match["bare"]
    if kind == secret_names.TEXT and not _is_strong(value) and not name.isupper():
        return False
    if value.startswith(("$", "%", "*", "http://", "https://")) or (
        kind == secret_names.TEXT and _NUMBER.fullmatch(value)
    ):
        return False
    if text[match.end("bare") : match.end("bare") + 1] in ("(", "[") or name.lower().endswith(value.lower()):
        return False  # a call, an argument that is passed on
    if name.isupper() and match["separator"] == "=" and text[match.start() : match.start() + 1] == "=":
        return not text[match.end("separator")].isspace()  # a line of a shell
    if not _CODE.fullmatch(value):
        return not _CODE.match(value) or (any(map(str.isdigit, value)) and "(" not in value and value[-1] != ".")
    if not value.isalpha() or value.lower() in _TYPES or not value.islower():
        return False
    ends = text[match.end("bare") : match.end("bare") + 1]
    before = text[max(0, start - _WINDOW) : start].rstrip(" \t-")[-1:]
    if match["separator"] == ":":  # a line of YAML, of a header, of a log
        return (before == "\n" or (not before and start < _WINDOW)) and ends in ("", "\n", "\r")
    return text[match.start() : match.start() + 1] == "=" and ends in ("", "\n", " ", ";", "&") and before != ","
