"""Find the function to record behind a member of a class or module: holders are opened. A target that cannot be
recorded is refused with a reason.

A function that looks at its callers is such a target: the function would find the wrapper's frame there. ``warnings``
and ``logging`` skip the frame (``record.frames``). Any other reader of the stack counts the frame.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from autotrace.config.plan import BY_NAME
from autotrace.patch import adapting, wrapper
from autotrace.patch.reach import LATER, LOOKED_PAST, reach
from autotrace.patch.wrapper import original_of
from autotrace.record import calls, faults, used_libraries
from autotrace.record.object_fields import attribute_of, members_of, module_of, mro_of, name_of
from autotrace.record.origin import is_hosts

_DECORATORS = 3
"""Search a function in decorators up to this depth."""


def looks_at_caller(function: FunctionType, owner: Any = None) -> bool:
    """Return whether ``function`` looks at its caller, itself or through a function that ``function`` calls for that: a
    function of its module or of a module of its package, of its closure, or a method of ``owner``, if that is its
    class.

    veRL's ``@auto_await`` looks at its caller, to decide whether to return a coroutine; with a wrapper in between
    ``await`` raises. structlog's ``tmp_bind``, a context manager, calls a helper that looks at the module two frames
    up.
    """
    functions = [original_of(function)]
    for level in range(1, _DECORATORS + 1):
        if any(_looks(one, owner, level) for one in functions):
            return True
        functions = [inner for one in functions for inner in _enclosed(one)]
    return False


def _looks(function: FunctionType, owner: Any, level: int) -> bool:
    """Return whether ``function`` looks ``level`` frames up, or a called function looks a frame further. A coroutine or
    generator that a plain function returns runs below a frame of autotrace, and must not look at its caller."""
    plain = not function.__code__.co_flags & LATER
    return _reach_of(function) >= level or any(
        _reach_of(other) > level or (plain and other.__code__.co_flags & LATER and _looks(other, owner, 1))
        for other in map(original_of, called(function, set(function.__code__.co_names), owner))
    )


def _reach_of(function: FunctionType) -> int:
    if f"{function.__module__}.{function.__qualname__}" in LOOKED_PAST:
        return 0
    return reach(function.__code__, function.__globals__.get("stack") is inspect.stack)


def called(function: FunctionType, names: set[str], owner: Any, *inside: Any) -> Iterator[FunctionType]:
    """Yield functions that ``function`` may call by ``names``, and functions among the values ``inside``."""
    globals_ = function.__globals__
    found = [*inside, *(globals_[name] for name in names & globals_.keys())]
    for module in [value for value in found if issubclass(type(value), ModuleType)]:
        members = object.__getattribute__(module, "__dict__")
        if package(members) == package(globals_):
            found += [members[name] for name in names & members.keys()]
    for above in mro_of(owner) if issubclass(type(owner), type) else ():
        found += [members_of(above)[name] for name in names & members_of(above).keys()]
        names = names - members_of(above).keys()
    for value in found:
        value = value.__func__ if type(value) in (staticmethod, classmethod, MethodType) else value
        if type(value) is FunctionType:
            yield value


def package(namespace: dict[str, Any]) -> str:
    """Return the first word of a module's name."""
    return str(namespace.get("__name__")).partition(".")[0]


def _enclosed(function: FunctionType) -> Iterator[FunctionType]:
    """Yield functions in the closure of ``function``: a decorator keeps the decorated function there."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # the cell is empty
            if type(cell.cell_contents) is FunctionType:
                yield original_of(cell.cell_contents)


IN_PLACE, OVERRIDDEN, REPLACED = "in place", "overridden", "replaced"
"""Name how a target is held: every holder of the function calls the wrapper; a subclass got a function of its own; only
users of this name call the wrapper."""
BY_WRAPT = f"{REPLACED} (wrapt)"

_ROUTINES = (functools.cached_property, functools.partial, functools.partialmethod)
_LAYERS = 16
"""Search below at most so many decorators of a function."""
_LOOKED_AT = 500
"""Search at most so many objects inside a holder for a definition."""


class Unpatchable(Exception):
    """Refuse to record a target; the message gives the reason and another name to write."""


def attach(owner: Any, attribute: str, key: str, depth: int = 0, how: str = "") -> str | None:
    """Record the calls of ``owner.attribute``, or of the function below ``depth`` decorators, for the target ``key``.
    Returns how the target is held, None if some target already records the calls. Raises ``Unpatchable``.

    ``how``: ``config.plan.Target.how`` of an entry that names ``attribute`` itself, otherwise empty.
    """
    raw, own = member(owner, attribute), attribute in vars(owner)
    reason = adapting.refusal(raw, owner, attribute) or used_libraries.refusal(adapting.module_of(None, owner))
    if reason is not None:
        raise Unpatchable(reason)
    if _replaced_for(raw) is not None:
        return None
    function = function_in(raw, owner, attribute, depth)
    if how == BY_NAME or (how and function is None):
        if (why := _not_replaceable(raw, attribute, depth)) is not None:
            raise Unpatchable(why)
        return _replace(raw, function, owner, attribute, key)
    if function is None:
        raise Unpatchable(_not_replaceable(raw, attribute, depth) or "it has no Python code: name it without a pattern")
    layers = [*_layers(function)]
    # Ray decorates every method of an actor's class, which was created before
    if wrapper.key_of(function) is not None or any(wrapper.key_of(layer) == key for layer in layers):
        return None
    where = ", below its decorator" if depth else ""
    if looks_at_caller(function, owner):
        # a decorator's frame stays in its place, above the wrapper's
        function = next((layer for layer in layers[1:] if not looks_at_caller(layer, owner)), None)
        if function is None:
            raise Unpatchable(
                "it looks at its caller's frame and would find the wrapper's: name a function that it calls"
            )
        if wrapper.key_of(function) is not None:
            return None
        where = ", below a decorator that looks at its caller's frame"
    # a function that the user's module took from such a library is replaced there, which leaves the library unchanged
    if own and used_libraries.refusal(function.__module__ or "") is None:
        wrapper.place(function, key)
        if issubclass(type(raw), functools.singledispatchmethod):
            _Implementations.of(raw.dispatcher, owner, attribute, key)
        if type(raw).__name__ == "_lru_cache_wrapper":
            where = ", below functools.lru_cache: calls that it computes"
        return IN_PLACE + where
    if where:
        raise Unpatchable("below a decorator, a function is recorded in place alone: name it on the class that has it")
    adapting.put(owner, attribute, _with(raw, wrapper.wrap(function, key)))
    return REPLACED if own else OVERRIDDEN


class _Implementations(WeakKeyDictionary[type, Any]):
    """Keep the recorded implementations of a ``singledispatchmethod``, as its cache. The cache has copies that are
    recorded under the name of the method: an implementation that is called by another way is not recorded, and may
    belong to any library."""

    @classmethod
    def of(cls, dispatcher: Any, owner: type, attribute: str, key: str) -> None:
        """Give this class to the cache of ``dispatcher``, which ``functools`` made."""
        cache = dispatcher._clear_cache.__self__
        cache.autotrace = dispatcher.registry, owner, attribute, key
        cache.__class__ = cls
        cache.clear()

    def __getitem__(self, kind: type) -> Any:
        with contextlib.suppress(KeyError):
            return super().__getitem__(kind)
        registry, owner, attribute, key = self.__dict__["autotrace"]
        try:
            raw = registry.get(kind) or functools._find_impl(kind, registry)  # type: ignore[attr-defined]
            function = function_in(raw, owner, attribute) if key in calls.probes else None
            if function is not None and wrapper.key_of(function) is None and not looks_at_caller(function, owner):
                made = wrapper.wrap(function, key)
                original_of(made).__qualname__ = f"{name_of(owner)}.{attribute}"
                self[kind] = recorded = _with(raw, made)
                return recorded
        except (Unpatchable, RuntimeError):  # two implementations fit equally well, as ``functools`` says next
            pass
        except Exception as error:
            if is_hosts(error):
                raise
            faults.failed("dispatch", error)
        raise KeyError(kind)  # ``functools`` looks for the implementation and keeps the implementation here


def member(owner: Any, name: str) -> Any:
    """Read ``owner.name`` without triggering descriptors or a module's lazy attributes; None: no such attribute."""
    if issubclass(type(owner), ModuleType):  # ``isinstance`` asks an object that is no module for its ``__class__``
        return vars(owner).get(name)
    return attribute_of(owner, name)


def _layers(function: Any) -> Iterator[FunctionType]:
    """Yield ``function``, and the functions below as far as decorators name them (``functools.wraps``)."""
    for _ in range(_LAYERS):
        if type(function) is not FunctionType:
            return
        yield function
        function = function.__dict__.get("__wrapped__")


def function_in(raw: Any, owner: Any, attribute: str, depth: int = 0) -> FunctionType | None:
    """Return the function that runs when ``raw`` (of ``owner.attribute``) is called: ``raw`` itself, or the function
    inside a descriptor, a partial, a cache or the object of some library; then the function below ``depth`` decorators.
    A cache counts as a decorator. None: no such function."""
    while True:
        kind = type(raw)
        if kind is FunctionType:
            if depth == 0:
                return raw  # type: ignore[no-any-return]
            raw, depth = raw.__dict__.get("__wrapped__"), depth - 1
        elif isinstance(raw, (staticmethod, classmethod)) or kind is MethodType:
            raw = raw.__func__
        elif isinstance(raw, property):
            raw = raw.fget
        elif kind in _ROUTINES:
            raw = raw.func
        elif kind.__name__ == "_lru_cache_wrapper":
            raw, depth = raw.__wrapped__, max(depth - 1, 0)
        elif raw is None or issubclass(kind, (type, ModuleType)):
            return None
        else:
            raw = _definition_in(raw, owner, attribute)


def _definition_in(holder: Any, owner: Any, attribute: str) -> FunctionType | None:
    """Find the function whose ``def`` is at the place of ``holder``: a decorator turned the function into an object (a
    command, a tool, a remote function), and the function is somewhere inside. Calls nothing of the holder: the garbage
    collector knows the references of an object."""
    of_class = isinstance(owner, type)
    module = getattr(owner, "__module__" if of_class else "__name__", None)
    qualname = f"{name_of(owner)}.{attribute}" if of_class else attribute
    seen, waiting = {id(holder)}, [holder]
    if "<locals>" in name_of(type(holder)):  # a class that the decorator made for this function
        waiting.append(type(holder))
    for value in waiting:
        if type(value) is FunctionType and value.__qualname__ == qualname and value.__module__ == module:
            return next(layer for layer in [*_layers(value)][::-1] if layer.__qualname__ == qualname)
        if adapting.refusal(value, owner, attribute) is not None:
            continue
        inside = [value.__closure__, value.__dict__] if type(value) is FunctionType else gc.get_referents(value)
        for one in inside:
            if len(seen) < _LOOKED_AT and id(one) not in seen and _may_hold(one):
                seen.add(id(one))
                waiting.append(one)
    return None


def _may_hold(value: Any) -> bool:
    kind = type(value)
    return not issubclass(kind, (type, ModuleType, str)) and not (kind is dict and "__builtins__" in value)


def recorded_for(owner: Any, attribute: str) -> str | None:
    """Return the key of the target that already records ``owner.attribute``."""
    raw = member(owner, attribute)
    return _replaced_for(raw) or wrapper.key_of(function_in(raw, owner, attribute))


def instance_with_call(owner: Any, attribute: str) -> type | None:
    """Return the class of a callable instance in a module without a ``def`` behind the instance: the class's
    ``__call__`` can be recorded."""
    raw = vars(owner).get(attribute) if isinstance(owner, ModuleType) else None
    call = members_of(type(raw)).get("__call__")
    alone = type(call) is FunctionType and function_in(raw, owner, attribute) is None
    return type(raw) if alone and adapting.refusal(raw, owner, attribute) is None else None


def _with(raw: Any, made: FunctionType) -> Any:
    """Build a holder like ``raw`` for the function ``made``."""
    if isinstance(raw, (staticmethod, classmethod)):
        return type(raw)(made)
    if isinstance(raw, property):
        return raw.getter(made)
    if type(raw) is FunctionType:
        return made
    raise Unpatchable(f"it is a {type(raw).__name__} that stands elsewhere: name it there")


def _replace(raw: Any, function: FunctionType | None, owner: Any, attribute: str, key: str) -> str:
    from autotrace.patch.replacement import replacement  # wrapt is imported for such a target alone

    of_class = issubclass(type(owner), type)
    module, qualname = (module_of(owner), f"{name_of(owner)}.{attribute}") if of_class else (owner.__name__, attribute)
    try:
        adapting.put(owner, attribute, replacement(raw, function, module, qualname, key))
    except (TypeError, AttributeError) as error:
        raise Unpatchable(f"no attribute of `{name_of(owner) if of_class else module}` can be set ({error})") from error
    return BY_WRAPT


def _replaced_for(raw: Any) -> str | None:
    """Return the key of the target for which ``raw`` stands at its name (``patch.replacement``)."""
    return raw._self_key if module_of(type(raw)) == "autotrace.patch.replacement" else None


def _not_replaceable(raw: Any, attribute: str, depth: int) -> str | None:
    """Return why a name cannot hold a wrapper of ``raw``."""
    if depth:
        what = f"`{attribute}{'.__wrapped__' * (depth - 1)}`"
        return f"{what} has no `__wrapped__`: it has no decorator, or one that does not use functools.wraps"
    if isinstance(raw, property):
        return "it is a property without a getter in Python"
    if inspect.isclass(raw):
        return f"it is a class: name its methods, e.g. {attribute}.run or {attribute}.*"
    if inspect.ismodule(raw):
        return f"it is a module: name what is in it, or {attribute}.**"
    if callable(raw) or hasattr(type(raw), "__get__"):
        return None
    return f"it is not callable ({type(raw).__name__})"
