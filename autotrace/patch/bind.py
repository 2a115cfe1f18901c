"""Binding: put wrappers where the plan's names stand, and say for every target what happened to it.

Resolution and installation are wrapt's (``resolve_path``, ``wrap_object``); what is installed is a plain function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from autotrace.patch.index import Entry, Glob, Index
from autotrace.patch.rewrap import Refused, plain, rewrap
from autotrace.record import faults
from autotrace.spec.plan import Target

Report = Callable[[str, str, str, str], None]
"""(key, name, state, reason) with the states of ``spool.records.Report``."""


class Binder:
    """The targets of this process and where they were bound."""

    def __init__(self, index: Index, report: Report, main: str | None = None) -> None:
        self.index = index
        self.report = report
        self.main = main
        """Module name that ``__main__`` stands for (``python -m pkg.mod``)."""
        self.bound: dict[str, str] = {}
        """Key -> first place it was bound."""
        self.roots: dict[type, list[tuple[Target, str]]] = {}
        """Classes whose subclasses' overrides are wrapped too, with the attribute."""
        self.watched: dict[type, list[tuple[Target, str]]] = {}
        """Classes whose overrides are only reported (shadowed)."""
        self._gates: dict[str, str | None] = {}
        self._ranks: dict[str, int] = {}

    # -- occasions --------------------------------------------------------------------------------------------------

    def module(self, module: ModuleType) -> None:
        """``module`` was executed: bind what the plan names in it."""
        name = module.__name__
        for entry in self.index.modules.get(name, ()):
            self._guard(self._entry, entry, module)
        for glob, inside in self.index.globs_of(name):
            self._guard(self._glob_module, glob, module, inside)

    def created(self, cls: type) -> None:
        """A class statement just finished, no decorator has seen the class yet."""
        module, qualname = cls.__module__, cls.__qualname__
        if module == "__main__" and self.main is not None:
            module = self.main
        for entry, attribute in self.index.classes.get((module, qualname), ()):
            if attribute in cls.__dict__:
                self._guard(self._attribute, entry, cls, attribute, module)
        if self.index.globs:
            for glob, inside in self.index.globs_of(module):
                if "<locals>" not in qualname and (inside is None or inside == qualname):
                    self._guard(self._glob_class, glob, cls, module)
        if self.roots or self.watched:
            for base in cls.__mro__[1:]:
                for target, attribute in self.roots.get(base, ()):
                    if attribute in cls.__dict__:
                        self._guard(self._override, target, cls, attribute)
                for target, attribute in self.watched.get(base, ()):
                    if attribute in cls.__dict__:
                        place = f"{cls.__module__}:{qualname}.{attribute}"
                        self.report(
                            target.key, place, "shadowed", "this override is not traced: add `subclasses: true`"
                        )

    # -- one name ---------------------------------------------------------------------------------------------------

    def _entry(self, entry: Entry, module: ModuleType) -> None:
        owner: Any = module
        *path, attribute = entry.qualname.split(".")
        for word in path:
            found = _member(owner, word)
            if isinstance(found, ModuleType) and found.__name__ == f"{module.__name__}.{word}":
                return  # the name means that submodule; it has an occasion of its own
            if found is None:
                return
            owner = _actor_class(found)
        if _member(owner, attribute) is None:
            return
        self._attribute(entry, owner, attribute, module.__name__)

    def _attribute(self, entry: Entry, owner: Any, attribute: str, module: str) -> None:
        target = entry.target
        if self._too_late(entry) or not self._released(target):
            return
        place = f"{module}:{_qualname(owner, attribute)}"
        if not self._install(target, owner, attribute, place):
            return
        if isinstance(owner, type):
            table = self.roots if target.subclasses else self.watched
            known = table.setdefault(owner, [])
            if (target, attribute) not in known:
                known.append((target, attribute))
            for cls in _descendants(owner):
                if attribute in cls.__dict__:
                    if target.subclasses:
                        self._override(target, cls, attribute)
                    else:
                        where = f"{cls.__module__}:{cls.__qualname__}.{attribute}"
                        self.report(
                            target.key, where, "shadowed", "this override is not traced: add `subclasses: true`"
                        )

    def _override(self, target: Target, cls: type, attribute: str) -> None:
        self._install(target, cls, attribute, f"{cls.__module__}:{cls.__qualname__}.{attribute}")

    def _install(self, target: Target, owner: Any, attribute: str, place: str) -> bool:
        """Wrap ``owner.attribute``. False: refused or failed (reported)."""
        import wrapt

        replaced: list[bool] = []

        def factory(raw: Any) -> Any:
            if isinstance(owner, ModuleType) and not isinstance(raw, type) and _callable_instance(raw):
                raise _OnClass(type(raw))
            made = rewrap(_remote_function(raw), target.key, owner, attribute)
            replaced.append(made is not raw)
            return made

        try:
            wrapt.wrap_object(owner, attribute, factory)  # type: ignore[arg-type]
        except _OnClass as other:
            return self._install(
                target, other.cls, "__call__", f"{other.cls.__module__}:{other.cls.__qualname__}.__call__"
            )
        except Refused as refusal:
            self.report(target.key, place, "refused", str(refusal))
            return False
        except Exception as error:
            self.report(target.key, place, "failed", f"{type(error).__name__}: {error}"[:300])
            return False
        if any(replaced):
            self.bound.setdefault(target.key, place)
            self.report(target.key, place, "bound", "")
        return True

    def _too_late(self, entry: Entry) -> bool:
        """A better alternative of the same target is bound already."""
        first = self._ranks.get(entry.target.key)
        if first is not None and first < entry.rank:
            return True
        self._ranks[entry.target.key] = entry.rank
        return False

    # -- globs ------------------------------------------------------------------------------------------------------

    def _glob_module(self, glob: Glob, module: ModuleType, inside: str | None) -> None:
        if not self._released(glob.target):
            return
        if inside is not None:
            owner: Any = module
            for word in inside.split("."):
                owner = _actor_class(_member(owner, word))
            if isinstance(owner, type):
                self._glob_class(glob, owner, module.__name__)
            return
        for name, value in list(vars(module).items()):
            if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
                continue
            if isinstance(value, type):
                if value.__qualname__ == name:
                    self._glob_class(glob, value, module.__name__)
            elif type(value) is FunctionType and glob.takes(f"{module.__name__}.{name}"):
                self._install(glob.target, module, name, f"{module.__name__}:{name}")

    def _glob_class(self, glob: Glob, cls: type, module: str) -> None:
        if not self._released(glob.target) or any(word.startswith("_") for word in cls.__qualname__.split(".")):
            return
        for name, raw in list(cls.__dict__.items()):
            if not name.startswith("_") and plain(raw) and glob.takes(f"{module}.{cls.__qualname__}.{name}"):
                self._install(glob.target, cls, name, f"{module}:{cls.__qualname__}.{name}")

    # -- versions ---------------------------------------------------------------------------------------------------

    def _released(self, target: Target) -> bool:
        """Whether the installed release is one the target is meant for; reported once as ``refused`` if not."""
        if target.versions is None:
            return True
        if target.versions not in self._gates:
            self._gates[target.versions] = _outside(target.versions)
        reason = self._gates[target.versions]
        if reason is not None:
            self.report(target.key, target.names[0], "refused", reason)
        return reason is None

    def _guard(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except Exception as error:
            faults.failed("bind", error)


class _OnClass(Exception):
    """A callable instance: its class's ``__call__`` is what is wrapped."""

    def __init__(self, cls: type) -> None:
        super().__init__(cls.__name__)
        self.cls = cls


def _callable_instance(raw: Any) -> bool:
    if isinstance(raw, (FunctionType, staticmethod, classmethod, property, ModuleType)) or not callable(raw):
        return False
    call = type(raw).__dict__.get("__call__")
    return type(call) is FunctionType and type(raw).__module__ not in ("functools", "ray.remote_function", "ray.actor")


def _member(owner: Any, name: str) -> Any:
    """``owner.name`` without triggering descriptors or a module's lazy attributes; None when there is none."""
    if isinstance(owner, ModuleType):
        return vars(owner).get(name)
    for cls in getattr(owner, "__mro__", ()):
        if name in cls.__dict__:
            return cls.__dict__[name]
    return None


def _actor_class(found: Any) -> Any:
    """The class Ray copied the methods into, for what ``@ray.remote`` left on the module: attributes set on the
    ``ActorClass`` itself do nothing at all."""
    metadata = getattr(found, "__ray_metadata__", None) if type(found).__module__ == "ray.actor" else None
    if metadata is None and type(found).__name__.startswith("ActorClass("):
        metadata = getattr(found, "__ray_metadata__", None)
    return getattr(metadata, "modified_class", found)


def _remote_function(raw: Any) -> Any:
    if type(raw).__module__ == "ray.remote_function":
        raise Refused("@ray.remote function: Ray exported it when it was decorated; name a function it calls")
    return raw


def _qualname(owner: Any, attribute: str) -> str:
    return f"{owner.__qualname__}.{attribute}" if isinstance(owner, type) else attribute


def _descendants(cls: type) -> Iterator[type]:
    seen: set[type] = set()
    waiting: list[type] = list(type.__subclasses__(cls))
    while waiting:
        child = waiting.pop()
        if child not in seen:
            seen.add(child)
            yield child
            waiting.extend(type.__subclasses__(child))


def _outside(requirement: str) -> str | None:
    """Why the installed release does not satisfy ``requirement``; None when it does, or when nobody can tell."""
    from importlib import metadata

    from packaging.requirements import Requirement
    from packaging.version import InvalidVersion, Version

    wanted = Requirement(requirement)
    try:
        installed = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        module = sys.modules.get(wanted.name.replace("-", "_"))
        installed = str(getattr(module, "__version__", ""))
    try:
        if not installed or wanted.specifier.contains(Version(installed), prereleases=True):
            return None
    except InvalidVersion:
        return None
    return f"for {requirement}, installed is {installed}"
