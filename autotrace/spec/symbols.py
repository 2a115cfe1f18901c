"""What a dotted name can stand for, as far as source text tells."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autotrace.spec import syntax
from autotrace.spec.sources import ModuleFile
from autotrace.spec.syntax import Names


@dataclass(frozen=True)
class Module:
    """A module, with its table of names."""

    file: ModuleFile
    table: Names
    trouble: str = ""
    """Why its text cannot be read, in words for the user."""

    @property
    def name(self) -> str:
        return self.file.name


@dataclass(frozen=True)
class Class:
    """A class statement."""

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
    """A function statement, or a lambda that was given a name."""

    module: Module
    qualname: str
    node: syntax.Function | ast.Lambda
    owner: Class | None


@dataclass(frozen=True)
class Native:
    """Something written in C."""

    name: str


@dataclass(frozen=True)
class Other:
    """A value that is neither: a constant, or something only running the program tells (``reason``)."""

    reason: str
    certain: bool
    """True: it is there and cannot be called; False: that cannot be determined without importing."""


@dataclass(frozen=True)
class Lazy:
    """Not in the module when it runs: behind ``__getattr__`` or ``TYPE_CHECKING``. ``meaning``: what it stands for."""

    meaning: Module | Class | Function | Native | Other | None


Symbol = Module | Class | Function | Native | Other | Lazy
