"""Values that stand under the name of a secret: in code, JSON, YAML, XML, headers, command lines and URLs.

A text is looked at only where a fragment of such a name stands. What follows it is its value if it looks like one: what
source code and prose have in that place stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from autotrace.redact import secret_names

_WINDOW = 200
"""Characters behind a name that decide whether a value without quotes is a secret. A value that is none is looked at
again from each name in it, so that has to be a limited number of times."""
_CONTEXT = 280
"""Characters before and behind a fragment that decide, where there are no quotes, that it is no secret's name: what a
looping model repeats is looked at once."""
_CONTEXTS, _MANY = 1_000, 200
FRAGMENTS = ("pass", "secret", "token", "key", "auth", "cookie", "credential", "jwt", "pw")
"""Every name that ``secret_names.kind`` takes for a secret contains one of these."""
_WORD = re.compile(r"[\w.\-]{0,64}")
_ASSIGNED = re.compile(r"\s{1,9}(?:[:=]|\|\||\?\?|\*?string\s{0,9}=|\[\]byte\s{0,9}=)")
_WRAPPED = r"(?:(?:pydantic\.)?(?:Secret(?:Str|Bytes)?|Field)\((?:default=)?)?"
_LITERAL = r"(?P<quote>\\{0,7}(?:\"{3}|'{3}|[\"'`]))(?P<value>(?s:.*?))(?:(?<!\\)(?P=quote)|\Z)"
_QUOTED = rf"{_WRAPPED}[bBrRuUfF]{{0,2}}(?!`){_LITERAL}"
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
_AFTER_NAME = re.compile(rf"\s{{0,9}}(?P<separator>:=|:(?![:=])|=>?(?!=))\s{{0,9}}(?:{_QUOTED}|{_UNQUOTED})")
_TYPE = r"&?[A-Za-z_][\w.]{0,40}(?:[\[<][\w.,| \[\]<>]{0,60}[\]>])?(?: ?\| ?[A-Za-z_][\w.]{0,40}){0,3}"
_AFTER_TYPED_NAME = re.compile(
    rf"(?:\s{{0,9}}:\s{{0,9}}{_TYPE}\s{{0,9}}=|\s{{1,9}}(?:\*?string|\[\]byte)\s{{0,9}}="
    rf"|\s{{0,9}}(?:\|\||\?\?)|\s{{0,9}}:?=(?=\s{{1,9}}`))\s{{0,9}}(?:{_QUOTED.replace('(?!`)', '')})"
)
"""``password: str = "..."`` in Python, TypeScript and Rust; ``password string = "..."`` in Go;
``env.PASSWORD || "..."``; and strings between backticks."""
_AFTER_SUBSCRIPT = re.compile(
    rf"\\{{0,7}}[\"'](?:[\])]{{1,2}}\s{{0,9}}(?:=(?!=)|or\b|\|\||\?\?)|\s{{0,9}},\s{{0,9}}default\s{{0,9}}=)\s{{0,9}}{_QUOTED}"
)
"""``environ["PASSWORD"] = "..."``, ``getenv("PASSWORD") or "..."``, ``getenv("PASSWORD", default="...")``."""
_AFTER_OPTION = re.compile(r"\s{1,9}(?:[\"'](?P<quoted>[^\"']+)[\"']|(?P<bare>[^\s\"'-][^\s\"']*))")
_ELEMENT = re.compile(
    r"(?:\s[^<>]{0,200})?>\s{0,9}"
    r"(?:<!\[CDATA\[(?P<literal>[^<\]]{1,4000})\]\]>|(?P<value>[^<\s](?:[^<]{0,4000}[^<\s])?))\s{0,9}</"
)
_PREFIX = re.compile(r"<[\w.-]{1,64}:\Z")
_BLOCK = re.compile(r"[ \t]{0,9}:[ \t]{1,9}[|>][-+\d]{0,2}[ \t]{0,9}\r?\n(?P<indent>[ \t]{1,64})(?P<first>[^\r\n]+)")
"""A block scalar of YAML."""
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
_FIELDS = re.compile(r"\{[^{}]*\}")
_NO_LETTERS = re.compile(r"[\W\d_]+")
_NUMBER = re.compile(r"[-+]?[\d.,]+")
_MEMBER_BEFORE = re.compile(
    r"(?P<head>(?P<q>\\{0,7}[\"'])(?:value|val)(?P=q)\s{0,9}:\s{0,9}(?P=q))(?P<value>(?:(?!(?P=q)).){1,4096})"
    r"(?P<tail>(?P=q)\s{0,9},\s{0,9}(?P=q)(?:name|key|header)(?P=q)\s{0,9}:\s{0,9}(?P=q)(?P<name>[\w.\-]{1,64})(?P=q))"
)
secret_kind = lru_cache(maxsize=10_000)(secret_names.kind)


def fragments(plain: str, lower: str) -> list[str]:
    """Those of ``FRAGMENTS`` of which a secret's name in ``plain`` may be made; ``lower`` is the same in small
    letters."""
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


def without_named_values(text: str, plain: str, having: Sequence[str], mask: str, any_value: bool) -> str:
    """``text`` (``plain``: in ASCII, a character for a character) with what stands under names of secrets replaced by
    ``mask``. ``having``: its ``fragments``. ``any_value``: see
    ``credentials.without_credentials``."""
    # one of these stands at each name that has a value; ``any`` would take five times as long
    if ":" in plain or "=" in plain or '"' in plain or "'" in plain or "-" in plain or "</" in plain:
        starts = name_starts(plain.lower(), having)
        return _without(text, starts, mask, any_value) if starts else text
    return text


def _without(text: str, starts: list[int], mask: str, any_value: bool) -> str:
    pieces: list[str] = []
    written = 0
    ordinary: set[str] = set()
    repeats = len(starts) > _MANY
    for at in starts:
        if at < written:
            continue
        context = text[at - _CONTEXT : at + _CONTEXT] if repeats and at >= _CONTEXT else ""
        if context in ordinary:
            continue
        if len(ordinary) > _CONTEXTS:
            ordinary.clear()
        end = _WORD.match(text, at).end()  # type: ignore[union-attr] # matches nothing, too
        follows = text[end : end + 1]
        if follows not in _FOLLOWS:
            continue
        start = at - _WORD.match(text[max(written, at - 64) : at][::-1]).end()  # type: ignore[union-attr]
        if _opens_element(text, start, follows):
            span = _element(text, start, end)
        elif follows.isspace() and text[start] != "-" and _ASSIGNED.match(text, end) is None:
            continue
        else:
            span = _value_of(text, start, end, any_value)
        if span is not None and span[0] >= written:
            pieces += (text[written : span[0]], mask)
            written = span[1]
        elif span is None and context and written <= at - _CONTEXT and follows in ":=" and _decides(context):
            ordinary.add(context)
    if written:
        text = "".join((*pieces, text[written:]))
    if "value" in text and ('"name' in text or "'name" in text or '"key' in text or '"header' in text):
        text = _MEMBER_BEFORE.sub(
            lambda match: match["head"] + mask + match["tail"] if secret_kind(match["name"]) else match[0], text
        )
    return text


def _decides(context: str) -> bool:
    """Whether what stands further away does not matter: the value of a name may be quoted, and long."""
    return '"' not in context and "'" not in context


_FOLLOWS = frozenset((":", "=", '"', "'", "\\", " ", "\t", "\n", ">"))


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
            match = _AFTER_SUBSCRIPT.match(text, end, end + _WINDOW)
            if match is None or not any(map(str.isalnum, match["value"])):
                return None
            return _literal(_whole(match), name, kind)
        if match["pair"] is not None:
            opening = text[max(0, start - 9) : start].rstrip("\"'\\ub")
            in_pair = opening.endswith(("[", "(")) and text[match.end() : match.end() + 1] in ("]", ")", "")
            if match["pair_value"] and (match["member"] or in_pair or written.startswith("--")):
                return match.span("pair_value")
            return None
        if match["quote"] is not None:
            is_value = match["value"] and not _is_prose(match) and not _is_placeholder(match["value"], name)
            return match.span("value") if is_value else None
        if kind == secret_names.SECRET and not _CODE.fullmatch(match["bare"]):
            return _whole(match).span("bare")
        return None
    option = written.startswith("-") and (start == 0 or not text[start - 1].isalnum())
    if character.isspace() and option:
        match = _AFTER_OPTION.match(text, end)
        if match is not None:
            group = "quoted" if match["quoted"] else "bare"
            return match.span(group) if any_value or not _is_placeholder(match[group], name) else None
    if character == ":" and (block := _block(text, start, end, kind)) is not None:
        return block
    match = _AFTER_TYPED_NAME.match(text, end, end + _WINDOW)
    match = _after(_AFTER_NAME, text, end) if match is None else _whole(match)
    if match is None:
        return None
    if match["quote"] is not None:
        if any_value:
            return match.span("value") if match["value"] else None
        return None if _closes(text, start, match) else _literal(match, name, kind)
    if any_value:
        return _bare(match)
    in_url = text[start - 1 : start] in ("?", "&") and match["separator"] == "="
    if in_url or match["scheme"] or _is_bare_value(text, start, match, name, kind):
        return _bare(match, match["separator"] == ":" and name.lower().endswith(("cookie", "authorization")))
    return None


def _literal(match: re.Match[str], name: str, kind: int) -> tuple[int, int] | None:
    """The text between the quotes behind a name, if that is a secret."""
    value = match["value"]
    weak = kind != secret_names.SECRET and not name.isupper() and not _is_strong(value)
    return None if not value or weak or _is_prose(match) or _is_placeholder(value, name) else match.span("value")


def _closes(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the quote behind a name ends the string that the name stands in: ``getpass("Password: ")``."""
    if not match["value"].startswith((")", ",")):
        return False
    return text[max(0, start - _WINDOW) : start].rpartition("\n")[2].count(match["quote"]) % 2 == 1


def _is_prose(match: re.Match[str]) -> bool:
    """Whether a text between three quotes, or backticks, is more than a word, such as a prompt."""
    return match["quote"][-3:] in ('"""', "'''", "`") and len(match["value"].split(None, 2)) > 1


def _opens_element(text: str, start: int, follows: str) -> bool:
    """Whether the name at ``start`` is that of an XML element which begins there."""
    if follows != ">" and not follows.isspace():
        return False
    before = text[start - 1 : start]
    return before == "<" or (before == ":" and _PREFIX.search(text[max(0, start - 66) : start]) is not None)


def _element(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The content of the XML element that ``text[start:end]`` opens."""
    name = text[start:end]
    kind = secret_kind(name)
    if not kind:
        return None
    match = _ELEMENT.match(text, end)
    if match is None:
        return None
    group = "value" if match["literal"] is None else "literal"
    return match.span(group) if _is_alone(match[group], name, kind) else None


def _block(text: str, start: int, end: int, kind: int) -> tuple[int, int] | None:
    """The lines of a block scalar of YAML under ``text[start:end]``, without the indentation of the first."""
    match = _BLOCK.match(text, end, end + _WINDOW)
    if match is None or not _is_alone(match["first"].strip(), text[start:end], kind):
        return None
    before = text[max(0, start - _WINDOW) : start].rpartition("\n")[2]
    if before.strip(" -") or len(match["indent"]) <= len(before):
        return None
    ends = match.end("first")
    while True:
        line_ends = text.find("\n", ends)
        if line_ends < 0:
            return match.start("first"), len(text)
        if not text.startswith((match["indent"], "\n", "\r\n"), line_ends + 1):
            return match.start("first"), line_ends
        ends = line_ends + 1


def _is_alone(value: str, name: str, kind: int) -> bool:
    """Whether a text that stands alone under a name is a secret, and no word for it or sentence about it."""
    if kind != secret_names.SECRET:
        return _is_strong(value)
    if any(map(str.isspace, value)) and not any(map(str.isdigit, value)):
        return False
    return value.lower() not in _TYPES and not _is_placeholder(value, name)


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
    if _PLACEHOLDER.fullmatch(value) or ("{" in value and not any(map(str.isalnum, _FIELDS.sub("", value)))):
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
    passed_on = name.lower().endswith(value.lower()) or value.lower().endswith("." + name.lower())
    if passed_on or text[match.end("bare") : match.end("bare") + 1] in ("(", "["):
        return False  # an argument, a name of another module; a call
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
