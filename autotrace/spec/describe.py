"""Read a function's kind and arguments, and whether the function can be wrapped, from the source text alone."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import CodeType

from autotrace.record import used_libraries
from autotrace.spec import syntax
from autotrace.spec.names import top
from autotrace.spec.resolve import Resolver
from autotrace.spec.symbols import Class, Function, Lazy, Module, Native, Symbol

_PROPERTIES = frozenset({"property", "cached_property", "abstractproperty"})
_COMPILED = {
    "numba": frozenset(
        {"numba.jit", "numba.njit", "numba.vectorize", "numba.guvectorize", "nb.jit", "nb.njit", "njit"}
    ),
    "triton": frozenset({"triton.jit"}),
    "jax": frozenset({"jax.jit"}),
}
"""Maps each compiler to the names of its decorators, as people write the decorators."""
_LOOKS = "auto_await"
"""Names veRL's decorator that looks whether the caller awaits. Other such decorators show only at run time."""
_IMPLICIT_CLASS_METHODS = frozenset({"__init_subclass__", "__class_getitem__"})


@dataclass(frozen=True)
class Description:
    """Describes a function as its source text does."""

    module: str
    """Names the module that defines the function; the name in the spec may lead through another module."""
    qualname: str
    location: str
    """Place of the definition: ``file:line``."""
    kind: str
    """States one word for the kind: function | async function | generator | async generator | context manager | async
    context manager | property | C function"""
    binding: str
    """States the binding: "" | static | class"""
    arguments: tuple[str, ...]
    """Lists the arguments as written, with ``self``, ``*`` and ``**``."""
    abstract: bool = False
    decorator: str = ""
    """Names the decorator that looks at its caller; autotrace records the function below that decorator."""

    @property
    def dotted(self) -> str:
        """Return the full name of the definition."""
        return f"{self.module}.{self.qualname}"

    @property
    def keywords(self) -> tuple[str, ...]:
        """Return the plain argument names, without stars."""
        return tuple(name.lstrip("*") for name in self.arguments if name != "*")


def describe(symbol: Function) -> Description:
    """Read the description from the function's ``def``."""
    node = symbol.node

    def manages(decorator: ast.expr) -> bool:
        name = syntax.dotted(decorator)
        given = symbol.module.table.names.get(name, ())
        taken = [one.attribute for one in given if isinstance(one, syntax.Imported) and one.module == "contextlib"]
        return not syntax.MANAGERS.isdisjoint([name.rpartition(".")[2], *taken])

    words = [syntax.last_word(item) for item in node.decorator_list] if not isinstance(node, ast.Lambda) else []
    name = symbol.qualname.rpartition(".")[2]
    static = "staticmethod" in words or (symbol.owner is not None and name == "__new__")
    on_class = "classmethod" in words or (symbol.owner is not None and name in _IMPLICIT_CLASS_METHODS)
    own = "function" if isinstance(node, ast.Lambda) else syntax.kind(_code(symbol, node))
    if own.endswith("generator") and not isinstance(node, ast.Lambda) and any(map(manages, node.decorator_list)):
        own = own.replace("generator", "context manager")
    return Description(
        module=symbol.module.name,
        qualname=symbol.qualname,
        location=f"{symbol.module.file.path}:{node.lineno}",
        kind="property" if _PROPERTIES & set(words) else own,
        binding="static" if static else "class" if on_class else "",
        arguments=syntax.arguments(node),
        abstract=any(word.startswith("abstract") for word in words),
        decorator=next((word for word in words if word == _LOOKS), ""),
    )


def refusal(symbol: Symbol, name: str, resolver: Resolver, depth: int = 0) -> str | None:
    """Explain why ``symbol``, or the function below ``depth`` decorators of ``symbol``, cannot be wrapped.

    Return a sentence that also says which name to write instead of ``name``; None if the symbol can be wrapped.
    """
    if isinstance(symbol, Module):
        return f"it is a module: name a function in it, or `{name}.**` for all of them"
    if isinstance(symbol, Class):
        methods = [word for word in resolver.own_names(symbol) if not word.startswith("_")]
        method = "run" if "run" in methods or not methods else methods[0]
        return f"it is a class: name its methods, `{name}.{method}` for example, or `{name}.*`"
    if isinstance(symbol, Native):
        return used_libraries.refusal(top(name))
    if isinstance(symbol, Lazy) and symbol.meaning is not None:
        return f"the module makes it only on access; name it where it is defined: {_home(symbol.meaning)}"
    if not isinstance(symbol, Function):
        return None
    reason = used_libraries.refusal(top(name))
    if reason is None and not isinstance(symbol.node, ast.Lambda):
        return _decorated(symbol, symbol.node, resolver, depth)
    return reason


def _decorated(symbol: Function, node: syntax.Function, resolver: Resolver, depth: int) -> str | None:
    if depth > len(node.decorator_list):
        number = len(node.decorator_list)
        return f"`__wrapped__` is the function below a decorator, and it has {number or 'none'}"
    for decorator in node.decorator_list:
        for compiler, decorators in _COMPILED.items():
            if syntax.dotted(decorator) in decorators:
                return f"{compiler} compiles it, and compiled code has no wrapper; name a function that calls it"
    if node.name == "forward" and symbol.owner is not None and _is_torch(symbol.owner, resolver):
        return "nn.Module.forward runs inside torch.compile and CUDA graphs; name the method that calls the model"
    return None


def _is_torch(cls: Class, resolver: Resolver) -> bool:
    order, _ = resolver.order(cls)
    if any(base.module.name.startswith("torch.nn.modules") for base in order):
        return True
    return any(syntax.dotted(base).endswith("nn.Module") for above in order for base in above.node.bases)


def _home(symbol: Symbol) -> str:
    if isinstance(symbol, (Class, Function)):
        return f"`{symbol.module.name}.{symbol.qualname}`"
    return f"`{symbol.name}`" if isinstance(symbol, (Module, Native)) else "its own module"


def _code(symbol: Function, node: syntax.Function) -> CodeType:
    return syntax.code_of(node, symbol.module.file.text or "")
