"""Describe a function by importing the module of the function: the truth that reading its source is compared with."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
from typing import Any

from autotrace.adapters.ray.actors import class_behind
from autotrace.patch import wrapper
from autotrace.spec import names
from autotrace.spec.compiler import compile_plan
from autotrace.spec.describe import Description
from autotrace.spec.resolve import Resolver
from autotrace.spec.sources import Installed
from autotrace.spec.syntax import as_written
from autotrace.spec.verdict import RESOLVES, judge


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
    if inspect.isfunction(inner) and wrapper._managed(inner) is not None:
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


def main() -> None:
    """Print, as JSON, which targets of the shipped specs agree with what importing them shows, which do not, and which
    cannot be imported here."""
    said: dict[str, list[str]] = {"agree": [], "differ": [], "not imported": []}
    for judged in judge(compile_plan([]), Resolver(Installed()), expected=frozenset()):
        read = judged.description
        if judged.state != RESOLVES or read is None or names.is_glob(judged.name):
            continue
        try:
            real = look(judged.name)
        except Exception:  # an engine, a GPU
            said["not imported"].append(judged.name)
            continue
        seen = "it is not there" if real is None else difference(read, real)
        said["differ" if seen else "agree"].append(f"{judged.name} {seen}".strip())
    print("\n" + json.dumps(said))
