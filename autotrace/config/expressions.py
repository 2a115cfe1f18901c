"""Parse the values of a spec: a path, or paths with numbers, such as ``result.advantages[i - n]``.

    expression  =  sum ["if" condition ["else" expression]]
    condition   =  ["not"] sum ["==" sum]
    sum         =  product {("+" | "-") product}
    product     =  factor {("*" | "/" | "//" | "%") factor}
    factor      =  "-" factor | constant | "(" expression ")" | "sum" "(" expression ")" | path
    constant    =  number | 'text' | "true" | "false"
    path        =  word {"." step | "[" expression "]"},   step = word | number | "*" (all items)

``parse`` returns a tree of tuples. ``record.formulas`` evaluates the tree and ``spec.names`` checks the tree. The only
call is ``sum``; the only names are the roots of paths. Standard library only: read in traced processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

Tree = tuple[Any, ...]
"""Tree of an expression. ``("path", root, steps)`` with steps that are texts or trees, ``("constant", value)``,
``("-", a)``, ``("not", a)``, ``("sum", a)``, ``("if", condition, a, b)``, ``("absent",)`` for a missing else, or an
operator with two sides."""

MAX_LENGTH = 500
"""Limits the characters of an expression."""
MAX_DEPTH = 20
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+)|(?P<word>[^\W\d]\w*)|(?P<step>\.(?:-?\w+|\*))|(?P<mark>//|==|[-+*/%()\[\]])"
    r"|(?P<text>'[^']*')|(?P<end>$))"
)
_OPERATORS = (("+", "-"), ("*", "/", "//", "%"))
_KEYWORDS = frozenset({"if", "else", "not"})
_LITERALS = {"true": True, "false": False}
_MARKS = re.compile(r"[\s\[\]()*]")


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
    tree = parser.expression()
    if parser.kind != "end":
        raise parser.unexpected()
    return tree


def roots(tree: Tree) -> Iterator[str]:
    """Yield the first words of all paths in ``tree``."""
    if tree[0] == "path":
        yield tree[1]
        parts: tuple[Any, ...] = tree[2]
    else:
        parts = tree[1:]
    for part in parts:
        if isinstance(part, tuple):
            yield from roots(part)


class _Parser:
    """Parses by recursive descent; one instance per expression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._depth = 0
        self._next()

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._end)
        if match is None:
            rest = self._text[self._end :].strip()
            raise ExpressionError(f"`{rest[:20]}` cannot stand in an expression")
        self.kind, self._word = match.lastgroup or "", match[match.lastgroup or 0].strip()
        self._end = match.end()

    def unexpected(self) -> ExpressionError:
        if self.kind == "end":
            return ExpressionError("the expression ends too early")
        if self._word == "(":
            return ExpressionError("a path reads attributes, keys and indexes, it calls nothing but sum(...)")
        return ExpressionError(f"`{self._word}` is not expected there")

    def _take(self, *words: str) -> str:
        if self.kind in ("word", "mark") and self._word in words:
            taken = self._word
            self._next()
            return taken
        return ""

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise ExpressionError(f"`{word}` is missing") if self.kind == "end" else self.unexpected()

    def expression(self) -> Tree:
        tree = self._condition()
        if self._take("if"):
            condition = self._condition()
            tree = ("if", condition, tree, self.expression() if self._take("else") else ("absent",))
        return tree

    def _condition(self) -> Tree:
        if self._take("not"):
            return ("not", self._condition())
        tree = self._operation(_OPERATORS)
        return ("==", tree, self._operation(_OPERATORS)) if self._take("==") else tree

    def _operation(self, levels: Sequence[Sequence[str]]) -> Tree:
        """Parse a sum; without the first level a product, without both levels a factor."""
        if not levels:
            return self._factor()
        tree = self._operation(levels[1:])
        while operator := self._take(*levels[0]):
            tree = (operator, tree, self._operation(levels[1:]))
        return tree

    def _factor(self) -> Tree:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError("the expression is nested too deeply")
        if self._take("-"):
            tree: Tree = ("-", self._factor())
        elif self._take("("):
            tree = self.expression()
            self._need(")")
        elif self.kind in ("number", "text"):
            tree = ("constant", int(self._word) if self.kind == "number" else self._word[1:-1])
            self._next()
        elif self.kind == "word" and self._word in _LITERALS:
            tree = ("constant", _LITERALS[self._word])
            self._next()
        elif self.kind != "word" or self._word in _KEYWORDS:
            raise self.unexpected()
        else:
            tree = self._path()
        self._depth -= 1
        return tree

    def _path(self) -> Tree:
        root, steps = self._word, []
        self._next()
        if root == "sum" and self._take("("):
            tree = ("sum", self.expression())
            self._need(")")
            return tree
        while True:
            if self.kind == "step":
                steps.append(self._word[1:])
                self._next()
            elif self._take("["):
                steps.append(self.expression())
                self._need("]")
            else:
                return ("path", root, tuple(steps))
