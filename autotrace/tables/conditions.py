"""Compile a condition such as ``reward < 0.1 and step >= 3``, as people write conditions on trajectories, to SQL over
the table ``trajectories``, with parameters.

    condition  =  condition "or" condition | condition "and" condition | "not" condition | "(" condition ")"
               |  word ("=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=") (value | word)
               |  word ["not"] "in" "(" value {"," value} ")" | word ["not"] "contains" text
               |  word "is" ["not"] "null" | word                            (a word that is true or false)
    value      =  number | 'text' | "text" | true | false
    word       =  a name in ``words.WORDS``, ``facts.NAME`` or ``attributes.NAME`` (``facts.reward_extra_info.acc``)

A comparison with a missing value is neither true nor false, as in SQL: ``reward < 1`` and ``not reward < 1`` both leave
out a trajectory without a reward; ``reward is null`` finds the trajectory. No part of the text gets into the SQL: names
are looked up, values are bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autotrace.tables.errors import QueryError
from autotrace.tables.words import ANY, FLAG, JSON, LIST, NAMES, NUMBER, STATUSES, TEXT, Word, lookup

MAX_TERMS = 400
"""Maximum number of comparisons and values in a condition."""
MAX_DEPTH = 40


class WhereError(QueryError):
    """Report a condition that cannot be understood; the message is a sentence with the correct spelling."""


@dataclass(frozen=True)
class Condition:
    """Hold a compiled condition on trajectories: SQL, values and columns."""

    sql: str = "true"
    values: tuple[Any, ...] = ()
    columns: frozenset[str] = frozenset()
    """Columns of ``trajectories`` that the condition reads."""

    def __and__(self, other: Condition) -> Condition:
        return _joined("AND", [self, other])


def _joined(keyword: str, parts: Sequence[Condition]) -> Condition:
    return Condition(
        f" {keyword} ".join(f"({each.sql})" for each in parts),
        tuple(value for each in parts for value in each.values),
        frozenset().union(*(each.columns for each in parts)),
    )


_TOKEN = re.compile(
    r"""\s*(?: (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])) | (?P<name>[A-Za-z_][\w-]*(?:\.[\w-]+)*)
        | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*") | (?P<mark><=|>=|!=|<>|==|[=<>(),]) | (?P<end>$) )""",
    re.VERBOSE,
)
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_KEYWORDS = ("and", "or", "not", "in", "is", "null", "contains", "true", "false")

EVERY = Condition()
"""Match every trajectory."""


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int
    """Number of the token's first character, from 1."""


def condition(expression: str) -> Condition:
    """Compile ``expression``. Raises ``WhereError``."""
    try:
        expression.encode()
    except UnicodeEncodeError:
        raise WhereError("the condition is not text: it has bytes that are no UTF-8") from None
    return _ConditionParser(expression).whole()


def equals(**values: Any) -> Condition:
    """Return a condition that columns have these values; None: any value."""
    given = {name: value for name, value in values.items() if value is not None}
    sql = " AND ".join(f'"{name}" = ?' for name in given) or "true"
    return Condition(sql, tuple(given.values()), frozenset(given))


def has_status(statuses: tuple[str, ...]) -> Condition:
    """Return a condition that the status is in ``statuses``; without statuses every trajectory matches."""
    if not statuses:
        return EVERY
    return Condition(f"status IN ({', '.join('?' * len(statuses))})", statuses, frozenset({"status"}))


class _ConditionParser:
    """Parse by recursive descent; each expression needs a new parser."""

    def __init__(self, expression: str) -> None:
        self._tokens = list(_tokens(expression))
        self._at = 0
        self._depth = 0
        if len(self._tokens) > 4 * MAX_TERMS:
            raise WhereError(f"the condition is too long: at most {MAX_TERMS} comparisons and values")

    def whole(self) -> Condition:
        compiled = self._any()
        if self._token.kind != "end":
            raise self._expected('"and" or "or"')
        if len(compiled.values) > MAX_TERMS:
            raise WhereError(f"the condition is too long: at most {MAX_TERMS} comparisons and values")
        return compiled

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _keyword(self, *words: str) -> str:
        """Take and return the next token if the token is in ``words``; else return an empty text."""
        token = self._token
        text = token.text.lower() if token.kind == "name" else token.text if token.kind == "mark" else ""
        if text not in words:
            return ""
        self._at += 1
        return text

    def _expected(self, what: str) -> WhereError:
        token = self._token
        found = f'"{token.text}"' if token.text else "nothing"
        return WhereError(f"expected {what} at character {token.at}, not {found}")

    def _any(self) -> Condition:
        return self._joined("or", self._all)

    def _all(self) -> Condition:
        return self._joined("and", self._one)

    def _joined(self, keyword: str, part: Callable[[], Condition]) -> Condition:
        self._depth += 1
        if self._depth > 2 * MAX_DEPTH:
            raise WhereError(f"the condition is nested too deeply at character {self._token.at}")
        parts = [part()]
        while self._keyword(keyword):
            parts.append(part())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else _joined(keyword.upper(), parts)

    def _one(self) -> Condition:
        negations = 0
        while self._keyword("not"):
            negations += 1
        inner = self._comparison()
        return inner if negations % 2 == 0 else Condition(f"NOT ({inner.sql})", inner.values, inner.columns)

    def _comparison(self) -> Condition:
        if self._keyword("("):
            inner = self._any()
            if not self._keyword(")"):
                raise self._expected('")"')
            return inner
        name, word = self._word()
        if self._keyword("is"):
            negated = "NOT " if self._keyword("not") else ""
            if not self._keyword("null"):
                raise self._expected('"null"')
            return _of(word, f"{word.presence} IS {negated}NULL")
        mark = self._keyword(*_COMPARISONS)
        if mark:
            return self._compared(name, word, _COMPARISONS[mark])
        negated = "NOT " if self._keyword("not") else ""
        if self._keyword("contains"):
            return self._contains(name, word, negated)
        if self._keyword("in"):
            return self._in(name, word, negated)
        if negated or word.kind not in (FLAG, ANY):
            raise self._expected(f"a comparison of {name} (=, <, in, contains, is null)")
        return _of(word, word.as_kind(FLAG))

    def _compared(self, name: str, word: Word, comparison: str) -> Condition:
        token = self._token
        if token.kind == "name" and token.text.lower() not in _KEYWORDS:
            return self._with_word(name, word, comparison)
        value = self._value(name, word)
        if word.kind == LIST:
            if comparison not in ("=", "!="):
                raise WhereError(f"{name} has no order; compare it with = or !=")
            return _of(word, word.has if comparison == "=" else f"NOT ({word.has})", value)
        return _of(word, f"{word.as_kind(_kind(value))} {comparison} ?", value)

    def _with_word(self, name: str, word: Word, comparison: str) -> Condition:
        token = self._token
        if word.kind == TEXT and lookup(token.text) is None:
            raise WhereError(f"a text is written in quotes: '{token.text}' (at character {token.at})")
        other_name, other = self._word()
        kinds = {word.kind, other.kind} - {ANY}
        if LIST in kinds:
            raise WhereError(f"{name if word.kind == LIST else other_name} is compared with a text in quotes")
        if len(kinds) > 1 and not all(NUMBER in each.kinds for each in (word, other)):
            raise WhereError(f"{name} is {word.kind}, but {other_name} is {other.kind}")
        kind = NUMBER if len(kinds) > 1 else next(iter(kinds), NUMBER)
        sql = f"{word.as_kind(kind)} {comparison} {other.as_kind(kind)}"
        return Condition(sql, (), word.columns | other.columns)

    def _in(self, name: str, word: Word, negated: str) -> Condition:
        if not self._keyword("("):
            raise self._expected('"("')
        values = [self._value(name, word)]
        while self._keyword(","):
            values.append(self._value(name, word))
        if not self._keyword(")"):
            raise self._expected('"," or ")"')
        if len({_kind(value) for value in values}) > 1:
            raise WhereError(f"the values that {name} is compared with must be of one kind")
        if word.kind == LIST:
            return _of(word, f"{negated}({' OR '.join([word.has] * len(values))})", *values)
        marks = ", ".join("?" * len(values))
        return _of(word, f"{word.as_kind(_kind(values[0]))} {negated}IN ({marks})", *values)

    def _contains(self, name: str, word: Word, negated: str) -> Condition:
        if word.kind in (NUMBER, FLAG):
            raise WhereError(f"{name} is {word.kind}, so it cannot contain a text")
        if self._token.kind != "text":
            raise self._expected("a text in quotes")
        value = self._value(name, word)
        return _of(word, f"{negated}contains(lower({word.text}), lower(?))", value)

    def _word(self) -> tuple[str, Word]:
        token = self._token
        if token.kind != "name" or token.text.lower() in _KEYWORDS:
            raise self._expected("the name of a column")
        word = lookup(token.text)
        if word is None:
            raise WhereError(_unknown(token))
        self._at += 1
        return token.text, word

    def _value(self, name: str, word: Word) -> Any:
        token = self._token
        value: Any
        if token.kind == "number":
            value = _number(token.text)
        elif token.kind == "text":
            quote = token.text[0]
            value = token.text[1:-1].replace(quote * 2, quote)
        elif keyword := self._keyword("true", "false"):
            self._at -= 1
            value = keyword == "true"
        elif token.kind == "name":
            raise WhereError(f"a text is written in quotes: '{token.text}' (at character {token.at})")
        else:
            raise self._expected("a value")
        self._at += 1
        kind = _kind(value)
        if word.kind != ANY and kind not in word.kinds:
            shown = TEXT if word.kind == LIST else word.kind
            raise WhereError(f"{name} is {shown}, but {token.text} at character {token.at} is {kind}")
        if name == "status":
            value = value.upper()
            if value not in STATUSES:
                raise WhereError(f"there is no status {token.text}; choose from {', '.join(STATUSES)}")
        return value


def _of(word: Word, sql: str, *values: Any) -> Condition:
    return Condition(sql, values, word.columns)


def _kind(value: Any) -> str:
    return FLAG if isinstance(value, bool) else TEXT if isinstance(value, str) else NUMBER


def _number(text: str) -> int | float:
    try:
        value: int | float = int(text)
    except ValueError:
        value = float(text)
    return value if isinstance(value, float) or abs(value) < 1 << 63 else float(value)


def _unknown(token: _Token) -> str:
    problem = f'there is no column "{token.text}" at character {token.at}'
    if token.text in JSON:
        return f"{problem}; write {token.text}.NAME"
    import difflib

    nearest = difflib.get_close_matches(token.text.lower(), NAMES, 1)
    return f'{problem}; did you mean "{nearest[0]}"?' if nearest else f"{problem}; choose from {', '.join(NAMES)}"


def _tokens(expression: str) -> Iterator[_Token]:
    at = 0
    while True:
        match = _TOKEN.match(expression, at)
        if match is None:
            at += len(expression[at:]) - len(expression[at:].lstrip())
            raise WhereError(_unreadable(expression, at))
        kind = match.lastgroup or ""
        yield _Token(kind, match[kind], match.start(kind) + 1)
        if kind == "end":
            return
        at = match.end()


def _unreadable(expression: str, at: int) -> str:
    if expression[at] in "'\"":
        return f"the text that begins at character {at + 1} has no closing quote"
    return f"cannot read {expression[at:].split()[0]!r} at character {at + 1}"
