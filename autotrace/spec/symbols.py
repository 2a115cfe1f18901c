"""Describe the meanings of a dotted name, as far as source text tells."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autotrace.spec import syntax
from autotrace.spec.sources import ModuleFile
from autotrace.spec.syntax import Names


@dataclass(frozen=True)
class Module:
    """Holds a module with its table of names."""

    file: ModuleFile
    table: Names
    trouble: str = ""
    """Explain why the module's text cannot be read, in words for the user."""

    @property
    def name(self) -> str:
        return self.file.name


@dataclass(frozen=True)
class Class:
    """Holds a class statement."""

    module: Module
    qualname: str
    node: ast.ClassDef
    table: Names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Class) and (self.module.name, self.qualname) == (other.module.name, other.qualname)

    def __hash__(self) -> int:
        return hash((self.module.name, self.qualname))


@dataclass(frozen=True)
class Function:
    """Holds a function statement, or a lambda that was given a name."""

    module: Module
    qualname: str
    node: syntax.Function | ast.Lambda
    owner: Class | None


@dataclass(frozen=True)
class Native:
    """Names an object that is written in C."""

    name: str


@dataclass(frozen=True)
class Other:
    """Holds a value that is neither class nor function: a constant, or a value known only at run time (``reason``)."""

    reason: str
    certain: bool
    """States True if the value exists and cannot be called; False if only an import could tell."""


@dataclass(frozen=True)
class Lazy:
    """Marks a name that is absent from the running module: behind ``__getattr__`` or ``TYPE_CHECKING``.

    ``meaning`` is the symbol behind the name.
    """

    meaning: Module | Class | Function | Native | Other | None


Symbol = Module | Class | Function | Native | Other | Lazy
