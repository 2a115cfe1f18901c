"""``reward < 0.1 and step >= 3``: a condition on trajectories as people write it, compiled to SQL with parameters.

    condition  =  condition "or" condition | condition "and" condition | "not" condition | "(" condition ")"
               |  column ("=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=") (value | column)
               |  column ["not"] "in" "(" value {"," value} ")" | column ["not"] "contains" text
               |  column "is" ["not"] "null" | column                       (of one that is true or false)
    value      =  number | 'text' | "text" | true | false
    column     =  one of ``columns.COLUMNS``, or ``facts.NAME``, ``attributes.NAME`` (``facts.reward_extra_info.acc``)

A comparison with something that is not there is neither true nor false, as in SQL: ``reward < 1`` and ``not reward <
1`` both leave out a trajectory without a reward; ``reward is null`` finds it. Nothing of the text gets into the SQL:
names are looked up, values are bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from autotrace.ship.store.columns import ANY, FLAG, JSON, NAMES, NUMBER, STATUSES, TEXT, Column, lookup

MAX_TERMS = 400
"""Comparisons and values in one condition; SQLite has limits of its own beyond."""
MAX_DEPTH = 40


class WhereError(ValueError):
    """A condition cannot be understood; the message is one sentence with what to write instead."""


@dataclass(frozen=True)
class Condition:
    """A condition on the table ``traces``."""

    sql: str = "1"
    values: tuple[Any, ...] = ()

    def __and__(self, other: Condition) -> Condition:
        if "1" in (self.sql, other.sql):
            return other if self.sql == "1" else self
        return Condition(f"({self.sql}) AND ({other.sql})", self.values + other.values)


_TOKEN = re.compile(
    r"""\s*(?: (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])) | (?P<name>[A-Za-z_][\w-]*(?:\.[\w-]+)*)
        | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*") | (?P<mark><=|>=|!=|<>|==|[=<>(),]) | (?P<end>$) )""",
    re.VERBOSE,
)
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_WORDS = ("and", "or", "not", "in", "is", "null", "contains", "true", "false")


EVERY = Condition()
"""What every trajectory satisfies."""


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int
    """Number of its first character, from 1."""


def condition(expression: str) -> Condition:
    """``expression`` compiled. Raises ``WhereError``."""
    try:
        expression.encode()
    except UnicodeEncodeError:
        raise WhereError("the condition is not text: it has bytes that are no UTF-8") from None
    return _Parser(expression).whole()


def equals(**values: Any) -> Condition:
    """Columns of the table that have these values; None: any."""
    given = {name: value for name, value in values.items() if value is not None}
    return Condition(" AND ".join(f"{name} = ?" for name in given) or "1", tuple(given.values()))


def has_status(statuses: tuple[str, ...]) -> Condition:
    """One of ``statuses``; without any: every one."""
    return Condition(f"status IN ({', '.join('?' * len(statuses))})", statuses) if statuses else Condition()


class _Parser:
    """Recursive descent; one instance per expression."""

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

    def _word(self, *words: str) -> str:
        """The next token, taken, if it is one of ``words``; else empty."""
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

    def _joined(self, word: str, part: Callable[[], Condition]) -> Condition:
        self._depth += 1
        if self._depth > 2 * MAX_DEPTH:
            raise WhereError(f"the condition is nested too deeply at character {self._token.at}")
        parts = [part()]
        while self._word(word):
            parts.append(part())
        self._depth -= 1
        if len(parts) == 1:
            return parts[0]
        sql = f" {word.upper()} ".join(f"({each.sql})" for each in parts)
        return Condition(sql, tuple(value for each in parts for value in each.values))

    def _one(self) -> Condition:
        negations = 0
        while self._word("not"):
            negations += 1
        inner = self._comparison()
        return inner if negations % 2 == 0 else Condition(f"NOT ({inner.sql})", inner.values)

    def _comparison(self) -> Condition:
        if self._word("("):
            inner = self._any()
            if not self._word(")"):
                raise self._expected('")"')
            return inner
        name, column = self._column()
        if self._word("is"):
            negated = "NOT " if self._word("not") else ""
            if not self._word("null"):
                raise self._expected('"null"')
            return Condition(f"{column.sql} IS {negated}NULL", column.values)
        mark = self._word(*_COMPARISONS)
        if mark:
            return self._compared(name, column, _COMPARISONS[mark])
        negated = "NOT " if self._word("not") else ""
        if self._word("contains"):
            return self._contains(name, column, negated)
        if self._word("in"):
            return self._in(name, column, negated)
        if negated or column.kind not in (FLAG, ANY):
            raise self._expected(f"a comparison of {name} (=, <, in, contains, is null)")
        return Condition(column.sql, column.values)

    def _compared(self, name: str, column: Column, comparison: str) -> Condition:
        token = self._token
        if token.kind == "name" and token.text.lower() not in _WORDS:
            if column.kind == TEXT and lookup(token.text) is None:
                raise WhereError(f"a text is written in quotes: '{token.text}' (at character {token.at})")
            _, other = self._column()
            return Condition(f"{column.sql} {comparison} {other.sql}", column.values + other.values)
        value = self._value(name, column)
        if column.member:
            if comparison not in ("=", "!="):
                raise WhereError(f"{name} has no order; compare it with = or !=")
            return Condition(column.member if comparison == "=" else f"NOT ({column.member})", (value,))
        column = _for(column, value)
        return Condition(f"{column.sql} {comparison} ?", (*column.values, value))

    def _in(self, name: str, column: Column, negated: str) -> Condition:
        if not self._word("("):
            raise self._expected('"("')
        values = [self._value(name, column)]
        while self._word(","):
            values.append(self._value(name, column))
        if not self._word(")"):
            raise self._expected('"," or ")"')
        if len({float if type(value) is int else type(value) for value in values}) > 1:
            raise WhereError(f"the values that {name} is compared with must be of one kind")
        if column.member:
            return Condition(f"{negated}({' OR '.join([column.member] * len(values))})", tuple(values))
        column = _for(column, values[0])
        return Condition(f"{column.sql} {negated}IN ({', '.join('?' * len(values))})", (*column.values, *values))

    def _contains(self, name: str, column: Column, negated: str) -> Condition:
        if column.kind in (NUMBER, FLAG):
            raise WhereError(f"{name} is {column.kind}, so it cannot contain a text")
        if self._token.kind != "text":
            raise self._expected("a text in quotes")
        value = self._value(name, column)
        if column.containing:
            return Condition(f"{negated}({column.containing})", (value,))
        return Condition(f"instr(lower({column.sql}), lower(?)) {'= 0' if negated else '> 0'}", (*column.values, value))

    def _column(self) -> tuple[str, Column]:
        token = self._token
        if token.kind != "name" or token.text.lower() in _WORDS:
            raise self._expected("the name of a column")
        column = lookup(token.text)
        if column is None:
            raise WhereError(_unknown(token))
        self._at += 1
        return token.text, column

    def _value(self, name: str, column: Column) -> Any:
        token = self._token
        value: Any
        if token.kind == "number":
            value = _number(token.text)
        elif token.kind == "text":
            quote = token.text[0]
            value = token.text[1:-1].replace(quote * 2, quote)
        elif word := self._word("true", "false"):
            self._at -= 1
            value = word == "true"
        elif token.kind == "name":
            raise WhereError(f"a text is written in quotes: '{token.text}' (at character {token.at})")
        else:
            raise self._expected("a value")
        self._at += 1
        kind = FLAG if isinstance(value, bool) else TEXT if isinstance(value, str) else NUMBER
        if column.kind not in (ANY, kind) and (column.sql, kind) != ("sample_index", NUMBER):
            raise WhereError(f"{name} is {column.kind}, but {token.text} at character {token.at} is {kind}")
        if column.sql == "status":
            value = value.upper()
            if value not in STATUSES:
                raise WhereError(f"there is no status {token.text}; choose from {', '.join(STATUSES)}")
        return value


def _for(column: Column, value: Any) -> Column:
    """``column`` as it is compared with ``value``: a dataset's index is stored as text, and is ordered as a number
    beside one."""
    if column.sql != "sample_index" or isinstance(value, str):
        return column
    return Column("CASE WHEN sample_index NOT GLOB '*[^0-9]*' THEN CAST(sample_index AS INTEGER) END", NUMBER, "")


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
