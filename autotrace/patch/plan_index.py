"""Index the places of the plan's names: by module, by class, by glob. A dotted name does not tell where the module
ends.

A glob takes the public functions of a module and the public methods of its public classes, if written in Python and in
that module. Nothing here reads an object's attributes before the object's type: a member of a module may be a lazy
proxy that acts, or raises, when read.
"""

from __future__ import annotations

import contextlib
import fnmatch
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from autotrace.config.plan import Plan, Target, decorated
from autotrace.record.object_fields import members_of, module_of, name_of


@dataclass(frozen=True)
class Spelling:
    """Hold a spelling of a target: the path ``qualname`` below some module; ``rank``, the number among the
    alternatives; ``depth``, the decorators above the function that is meant."""

    target: Target
    name: str
    qualname: str
    rank: int
    depth: int
    glob: bool = False

    @property
    def attribute(self) -> str:
        """Return the last word."""
        return self.qualname.rpartition(".")[2]


@dataclass(frozen=True)
class Glob:
    """Hold ``prefix.*`` (members of a module or class) or ``prefix.**`` (everything below a package)."""

    target: Target
    prefix: str
    deep: bool

    def spelled(self, owner: Any) -> Iterator[Spelling]:
        """Yield the members of ``owner``, a module or a class, that the glob takes."""
        functions, classes = ([], [owner]) if isinstance(owner, type) else members_of_module(owner)
        methods = (f"{name_of(cls)}.{method}" for cls in classes for method in members_of_class(cls))
        for qualname in (*functions, *methods):
            yield Spelling(self.target, self.prefix, qualname, 0, 0, glob=True)


def excluded(target: Target, dotted: str) -> bool:
    """Return whether ``target`` leaves out ``dotted`` (module and qualified name) by its ``exclude``."""
    return any(fnmatch.fnmatchcase(dotted, pattern) for pattern in target.without)


class PlanIndex:
    """Map modules and classes to the plan's spellings."""

    def __init__(self, plan: Plan) -> None:
        self.modules: dict[str, list[Spelling]] = {}
        self.classes: dict[tuple[str, str], list[Spelling]] = {}
        """Map module and qualified name of the class -> spellings."""
        self.globs: list[Glob] = []
        for target in plan.targets:
            for rank, name in enumerate(target.names):
                if "*" in name:
                    prefix = name.replace(":", ".").rstrip("*").removesuffix(".")
                    self.globs.append(Glob(target, prefix, deep=name.endswith(".**")))
                else:
                    self._exact(target, name, rank)

    def _exact(self, target: Target, name: str, rank: int) -> None:
        bare, depth = decorated(name)
        for module, qualname in splits(bare):
            spelling = Spelling(target, name, qualname, rank, depth)
            self.modules.setdefault(module, []).append(spelling)
            self.classes.setdefault((module, qualname.rpartition(".")[0]), []).append(spelling)

    def wanted(self, module: str) -> bool:
        """Return whether some name of the plan may be in ``module``."""
        return module in self.modules or any(True for _ in self.globs_of(module))

    def functions_of(self, called: Iterable[str]) -> set[str]:
        """See ``program.wanted``."""
        named = {spelling.qualname for name in called for spelling in self.modules.get(name, ())}
        public = any(inside is None for name in called for _, inside in self.globs_of(name))
        return {name for name in named if "." not in name}.union(["[!_]*"] * public)

    def globs_of(self, module: str) -> Iterator[tuple[Glob, str | None]]:
        """Yield globs that reach into ``module``, with the class that the glob names there (None: the whole module)."""
        for glob in self.globs:
            if module == glob.prefix or (glob.deep and module.startswith(glob.prefix + ".")):
                yield glob, None
            elif glob.prefix.startswith(module + "."):
                yield glob, glob.prefix[len(module) + 1 :]


def splits(name: str) -> Iterator[tuple[str, str]]:
    """Yield every way to read a name as module and qualified name."""
    module, colon, qualname = name.partition(":")
    if colon:
        yield module, qualname
        return
    words = name.split(".")
    for cut in range(1, len(words)):
        yield ".".join(words[:cut]), ".".join(words[cut:])


def members_of_module(module: ModuleType) -> tuple[list[str], list[type]]:
    """Return the names of the functions, and the classes, that were defined in ``module``."""
    here = module.__name__
    public = [(name, value) for name, value in list(vars(module).items()) if not name.startswith("_")]
    functions = [name for name, value in public if type(value) is FunctionType and value.__module__ == here]
    classes = [(name, value) for name, value in public if issubclass(type(value), type) and module_of(value) == here]
    return functions, [cls for name, cls in classes if name_of(cls) == name]


def members_of_class(cls: type) -> list[str]:
    """Return the names of the methods that were defined in ``cls``."""
    if any(word.startswith("_") for word in name_of(cls).split(".")):
        return []
    return [name for name, raw in list(members_of(cls).items()) if not name.startswith("_") and _method(cls, raw)]


def _method(cls: type, raw: Any) -> bool:
    function = raw.__func__ if type(raw) in (staticmethod, classmethod) else raw
    if type(function) is not FunctionType:
        return False
    # ``encoder = json_encoder`` keeps a function from elsewhere, which is pickled by its name there
    owner = function.__qualname__.rpartition(".")[0]
    return owner == name_of(cls) or owner.endswith("<locals>")


def outside(requirement: str) -> str | None:
    """Return why the installed release does not satisfy ``requirement``; None: satisfied, or not decidable."""
    from importlib import metadata

    from packaging.requirements import Requirement
    from packaging.version import InvalidVersion, Version

    wanted = Requirement(requirement)
    try:
        installed = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        module = sys.modules.get(wanted.name.replace("-", "_"))
        installed = str(getattr(module, "__version__", ""))
    with contextlib.suppress(InvalidVersion):
        if installed and not wanted.specifier.contains(Version(installed), prereleases=True):
            return f"for {requirement}, installed is {installed}"
    return None
