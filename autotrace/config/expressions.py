"""Parse the values of a spec: a path, a constant, or a function of paths: ``member(row.index, args.group_size)``.

    value     =  constant | function | path
    constant  =  number | 'text' | "true" | "false"
    function  =  word "(" value {"," value} ")"
    path      =  word {"." step | "[" value "]"},   step = word | number | "*" (all items)

``parse`` returns a tree of tuples. ``record.formulas`` evaluates the tree and ``spec.names`` checks the tree. The
functions are in ``record.spec_functions``; the only names are the roots of paths. Standard library only: read in traced
processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Tree = tuple[Any, ...]
"""Tree of an expression: ``("path", root, steps)`` with steps that are texts or trees, ``("constant", value)``, or
``("call", name, arguments)``."""

MAX_LENGTH = 500
"""Limits the characters of an expression."""
MAX_DEPTH = 20
_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+)|(?P<word>[^\W\d]\w*)|(?P<step>\.(?:[\w-]+|\*))|(?P<mark>[,()\[\]])"
    r"|(?P<text>'[^']*')|(?P<end>$))"
)
_LITERALS = {"true": True, "false": False}
_MARKS = re.compile(r"[\s\[\]()*']|\A-?\d+\Z")
_INSTEAD = {
    "//": "group(i, n)", "%": "member(i, n)", "-": "between(start, end)", "/": "mean(values, mask)",
    "+": "row_of_all(i, n, process)", "==": "equal(a, b)", ">=": "at_least(a, b)", "if": "choice(condition, a, b)",
    "not": "opposite(a)",
}  # fmt: skip
"""Operator of other languages -> a function that computes the same."""
_OPERATORS = re.compile(r"[-+*/%=!<>]+|(?:if|not)\b")


class ExpressionError(ValueError):
    """Reports a text that cannot be read; the message says how to correct the text."""


def is_expression(text: str) -> bool:
    """Tell whether ``text`` is more than a path of words and dots. A ``-`` alone may be part of a key."""
    return text in _LITERALS or _MARKS.search(text) is not None


def parse(text: str) -> Tree:
    """Parse an expression into a tree. Raises ``ExpressionError``."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression has at most {MAX_LENGTH} characters, this one has {len(text)}")
    parser = _Parser(text)
    tree = parser.value()
    if parser.kind != "end":
        raise parser.unexpected()
    return tree


def roots(tree: Tree) -> Iterator[str]:
    """Yield the first words of all paths in ``tree``."""
    if tree[0] == "path":
        yield tree[1]
    for part in tree[2] if tree[0] != "constant" else ():
        if isinstance(part, tuple):
            yield from roots(part)


def calls(tree: Tree) -> Iterator[tuple[str, int]]:
    """Yield (name, number of arguments) of all functions in ``tree``."""
    if tree[0] == "call":
        yield tree[1], len(tree[2])
    for part in tree[2] if tree[0] != "constant" else ():
        if isinstance(part, tuple):
            yield from calls(part)


class _Parser:
    """Parse by recursive descent; one instance per expression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._depth = 0
        self._next()

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._end)
        if match is None:
            raise self._misplaced(self._text[self._end :].strip())
        self.kind = match.lastgroup or ""
        self._word = match[self.kind]
        self._end = match.end()

    def unexpected(self) -> ExpressionError:
        return ExpressionError("the value ends too early") if self.kind == "end" else self._misplaced(self._word)

    def _misplaced(self, text: str) -> ExpressionError:
        if operator := _OPERATORS.match(text):
            function = _INSTEAD.get(operator[0], "group(i, n)")
            return ExpressionError(f"`{operator[0]}` computes; name a function instead, such as {function}")
        if text == "(":
            return ExpressionError("a path reads attributes, keys and indexes, it calls nothing")
        return ExpressionError(f"`{text[:20]}` is not expected there")

    def _take(self, mark: str) -> bool:
        is_there = self.kind == "mark" and self._word == mark
        if is_there:
            self._next()
        return is_there

    def _need(self, mark: str) -> None:
        if not self._take(mark):
            raise ExpressionError(f"`{mark}` is missing") if self.kind == "end" else self.unexpected()

    def value(self) -> Tree:
        """Parse a value, up to the first token behind the value."""
        kind, word = self.kind, self._word
        if kind not in ("number", "text", "word") or word == "not":
            raise self.unexpected()
        self._next()
        if kind == "number":
            return ("constant", int(word))
        if kind == "text":
            return ("constant", word[1:-1])
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError("the value is nested too deeply")
        if self.kind == "mark" and self._word == "(":
            tree: Tree = ("call", word, self._arguments())
        elif word in _LITERALS and self.kind != "step":
            tree = ("constant", _LITERALS[word])
        else:
            tree = ("path", word, self._steps())
        self._depth -= 1
        return tree

    def _arguments(self) -> tuple[Tree, ...]:
        self._need("(")
        arguments = [self.value()]
        while self._take(","):
            arguments.append(self.value())
        self._need(")")
        return tuple(arguments)

    def _steps(self) -> tuple[Any, ...]:
        steps: list[Any] = []
        while True:
            if self.kind == "step":
                steps.append(self._word[1:])
                self._next()
            elif self._take("["):
                steps.append(self.value())
                self._need("]")
            else:
                return tuple(steps)
