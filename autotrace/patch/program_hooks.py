"""Who compiles the program, and has its functions show themselves (``program``): the path hook of a script,
``compile`` itself where another program runs it. What Python compiled already (``python -c``, a script that calls
``autotrace.start``) is looked at after each of its lines.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import os
import sys
from importlib.machinery import ModuleSpec
from types import CodeType, FrameType, ModuleType
from typing import Any

from autotrace.patch import adapting, program
from autotrace.record import faults
from autotrace.record.errors import without_frame
from autotrace.record.frames import transparent

_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_LONGEST = 3_000_000
"""Calls of the program after which it is not watched any longer: a function that is still to be made may never be."""


class ScriptHook:
    """An entry of ``sys.path_hooks`` that takes one script, once, and refuses every other path; it finds ``__main__``
    there, and is its loader.

    Python compiles a script itself and asks no loader. But it looks first whether the script is a folder or an archive
    with a ``__main__`` inside, and so does ``runpy.run_path``, with which a child of ``multiprocessing`` runs the
    script of its parent. What the program can notice: two frames of ``runpy`` below its own, as with ``python -m``.
    """

    def __init__(self, path: str | None) -> None:
        """``path``: of the script; None in a child that is about to run its parent's, and does not know it yet."""
        self.path = None if path is None else os.path.abspath(path)
        self.found = ""
        self.code: CodeType | None = None

    def install(self) -> None:
        """Be asked before the others, which take folders and archives."""
        sys.path_hooks.insert(0, self)

    def remove(self) -> None:
        """Be asked no more."""
        sys.path_hooks[:] = [hook for hook in sys.path_hooks if hook is not self]

    def __call__(self, path: str) -> ScriptHook:
        """This object, if ``path`` is the script; ``ImportError`` says no, as the protocol has it."""
        if type(path) is str and self.path in (None, os.path.abspath(path)) and program.is_source(path):
            called = (str(program.script_name(path)), "__main__")
            self.found, self.code = path, program.code_of(path, called, as_script=True)
        if self.code is None:
            raise ImportError(path)
        return self

    def find_spec(self, name: str, target: Any = None) -> ModuleSpec | None:
        """The program, and nothing else."""
        return ModuleSpec(name, self, origin=self.found) if name == "__main__" else None  # type: ignore[arg-type]

    def get_code(self, _: str) -> CodeType | None:
        """The code; from now on everything is as if the path had not been taken."""
        self.remove()
        sys.path_importer_cache[self.found] = None  # as it is for every script
        if sys.path and sys.path[0] == self.found:
            del sys.path[0]
            isolated = getattr(sys.flags, "safe_path", False) or sys.flags.isolated
            if self.path is not None and not isolated:
                sys.path.insert(0, os.path.dirname(os.path.realpath(self.found)))
        return self.code


def hook_compile() -> None:
    """Stand in for ``compile``, with which all those compile the program that run another one: cProfile, pdb, coverage,
    IPython, debugpy. Only where a spec names functions of a program on the command line."""
    original = builtins.compile

    @transparent
    def compile(
        source: Any,
        filename: Any,
        mode: str,
        flags: int = 0,
        dont_inherit: bool = False,
        optimize: int = -1,
        **more: Any,
    ) -> Any:
        caller = sys._getframe(1)
        if not dont_inherit:
            flags |= caller.f_code.co_flags & _FUTURE
        # the import system writes what it compiles to a file
        if mode == "exec" and not flags & ast.PyCF_ONLY_AST and "importlib" not in caller.f_code.co_filename:
            try:
                path = os.fsdecode(filename)
                name = program.run_by_another(path) if type(source) in (str, bytes) else None
                if name is not None:
                    tree = ast.parse(source, path)
                    source = tree if program.show(tree, (name, "__main__")) else source
            except Exception as error:  # what cannot be parsed, Python itself complains about
                faults.failed("compile", error)
        try:
            return original(source, filename, mode, flags, True, optimize, **more)
        except BaseException as error:
            without_frame(error)
            raise

    adapting.put(builtins, "compile", compile)


class LineHook:
    """Looks, after each line of a program that runs, which of its functions are made. It is gone with the last."""

    def __init__(self, main: ModuleType, names: set[str], called: tuple[str, ...]) -> None:
        """``names``: of the functions; ``called``: what lists may call the program."""
        self._names = names
        self._called = called
        self._globals = vars(main)
        self._calls = 0
        self._watch = self._call
        self._frame: FrameType | None = None

    def install(self) -> None:
        """Watch this thread, which runs the program or is about to. Whoever watches it already goes first."""
        if sys.gettrace() is not None:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not self._is_program(frame):
            frame = frame.f_back
        if frame is not None:
            self._frame, frame.f_trace = frame, self._line
        sys.settrace(self._watch)

    def remove(self) -> None:
        """Watch no more."""
        if sys.gettrace() is self._watch:
            sys.settrace(None)
        if self._frame is not None:
            self._frame.f_trace = None
        self._frame = None

    def _is_program(self, frame: FrameType) -> bool:
        return frame.f_globals is self._globals and frame.f_code.co_name == "<module>"

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        self._calls += 1
        if self._calls > _LONGEST:
            self.remove()
        return self._line if self._is_program(frame) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        try:
            for name in self._names.intersection(self._globals):
                self._names.discard(name)
                show = program.defined("__main__", name, self._called)
                self._globals[name] = show(self._globals[name])
            if self._names:
                return self._line
            self.remove()
        except Exception as error:
            faults.failed("line", error)
        return None
