"""Mask values under the name of a secret: in code, JSON, YAML, XML, headers, command lines and URLs.

The search looks only at places with a fragment of such a name. ``CONTEXTS`` lists the contexts behind a name, and a
rule for each context tells whether the value is a secret. Code and prose in that place stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from autotrace.redact import contexts
from autotrace.redact.rules import TYPES
from autotrace.redact.secret_names import (
    NOT,
    PARAMETER,
    SECRET,
    TEXT,
    is_mixed,
    is_placeholder,
    is_strong,
    is_word,
    name_starts,
    says_nothing,
    secret_kind,
)

_WINDOW = 200
"""Limits the characters behind a name that decide on a value without quotes: the search repeats at each name."""
_CONTEXT = 280
"""Limits the characters around a fragment without quotes that decide that no secret's name is there."""
_CONTEXTS, _MANY = 1_000, 200
_WORD, _ESCAPED = re.compile(r"[\w.\-]{0,64}"), re.compile(r"\\{0,255}")
_CODE = re.compile(
    r"[A-Za-z_$.\[\]()|*%{}<>/-]+|[A-Za-z_][\w.]*[(\[].*|"
    r"(?:self|cls|os|settings|config|cfg|args|var|local|data|module|each|this|form|req|request|body|user|event)[.\[].*"
)
"""Matches code and prose behind a name: names, calls, types, words."""
_ANY_CONTEXT = re.compile(r"[:=\"'%-]|</|ENV |setenv ")
"""Matches at each name that has a value."""
_LINE = re.compile(r"[^\r\n\"'`<]*")
_NUMBER = re.compile(r"[-+]?[\d.,]+")
_AUTHORIZATION, _COOKIE = re.compile(r"(?i:authorization)\Z"), re.compile(r"(?i:cookie)\Z")


def without_named_values(text: str, plain: str, having: Sequence[str], mask: str, any_value: bool) -> str:
    """Return ``text`` with the values of secrets' names replaced by ``mask``.

    ``plain`` is ``text`` in ASCII, a character for a character. ``having`` holds the text's ``fragments``.
    ``any_value``: see ``credentials.without_credentials``.
    """
    starts = name_starts(plain.lower(), having) if _ANY_CONTEXT.search(plain) else []
    return _without(text, starts, mask, any_value) if starts else text


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
        start = at - _WORD.match(text[max(written, at - 64) : at][::-1]).end()  # type: ignore[union-attr] # matches nothing, too
        span = _value_of(text, start, end, any_value)
        if span and span[0] >= written:
            pieces += (text[written : span[0]], mask)
            written = span[1]
        elif not span and context and written <= at - _CONTEXT and follows in ":=" and _decides(context):
            ordinary.add(context)
    if written:
        text = "".join((*pieces, text[written:]))
    return text


def _decides(context: str) -> bool:
    """Tell whether the text further away does not matter; quoted values may be long."""
    return '"' not in context and "'" not in context


_FOLLOWS = frozenset((":", "=", '"', "'", "\\", " ", "\t", "\n", ">", "%", "*", "\x1b"))


class _Name(NamedTuple):
    """Holds the name ``word`` of a secret, in front of ``end``."""

    text: str
    start: int
    end: int
    word: str
    kind: int
    any_value: bool


Span = tuple[int, int] | Literal[False] | None
"""Span of a secret; None: no secret; False: another context may know."""


def _value_of(text: str, start: int, end: int, any_value: bool) -> Span:
    """Find the secret whose name is ``text[start:end]``: the first of ``CONTEXTS`` that fits decides."""
    follows = text[end]
    word = text[start + 2 * (text[start - 1 : start] == "%") : end].lstrip("-.")
    is_alone = follows.isspace() and text[start] != "-" and text[start - 1] not in "<:"
    if is_alone and not contexts.ASSIGNED.match(text, end):
        is_set = text[start - 2 : start - 1] in "VGxv" and secret_kind(word)
        if is_set and contexts.SETS.search(text[max(0, start - 24) : start]):
            match = contexts.AFTER_SET_NAME.match(text, end)
            return match and (None if match["value"].lower() in TYPES else match.span("value"))
        return None
    kind = secret_kind(word)
    if word == "key" and contexts.PARAMS.search(text[max(0, start - 80) : start]):
        kind = PARAMETER
    if kind == NOT or (
        word.lower() == "token" and contexts.LOGPROB.match(text, text.find(follows, end + 4, end + 400))
    ):
        return None
    name = _Name(text, start, end, word, kind, any_value)
    more = 4 * (_ESCAPED.match(text, end).end() - end)  # type: ignore[union-attr] # matches nothing, too
    for characters, pattern, window, rule in CONTEXTS:
        if follows in characters and (match := pattern.match(text, end, end + window + more)) is not None:
            span = rule(name, match if "bare" in pattern.groupindex and match["bare"] is not None else _whole(match))
            if span is not False:
                return span
    return None


def _whole(match: re.Match[str]) -> re.Match[str]:
    """Repeat ``match`` without the window's limit if the match reached the limit."""
    if match.end() < match.endpos - 1 or match.endpos >= len(match.string):
        return match
    return match.re.match(match.string, match.pos) or match


def _in_element(name: _Name, match: re.Match[str]) -> Span:
    before = name.text[max(0, name.start - 66) : name.start]
    if not before.endswith("<") and contexts.PREFIX.search(before) is None:
        return False
    group = "value" if match["literal"] is None else "literal"
    return match.span(group) if _is_alone(match[group], name) else None


def _behind_quoted_name(name: _Name, match: re.Match[str]) -> Span:
    if match["quote"] is None:
        return _bare(match) if name.kind == SECRET and not _CODE.fullmatch(match["bare"]) else None
    weak = (name.kind == PARAMETER and not is_strong(match["value"])) or is_word(name.word, match["value"])
    ordinary = not match["value"] or weak or _is_prose(match) or is_placeholder(match["value"], name.word)
    return None if ordinary else match.span("value")


def _in_pair(name: _Name, match: re.Match[str]) -> Span:
    opening = name.text[max(0, name.start - 264) : name.start].rstrip("\"'\\ub#.")[-1:]
    in_pair = opening in ("[", "(") and name.text[match.end() : match.end() + 1] in ("]", ")", "")
    known = match["member"] or in_pair or name.text.startswith("--", name.start)
    return match.span("value") if match["value"] and known else None


def _literal(name: _Name, match: re.Match[str]) -> Span:
    """Find the text between the quotes behind a name, if the text is a secret."""
    value = match["value"]
    strong = name.word.isupper() or (is_strong(value) and not is_word(name.word, value))
    weak = name.kind != SECRET and not strong
    ordinary = not value or weak or _is_prose(match) or is_placeholder(value, name.word)
    return None if ordinary else match.span("value")


def _behind_subscript(name: _Name, match: re.Match[str]) -> Span:
    return _literal(name, match) if any(map(str.isalnum, match["value"])) else None


def _alone(name: _Name, match: re.Match[str]) -> Span:
    return match.span("value") if _is_alone(match["value"], name) else None


def _encoded(name: _Name, match: re.Match[str]) -> Span:
    return _whole(match).span("bare") if _is_alone(match["bare"], name) else None


def _marked(name: _Name, match: re.Match[str]) -> Span:
    return match.span("value") if is_strong(match["value"]) and _is_alone(match["value"], name) else False


def _behind_option(name: _Name, match: re.Match[str]) -> Span:
    if name.text[name.start] != "-" or (name.start and name.text[name.start - 1].isalnum()):
        return False
    group = "value" if match["value"] else "bare"
    return match.span(group) if name.any_value or not is_placeholder(match[group], name.word) else None


def _in_block(name: _Name, match: re.Match[str]) -> Span:
    """Find the lines of a block scalar, without the indentation of the first line."""
    before = name.text[max(0, name.start - _WINDOW) : name.start].rpartition("\n")[2]
    if before.strip(" -") or len(match["indent"]) <= len(before) or not _is_alone(match["first"].strip(), name):
        return False
    lines = re.compile(rf"(?:.*\n(?={match['indent']}|\r?\n))*.*").match(name.text, match.end("first"))
    return match.start("first"), lines.end()  # type: ignore[union-attr] # matches nothing, too


def _assigned(name: _Name, match: re.Match[str]) -> Span:
    if match["quote"] is not None:
        if name.any_value:
            return match.span("value") if match["value"] else None
        return None if _closes(name, match) else _literal(name, match)
    second = contexts.BEHIND_SCHEME.match(name.text, match.end("bare")) if _AUTHORIZATION.search(name.word) else None
    if second is not None and is_strong(second["value"]) and not is_placeholder(second["value"], name.word):
        return match.start("bare"), second.end("value")
    if not name.any_value and says_nothing(match["bare"]):
        return None
    in_url = name.text[name.start - 1 : name.start] in ("?", "&") and match["separator"] == "="
    if name.any_value or in_url or match["scheme"] or _is_bare_value(name, match):
        in_line = match["separator"] == ":" and (_AUTHORIZATION.search(name.word) or _COOKIE.search(name.word))
        return _bare(match, bool(in_line) and not name.any_value)
    return None


def _bare(match: re.Match[str], in_line: bool = False) -> tuple[int, int]:
    """Find the value with the scheme; with ``in_line``, to the end of the line."""
    match = _whole(match)
    start = match.start("scheme") if match["scheme"] else match.start("bare")
    return start, _LINE.match(match.string, match.end("bare")).end() if in_line else match.end("bare")  # type: ignore[union-attr] # matches nothing, too


def _held(name: _Name, match: re.Match[str]) -> Span:
    """Find the strings of a list or a mapping behind a name, from the first to the last that is a secret."""
    strings = [one for one in contexts.STRING.finditer(name.text, *match.span("value")) if one["key"] is None]
    secrets = [one for one in strings if one["word"] and is_strong(one["word"]) and _is_alone(one["word"], name)]
    some_are_words = name.kind != SECRET and match["value"][0] == "[" and len(secrets) < len(strings)
    if not secrets or some_are_words or contexts.DECLARES.search(match["value"]):
        return False
    return secrets[0].start("word"), secrets[-1].end("word")


def _items(name: _Name, match: re.Match[str]) -> Span:
    """Find the items of a list of YAML, or the value below a name."""
    before = name.text[max(0, name.start - _WINDOW) : name.start].rpartition("\n")[2]
    if before.strip(" -") or not is_strong(match["first"]) or is_placeholder(match["first"], name.word):
        return False
    more = re.compile(rf"(?:\r?\n{match['indent']}- [^\r\n]*)*").match(name.text, match.end("first"))
    return match.start("first"), more.end()  # type: ignore[union-attr] # matches nothing, too


CONTEXTS: tuple[tuple[str, re.Pattern[str], int, Callable[[_Name, re.Match[str]], Span]], ...] = (
    ("> \t\n", contexts.ELEMENT, 5_000, _in_element),
    ("\"'\\", contexts.AFTER_QUOTED_NAME, _WINDOW, _behind_quoted_name),
    ("\"'\\", contexts.PAIR, _WINDOW, _in_pair),
    ("\"'\\", contexts.ATTRIBUTE, 5_000, _alone),
    ("\"'\\", contexts.PART, 5_000, _alone),
    ("%", contexts.ENCODED, _WINDOW, _encoded),
    ("\"'\\", contexts.AFTER_SUBSCRIPT, _WINDOW, _behind_subscript),
    (" \t\n", contexts.AFTER_OPTION, 5_000, _behind_option),
    (":", contexts.BLOCK, _WINDOW, _in_block),
    (":", contexts.ITEMS, 5_000, _items),
    (":= ", contexts.ACCOUNT, 5_000, _alone),
    (":*", contexts.MARKED, 5_000, _marked),
    (":=> \t\n", contexts.AFTER_TYPED_NAME, _WINDOW, _assigned),
    (":=> \t\n\x1b", contexts.AFTER_NAME, _WINDOW, _assigned),
    ("\"'\\:= ", contexts.HELD, 5_000, _held),
)
"""Lists the contexts: characters behind the name, the pattern from there, the pattern's first limit, and the rule."""


def _closes(name: _Name, match: re.Match[str]) -> bool:
    """Tell whether the quote behind a name ends the string around the name: ``getpass("Password: ")``."""
    if not match["value"].startswith((")", ",")):
        return False
    line = name.text[max(0, name.start - _WINDOW) : name.start].rpartition("\n")[2]
    return line.count(match["quote"]) % 2 == 1


def _is_prose(match: re.Match[str]) -> bool:
    """Tell whether a text between triple quotes, or backticks, is longer than a word, such as a prompt."""
    return match["quote"][-3:] in ('"""', "'''", "`") and len(match["value"].split(None, 2)) > 1


def _is_alone(value: str, name: _Name) -> bool:
    """Tell whether a text alone under a name is a secret, rather than a word or a sentence about secrets."""
    if name.kind != SECRET:
        return is_strong(value)
    if any(map(str.isspace, value)) and not any(map(str.isdigit, value)):
        return False
    return value.lower() not in TYPES and not is_placeholder(value, name.word)


def _is_bare_value(under: _Name, match: re.Match[str]) -> bool:
    """Tell whether the text behind a name without quotes is a value, rather than code or prose."""
    text, start, _, name, kind, _ = under
    value = match["bare"]
    if kind != SECRET and not is_strong(value) and not name.isupper():
        return False
    if value.startswith(("$", "%", "*", "http://", "https://")) or (kind == TEXT and _NUMBER.fullmatch(value)):
        return False
    passed_on = name.lower().endswith(value.lower()) or value.lower().endswith("." + name.lower())
    if passed_on or text[match.end("bare") : match.end("bare") + 1] in ("(", "["):
        return False  # an argument, a name of another module; a call
    if name.isupper() and match["separator"] == "=" and text[match.start() : match.start() + 1] == "=":
        return not text[match.end("separator")].isspace()  # a line of a shell
    if len(value) < 4 and not _COOKIE.search(name):
        return False
    if not _CODE.fullmatch(value):
        return not _CODE.match(value) or (any(map(str.isdigit, value)) and "(" not in value and value[-1] != ".")
    if is_mixed(value):
        return True
    if not value.isalpha() or value.lower() in TYPES or not value.islower():
        return False
    ends = text[match.end("bare") : match.end("bare") + 1]
    before = text[max(0, start - _WINDOW) : start].rstrip(" \t-")[-1:]
    if match["separator"] == ":":  # a line of YAML, of a header, of a log
        return (before == "\n" or (not before and start < _WINDOW)) and ends in ("", "\n", "\r")
    return text[match.start() : match.start() + 1] == "=" and ends in ("", "\n", " ", ";", "&") and before != ","
