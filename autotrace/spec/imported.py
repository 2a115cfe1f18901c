"""The same description from the live object: import the module and inspect it (``autotrace check --import``)."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
from typing import Any

from autotrace.adapters.ray.actors import class_behind
from autotrace.patch import wrapper
from autotrace.spec import names
from autotrace.spec.describe import Description
from autotrace.spec.syntax import as_written
from autotrace.spec.verdict import MISSING, REFUSED, RESOLVES, UNCLEAR, Verdict


def confirm(verdict: Verdict) -> Verdict:
    """``verdict`` after a real import: confirmed, corrected, or with a note why the module does not import here."""
    if verdict.state not in (RESOLVES, UNCLEAR, REFUSED) or names.is_glob(verdict.name):
        return verdict
    try:
        real = look(verdict.name)
    except Exception as error:  # whatever the library's own import raises
        why = f"importing it here fails ({type(error).__name__}: {_first_line(error)}); judged from the source"
        return dataclasses.replace(verdict, notes=(*verdict.notes, why))
    if real is None:
        return dataclasses.replace(verdict, state=MISSING, reason="in the source, but not there when it is imported")
    if verdict.state == UNCLEAR:
        return dataclasses.replace(verdict, state=RESOLVES, reason="", description=real)
    if verdict.description is not None and verdict.state == RESOLVES:
        seen = difference(verdict.description, real)
        return dataclasses.replace(verdict, notes=(*verdict.notes, *([seen] if seen else [])))
    return verdict


def difference(read: Description, real: Description) -> str:
    """What importing shows that the source does not; "" when they agree."""
    if read.kind != real.kind:
        return f"the source says {read.kind}, importing says {real.kind}"
    if read.binding != real.binding:
        return f"the source says {read.binding or 'plain'} method, importing says {real.binding or 'plain'}"
    if read.arguments != real.arguments and read.kind != "property":
        return f"the source says ({', '.join(read.arguments)}), importing says ({', '.join(real.arguments)})"
    return ""


def look(name: str) -> Description | None:
    """The function ``name`` stands for, by importing; None: nothing. Raises what the import raises."""
    owner, words = _module(name)
    for word in words[:-1]:
        try:
            member = getattr(owner, word)
            owner = class_behind(member) or member
        except AttributeError:
            return None
    try:
        raw = inspect.getattr_static(owner, words[-1]) if words else owner
    except AttributeError:
        return None
    return _described(raw)


def _module(name: str) -> tuple[Any, list[str]]:
    front, colon, rest = name.partition(":")
    if colon:
        return importlib.import_module(front), rest.split(".")
    words = name.split(".")
    for cut in range(len(words) - 1, 0, -1):
        module = ".".join(words[:cut])
        try:
            return importlib.import_module(module), words[cut:]
        except ModuleNotFoundError as error:
            # a parent is a class, or no package: try the next shorter name; a missing dependency is another matter
            if cut == 1 or error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
    raise ModuleNotFoundError(name)


def _described(raw: Any) -> Description:
    binding = "static" if isinstance(raw, staticmethod) else "class" if isinstance(raw, classmethod) else ""
    is_property = isinstance(raw, (property, functools.cached_property))
    inner: Any = raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw
    if isinstance(inner, property):
        inner = inner.fget
    elif isinstance(inner, functools.cached_property):
        inner = inner.func
    function = inspect.unwrap(inner)
    while isinstance(function, functools.partial):
        function = function.func
    kind = "property" if is_property else _kind(function)
    if wrapper.is_manager(inner):
        kind = kind.replace("generator", "context manager")
    return Description(
        module=str(getattr(function, "__module__", "")),
        qualname=str(getattr(function, "__qualname__", "")),
        location="",
        kind=kind,
        binding=binding,
        arguments=_arguments(function),
        abstract=bool(getattr(function, "__isabstractmethod__", False)),
    )


def _kind(function: Any) -> str:
    if inspect.isasyncgenfunction(function):
        return "async generator"
    if inspect.isgeneratorfunction(function):
        return "generator"
    if inspect.iscoroutinefunction(function):
        return "async function"
    return "function" if inspect.isfunction(function) else "C function" if inspect.isbuiltin(function) else "other"


def _arguments(function: Any) -> tuple[str, ...]:
    code = getattr(function, "__code__", None)
    if code is None:
        return ()
    names, rest, others = inspect.getargs(code)
    return as_written(names[: code.co_argcount], rest, names[code.co_argcount :], others)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200]
