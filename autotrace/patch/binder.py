"""Bind the plan's names to wrappers, and report the fate of every target.

A recorded function gets another code (see ``attach`` and ``wrapper``).
"""

from __future__ import annotations

import difflib
import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from autotrace.config.plan import BY_NAME, Target
from autotrace.patch import adapting, program
from autotrace.patch.attach import Unpatchable, attach, instance_with_call, member, recorded_for
from autotrace.patch.plan_index import PlanIndex, Spelling, excluded, outside
from autotrace.record import faults
from autotrace.record.object_fields import members_of, module_of, mro_of, name_of
from autotrace.record.origin import is_hosts

_SHADOWED = "this override is not traced: add `subclasses: true`"
_OWNERS = (type, ModuleType)


class Binder:
    """Bind the targets of this process, and remember where."""

    def __init__(self, index: PlanIndex, report: Callable[[str, str, str, str], None]) -> None:
        """Set up the binder. ``report``: called with key, name, state (see ``spool.records.Report``) and reason."""
        self.index = index
        self.report = report
        self._followed: dict[int, tuple[type, dict[tuple[str, str], Target]]] = {}
        """Map ``id()`` of a class whose subclasses are checked for overrides -> the class and, by attribute and key,
        the targets that may be overridden. By ``id()``: the metaclass hashes a class. The class is kept, so no other
        class gets the ``id()``."""
        self._outside = functools.cache(outside)
        self._ranks: dict[str, int] = {}
        self._tried: set[str] = set()
        """List keys of targets that were found somewhere."""

    # -- occasions --------------------------------------------------------------------------------------------------

    def module(self, module: ModuleType, called: str | None = None, only: str | None = None) -> None:
        """Bind the plan's names in ``module``, which was executed. ``called``: the program's name in specs, if the
        module is the program. ``only``: the function that the module just created."""
        name = called or module.__name__
        for spelling in self._named(module, name):
            if only is None or only == spelling.qualname:
                self._guard(self._spelling, spelling, module, name)

    def _named(self, module: ModuleType, name: str) -> Iterator[Spelling]:
        """Yield the plan's names in ``module``, with globs expanded."""
        yield from self.index.modules.get(name, ())
        for glob, inside in self.index.globs_of(name):
            owner: Any = module
            for word in inside.split(".") if inside is not None else ():
                owner = adapting.class_behind(member(owner, word)) if issubclass(type(owner), _OWNERS) else None
            if inside is None or isinstance(owner, type):  # a module has its own call of ``module``
                yield from glob.spelled(owner)

    def created(self, cls: type, file: str | None = None) -> None:
        """Bind a class whose class statement in ``file`` just finished; no decorator has seen the class yet."""
        module, qualname = module_of(cls), name_of(cls)
        names = program.names_of(module, file) if module in program.MAINS else (module,)
        for name in names:
            for spelling in self.index.classes.get((name, qualname), ()):
                if member(cls, spelling.attribute) is not None:
                    self._guard(self._attribute, spelling, cls, name)
        for base in mro_of(cls)[1:] if self._followed else ():
            if id(base) in self._followed:
                for (attribute, _), target in list(self._followed[id(base)][1].items()):
                    self._guard(self._override, target, cls, attribute)
        if self.index.globs and "<locals>" not in qualname:  # last: an override belongs to the target of its base
            for name in names:
                for glob, inside in self.index.globs_of(name):
                    for spelling in glob.spelled(cls) if inside in (None, qualname) else ():
                        self._guard(self._attribute, spelling, cls, name)

    def over(self, module: ModuleType, name: str, unseen: str) -> None:
        """Report at the end of the process the names of ``module``, called ``name`` in specs, that were created unseen
        (``unseen`` is the reason), and the methods that were never created."""
        for spelling in self.index.modules.get(name, ()):
            made = "." in spelling.qualname or member(module, spelling.qualname) is not None
            if made and spelling.target.key not in self._tried:
                self._guard(self._over, spelling, module, name, unseen)

    def _over(self, spelling: Spelling, module: ModuleType, name: str, unseen: str) -> None:
        if self._owner(spelling, module, name) is not None:
            self._say(spelling, name, "failed", unseen.format(spelling.qualname))

    # -- one name ---------------------------------------------------------------------------------------------------

    def _spelling(self, spelling: Spelling, module: ModuleType, name: str) -> None:
        owner = self._owner(spelling, module, name)
        if owner is not None:
            self._attribute(spelling, owner, name)

    def _owner(self, spelling: Spelling, module: ModuleType, name: str) -> Any:
        """Return the class, or the module itself, that has the named attribute; None, after a report, if nothing has
        the attribute."""
        owner: Any = module
        *path, attribute = spelling.qualname.split(".")
        for word in path:
            value = member(owner, word)
            if owner is module and not isinstance(value, type) and f"{module.__name__}.{word}" in sys.modules:
                return None  # the name means that submodule, which has its own call of ``module``
            if value is None:
                self._missing(spelling, module, owner, word, name)
                return None
            owner = adapting.class_behind(value)
            if not issubclass(type(owner), _OWNERS):
                kind = f"{type(owner).__module__}.{type(owner).__qualname__}"
                reason = f"`{word}` is an instance: name its class, {kind}.{attribute}"
                self._say(spelling, name, "refused", reason)
                return None
        if member(owner, attribute) is None:
            self._missing(spelling, module, owner, attribute, name)
            return None
        return owner

    def _missing(self, spelling: Spelling, module: ModuleType, owner: Any, word: str, name: str) -> None:
        """Report a missing name, unless the name can be read in another way, or is another release's spelling of the
        target."""
        if len(spelling.target.names) > 1 or spelling.target.optional or not self._released(spelling.target):
            return
        if owner is module and hasattr(module, "__path__") and ":" not in spelling.name:
            return  # may be a submodule
        nearest = difflib.get_close_matches(word, list(vars(owner)), 1)
        hint = f"; did you mean `{nearest[0]}`?" if nearest else ""
        where = module.__name__ if owner is module else f"{module.__name__}.{name_of(owner)}"
        self._say(spelling, name, "pending", f"{where} has no `{word}` yet{hint}")

    def _say(self, spelling: Spelling, name: str, state: str, reason: str) -> None:
        self.report(spelling.target.key, f"{name}:{spelling.qualname}", state, reason)

    def _attribute(self, spelling: Spelling, owner: Any, module: str) -> None:
        target, attribute = spelling.target, spelling.attribute
        qualname = f"{name_of(owner)}.{attribute}" if isinstance(owner, type) else attribute
        if spelling.glob:  # a glob leaves alone a function that another target records
            recorded = recorded_for(owner, attribute) is not None
            taken = recorded or excluded(target, f"{module}.{qualname}")
        else:  # a better alternative of the same target is bound already
            taken = self._ranks.get(target.key, spelling.rank) < spelling.rank
        if taken or not self._released(target):
            return
        if not self._install(target, owner, attribute, f"{module}:{qualname}", spelling.depth, not spelling.glob):
            return
        if not spelling.glob:
            self._ranks[target.key] = spelling.rank
        if isinstance(owner, type) and (target.subclasses or not spelling.glob):
            followed = self._followed.setdefault(id(owner), (owner, {}))[1]
            followed[attribute, target.key] = target
            for cls in _descendants(owner, {}).values():
                self._override(target, cls, attribute)

    def _override(self, target: Target, cls: type, attribute: str) -> None:
        """Wrap the override of ``cls``, which inherits from a class whose ``attribute`` is recorded, if the target
        includes subclasses. Otherwise calls never reach the target: report that unless a spec names the override
        itself."""
        if attribute not in members_of(cls):
            return
        module, name = module_of(cls), f"{name_of(cls)}.{attribute}"
        if not target.subclasses:
            if all(named.attribute != attribute for named in self.index.classes.get((module, name_of(cls)), ())):
                self.report(target.key, f"{module}:{name}", "shadowed", _SHADOWED)
        elif not excluded(target, f"{module}.{name}"):
            self._install(target, cls, attribute, f"{module}:{name}")

    def _install(
        self, target: Target, owner: Any, attribute: str, location: str, depth: int = 0, is_named: bool = False
    ) -> bool:
        """Wrap ``owner.attribute``, or the function below ``depth`` decorators. ``is_named``: the entry names the
        attribute itself. Returns False if refused or failed (reported)."""
        location += ".__wrapped__" * depth
        self._tried.add(target.key)
        try:
            call = None if depth or target.how == BY_NAME else instance_with_call(owner, attribute)
            if call is not None:
                return self._install(target, call, "__call__", f"{call.__module__}:{call.__qualname__}.__call__")
            held = attach(owner, attribute, target.key, depth, target.how if is_named else "")
            if held is not None:
                self.report(target.key, location, "bound", held)
            elif (other := recorded_for(owner, attribute)) not in (None, target.key) and target.key not in self._ranks:
                self.report(target.key, location, "refused", f"its calls are recorded for the target `{other}` already")
        except Unpatchable as refusal:
            self.report(target.key, location, "refused", str(refusal))
            return False
        except Exception as error:
            if is_hosts(error):
                raise
            self.report(target.key, location, "failed", f"{type(error).__name__}: {error}"[:300])
            return False
        return True

    # -- versions ---------------------------------------------------------------------------------------------------

    def _released(self, target: Target) -> bool:
        """Return whether the target is meant for the installed release; otherwise report ``refused`` once."""
        reason = None if target.versions is None else self._outside(target.versions)
        if reason is not None:
            self.report(target.key, target.names[0], "refused", reason)
        return reason is None

    def _guard(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except Exception as error:
            faults.failed("bind", error)


def _descendants(cls: type, found: dict[int, type]) -> dict[int, type]:
    children: list[type] = type.__subclasses__(cls)
    for child in children:
        if id(child) not in found:
            found[id(child)] = child
            _descendants(child, found)
    return found
