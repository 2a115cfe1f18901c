"""Names are resolved from source text as Python would by importing: checked against importing other people's code."""

from __future__ import annotations

import enum
import importlib
import inspect
import sys
import textwrap
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from autotrace.spec.compiler import compile_plan
from autotrace.spec.describe import Description, describe
from autotrace.spec.resolve import Resolver
from autotrace.spec.sources import Installed
from autotrace.spec.symbols import Function, Lazy, Module, Native, Other
from autotrace.spec.verdict import RESOLVES, Verdict, expand, judge
from tests.spec.imported import difference, look
from tests.waiting import DEADLINE

LIBRARIES = (
    "json.decoder", "json.encoder", "logging", "logging.handlers", "asyncio.base_events", "asyncio.streams",
    "http.client", "collections", "contextlib", "unittest.case", "concurrent.futures.thread", "click.core",
    "click.types", "rich.console", "rich.progress", "yaml.loader", "yaml.constructor", "packaging.version",
    "wrapt.importer", "_pytest.fixtures", "_pytest.python", "hypothesis.core",
)  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
def test_reading_agrees_with_importing(library: str) -> None:
    module = importlib.import_module(library)
    resolver = Resolver(Installed())
    seen = 0
    for name in functions_of(module):
        real = look(name)
        thing = resolver.find(name)
        assert real is not None
        if isinstance(thing, Other) and not thing.certain:
            continue  # says that it cannot tell
        assert isinstance(thing, Function), f"{name}: {thing}"
        read = describe(thing)
        if read.qualname == real.qualname:  # not where a decorator has put its own function in between
            assert difference(read, real) == "", name
            own = sys.modules[read.module].__name__  # `_collections_abc` calls itself `collections.abc`
            assert (own, read.qualname) == (real.module, real.qualname), name
            seen += 1
    assert seen


def functions_of(module: ModuleType) -> Iterator[str]:
    """Names of the functions and methods that ``module`` defines, inherited methods included."""
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if type(value) is FunctionType and value.__qualname__ == name:
            yield f"{module.__name__}.{name}"
        elif inspect.isclass(value) and value.__qualname__ == name and not issubclass(value, (tuple, enum.Enum)):
            for method in dir(value):
                raw = inspect.getattr_static(value, method)
                raw = raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw
                raw = raw.fget if isinstance(raw, property) else raw
                if type(raw) is FunctionType and "." in raw.__qualname__ and _in_text(raw, method):
                    yield f"{module.__name__}.{name}.{method}"


def _in_text(function: FunctionType, name: str) -> bool:
    """Not what dataclasses and namedtuples generate, or a loop or another library attached."""
    code = function.__code__
    named = function.__name__ == code.co_name == name and "<locals>" not in function.__qualname__
    return named and code.co_filename.endswith(".py")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolver:
    """A package full of the ways a name can lead elsewhere."""
    files = {
        "pkg/__init__.py": """
            from .base import Base as Exported
            from .deep.more import *
            from typing import TYPE_CHECKING
            if TYPE_CHECKING:
                from .base import hidden
            def __getattr__(name): ...
            """,
        "pkg/base.py": """
            import functools
            from typing import overload
            class Root:
                def run(self, a): ...
                def shared(self): ...
            class Left(Root): ...
            class Right(Root):
                def run(self, b): ...
            class Base(Left, Right):
                class Inner:
                    async def stream(self, *items, key, **rest):
                        yield 1
                @staticmethod
                def still(x): ...
                @classmethod
                def made(cls): ...
                @functools.cached_property
                def lazy(self): ...
                @property
                def state(self): ...
                @state.setter
                def state(self, value): ...
                @overload
                def many(self, x: int): ...
                @overload
                def many(self, x: str): ...
                def many(self, x, y=None):
                    def inner():
                        yield
                alias = still
                wrapped = functools.partialmethod(many, 1)
                made_elsewhere = functools.lru_cache(None)(lambda self: 1)
            try:
                from nowhere import fast as compute
            except ImportError:
                def compute(values): ...
            if functools:
                def branched(): ...
            hidden = lambda x, *y: x
            numbers = (yield_ for yield_ in [])
            """,
        "pkg/deep/more.py": """
            from ..base import Base
            import pkg.base as other
            class Child(Base): ...
            class Dark(other.Missing): ...
            class Listed(list): ...
            class Itself(Itself): ...
            def flows():
                x = yield
            def _private(): ...
            renamed = other.Base.Inner.stream
            """,
        "pkg/circle.py": "from .circle import a\nfrom .circle2 import b\n",
        "pkg/circle2.py": "from .circle import b\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    monkeypatch.chdir(tmp_path)
    return Resolver(Installed())


WAYS = {
    "pkg.base.Base.run": ("pkg.base.Right.run", "function", "", ("self", "b")),
    "pkg.base.Base.shared": ("pkg.base.Root.shared", "function", "", ("self",)),
    "pkg.Exported.shared": ("pkg.base.Root.shared", "function", "", ("self",)),
    "pkg.Child.run": ("pkg.base.Right.run", "function", "", ("self", "b")),
    "pkg.deep.more.Child.Inner.stream": (
        "pkg.base.Base.Inner.stream", "async generator", "", ("self", "*items", "key", "**rest"),
    ),
    "pkg.base:Base.Inner.stream": (
        "pkg.base.Base.Inner.stream", "async generator", "", ("self", "*items", "key", "**rest"),
    ),
    "pkg.renamed": ("pkg.base.Base.Inner.stream", "async generator", "", ("self", "*items", "key", "**rest")),
    "pkg.base.Base.still": ("pkg.base.Base.still", "function", "static", ("x",)),
    "pkg.base.Base.alias": ("pkg.base.Base.still", "function", "static", ("x",)),
    "pkg.base.Base.made": ("pkg.base.Base.made", "function", "class", ("cls",)),
    "pkg.base.Base.lazy": ("pkg.base.Base.lazy", "property", "", ("self",)),
    "pkg.base.Base.state": ("pkg.base.Base.state", "property", "", ("self",)),
    "pkg.base.Base.many": ("pkg.base.Base.many", "function", "", ("self", "x", "y")),
    "pkg.base.Base.wrapped": ("pkg.base.Base.many", "function", "", ("self", "x", "y")),
    "pkg.base.compute": ("pkg.base.compute", "function", "", ("values",)),
    "pkg.base.branched": ("pkg.base.branched", "function", "", ()),
    "pkg.base.hidden": ("pkg.base.hidden", "function", "", ("x", "*y")),
    "pkg.flows": ("pkg.deep.more.flows", "generator", "", ()),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_every_way_a_name_can_lead(name: str, project: Resolver) -> None:
    thing = project.find(name)
    assert isinstance(thing, Function)
    found: Description = describe(thing)
    assert (found.dotted, found.kind, found.binding, found.arguments) == WAYS[name]


def test_what_only_running_tells_is_not_guessed(project: Resolver) -> None:
    dark = project.find("pkg.deep.more.Dark.method")
    assert isinstance(dark, Other)
    assert not dark.certain
    made = project.find("pkg.base.Base.made_elsewhere")
    assert isinstance(made, Other)
    assert not made.certain


def test_methods_written_in_c_are_told_from_missing_ones(project: Resolver) -> None:
    assert isinstance(project.find("pkg.deep.more.Listed.append"), Native)
    assert project.find("pkg.deep.more.Listed.push") is None


def test_names_under_type_checking_are_not_there(project: Resolver) -> None:
    hidden = project.find("pkg.hidden")
    assert isinstance(hidden, Lazy)
    assert isinstance(hidden.meaning, Function)


def test_circles_end(project: Resolver) -> None:
    assert project.find("pkg.circle.a") is None
    assert project.find("pkg.circle.b") is None
    assert project.find("pkg.deep.more.Itself.run") is None


def test_folders_without_init_are_packages(project: Resolver) -> None:
    assert isinstance(project.find("pkg.deep"), Module)
    assert "more" in project.source.children("pkg.deep")


def test_globs_mean_public_functions(project: Resolver) -> None:
    def named(name: str, *without: str) -> set[str]:
        return {describe(function).dotted for function in expand(name, without, project)}

    assert named("pkg.deep.more.*") == {"pkg.deep.more.flows"}
    assert named("pkg.base.Base.*") == {
        *(f"pkg.base.Base.{name}" for name in ("still", "made", "lazy", "state", "many", "Inner.stream")),
    }
    everything = named("pkg.**", "pkg.base.Base.*")
    assert {"pkg.base.Root.run", "pkg.base.Right.run", "pkg.base.compute", "pkg.deep.more.flows"} <= everything
    assert not any(name.startswith("pkg.base.Base.") for name in everything)


def test_a_glob_over_a_large_package_keeps_outlines_and_no_trees(tmp_path: Path) -> None:
    modules = 12
    package = tmp_path / "large"
    package.mkdir()
    body = "".join(
        f"    total = total * {number} + other[{number}].value(total, key={number})\n" for number in range(50)
    )
    functions = "".join(f"def f{number}(total, other):\n{body}\n" for number in range(5))
    for number in range(modules):
        (package / f"m{number:02}.py").write_text(functions)
    (package / "__init__.py").write_text("")
    (tmp_path / "list.yaml").write_text("- large.**\n")
    plan = compile_plan([tmp_path / "list.yaml"], shipped=False)

    def judged(most: int | None) -> tuple[Verdict, int]:
        resolver = Resolver(Installed([str(tmp_path)]))
        tracemalloc.start()
        try:
            (verdict,) = judge(plan, resolver, expected={plan.targets[0].key}, most=most)
            return verdict, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    judged(None)
    everything, peak = judged(None)
    first, peak_of_first = judged(1)
    assert (everything.state, everything.count) == (RESOLVES, 5 * modules)
    assert peak < 20 * modules * len(functions), "whole trees take a hundred times the text"
    assert (first.state, first.count) == (RESOLVES, 1), "the launcher asks whether there is any"
    assert peak_of_first < peak


def test_nothing_is_imported() -> None:
    import subprocess
    import sys

    program = (
        "import sys; from autotrace.spec.resolve import Resolver; from autotrace.spec.sources import Installed;"
        "found = Resolver(Installed()).find('xml.etree.ElementTree.XMLParser.feed');"
        "assert found is not None; assert 'xml' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE)
