"""Call back when a module was imported, and for every class right after its body ran: before ``@ray.remote`` copies the
methods, before any subclass exists, also in ``__main__``. The program notices nothing.

No entry is added to ``sys.meta_path`` (see ``config.import_system``). The module's own loader stays in place, and only
gets autotrace's ``exec_module`` as an instance attribute for one execution. So ``module.__loader__``, ``__spec__`` and
``isinstance`` checks see the same objects as without autotrace. wrapt's import hook is not used: that hook matches
exact names only, puts a proxy loader in place, and fails the import after an exception in a hook.

Classes are seen by a hook on ``builtins.__build_class__``; the hook costs 0.5 us per class statement.
"""

from __future__ import annotations

import builtins
import enum
import sys
from abc import ABCMeta
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import FrameType, FunctionType, ModuleType
from typing import Any
from zipimport import zipimporter

from autotrace.config import import_system
from autotrace.patch import adapting, program
from autotrace.record import faults
from autotrace.record.frames import transparent

_ORDINARY = frozenset(map(id, (type, ABCMeta, type(enum.Enum))))
"""List metaclasses that do not look at the frame of the class statement, by ``id()``: a set asks for the hash."""
_BUILD = compile("0 .__call__()", "<class statement>", "eval")
"""Hold an expression whose first constant is replaced by the function to call."""


def hook(created: Callable[[type, str | None], None]) -> None:
    """Call ``created(cls, file)`` for every class statement that finishes, with the file of the statement."""
    original = builtins.__build_class__

    @transparent
    def __build_class__(function: Any, name: str, /, *bases: Any, **keywords: Any) -> Any:
        ordinary = "metaclass" not in keywords
        for base in bases:
            ordinary = ordinary and id(type(base)) in _ORDINARY
        if ordinary:
            cls = original(function, name, *bases, **keywords)
        else:
            cls = _in_the_place_of(sys._getframe(1), partial(original, function, name, *bases, **keywords))
        if issubclass(type(cls), type):
            try:
                created(cls, function.__code__.co_filename if type(function) is FunctionType else None)
            except Exception as error:
                faults.failed("class", error)
        return cls

    adapting.put(builtins, "__build_class__", __build_class__)


@transparent
def _in_the_place_of(frame: FrameType, build: Callable[[], Any]) -> Any:
    """Call ``build()`` from a frame that has the globals, locals, file, line and name of ``frame``.

    A metaclass may look at its caller's frame, which is the class statement's: pydantic resolves names local to the
    function in which a model is defined, zope.interface reads ``__name__``.
    """
    code = frame.f_code
    call = _BUILD.replace(
        co_consts=(build, *_BUILD.co_consts[1:]),
        co_name=code.co_name,
        co_filename=code.co_filename,
        co_firstlineno=frame.f_lineno,
    )
    return eval(call, frame.f_globals, frame.f_locals)


Imported = Callable[[ModuleType], None]
"""Receive a module that was executed."""


class ImportHook:
    """Watch every spec from any finder, and hook the loaders of wanted modules."""

    def __init__(self, wanted: Callable[[str], bool], imported: Imported, asked: Callable[[], None]) -> None:
        """Set up the hook. ``asked`` is called before each module is executed."""
        self.wanted: Callable[[str], bool] | None = wanted
        """Return whether a module is wanted; None: closed, no loader is hooked any more."""
        self.imported = imported
        self.asked = asked
        self._original: Any = None
        self._installed: Any = None

    def install(self) -> None:
        """Replace the function that finds modules."""
        original = self._original = import_system.current()

        @transparent
        def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
            spec: ModuleSpec | None = original(name, path, target)
            self.spec_found(name, spec)
            return spec

        self._installed = find_spec
        import_system.replace(original, find_spec)

    def remove(self) -> None:
        """Restore the function that was there. If another function replaced autotrace's, stay in place and do
        nothing."""
        self.wanted = None
        import_system.replace(self._installed, self._original)

    def spec_found(self, name: str, spec: ModuleSpec | None) -> None:
        """Hook the loader of ``spec``, from which module ``name`` will be made, if the module is wanted. Never
        raises."""
        try:
            if self.wanted is not None:
                self.asked()
                if spec is not None and spec.loader is not None and self.wanted(name):
                    self._hook(name, spec)
        except Exception as error:
            faults.failed("import hook", error)

    def _hook(self, name: str, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        if isinstance(loader, type) or not hasattr(loader, "__dict__") or not hasattr(loader, "exec_module"):
            return  # builtin, frozen, or of the kind that Python 3.12 no longer knows
        execution = vars(loader).get("exec_module")
        if isinstance(getattr(execution, "pending", None), set):
            execution.pending.add(name)
            return
        if execution is None:
            _hook_execution(loader, name, self)
            if isinstance(loader, SourceFileLoader) or (isinstance(loader, zipimporter) and name == "__main__"):
                _hook_code(loader, name)


def _hook_execution(loader: Any, name: str, hook: ImportHook) -> None:
    """Give ``loader`` an ``exec_module`` that removes itself after the modules that the hook waits for.

    Most loaders load a single module; zipimport's and pytest's load many, and several modules may be on their way.
    """
    execute = loader.exec_module
    pending = {name}

    @transparent
    def exec_module(module: ModuleType) -> None:
        pending.discard(getattr(module, "__name__", ""))
        if not pending:
            vars(loader).pop("exec_module", None)
            vars(loader).pop("get_code", None)
        execute(module)
        try:
            hook.imported(module)
        except Exception as error:
            faults.failed("imported", error)

    exec_module.pending = pending  # type: ignore[attr-defined]
    loader.exec_module = exec_module


def _hook_code(loader: Any, name: str) -> None:
    """Give ``loader`` a ``get_code`` for ``runpy``, which runs a module without importing the module."""
    original = loader.get_code

    def get_code(module: str) -> Any:
        vars(loader).pop("get_code", None)
        vars(loader).pop("exec_module", None)
        called = (name, "__main__") if name in program.modules() else (name,)
        source = loader.get_source(name) if isinstance(loader, zipimporter) else None
        return program.code_of(loader.get_filename(name), called, source=source) or original(module)

    loader.get_code = get_code
