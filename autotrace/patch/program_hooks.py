"""Compile the program so that its functions show themselves (``program``): a path hook compiles a script, ``compile``
itself a program that another program runs. A program that Python compiled already (``python -c``, a script that calls
``autotrace.start``) is checked after each of its lines."""

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
"""Stop watching after so many calls of the program: a function that is still missing may never be created."""


class ScriptHook:
    """Take a single script, once, as an entry of ``sys.path_hooks``, and refuse every other path. The hook finds
    ``__main__`` there, and is its loader.

    Python compiles a script itself and asks no loader. But Python first checks whether the script is a folder or an
    archive with a ``__main__`` inside. ``runpy.run_path``, with which a child of ``multiprocessing`` runs the script of
    its parent, checks the same. The program can notice two frames of ``runpy`` below its own, as with ``python -m``.
    """

    def __init__(self, path: str | None) -> None:
        """Set up the hook. ``path``: the script's path; None in a child that is about to run its parent's script, and
        does not know the path yet."""
        self.path = None if path is None else os.path.abspath(path)
        self.found = ""
        self.code: CodeType | None = None

    def install(self) -> None:
        """Insert the hook before the hooks that take folders and archives."""
        sys.path_hooks.insert(0, self)

    def remove(self) -> None:
        """Remove the hook."""
        sys.path_hooks[:] = [hook for hook in sys.path_hooks if hook is not self]

    def __call__(self, path: str) -> ScriptHook:
        """Return this object if ``path`` is the script; otherwise raise ``ImportError``, as the protocol requires."""
        if type(path) is str and self.path in (None, os.path.abspath(path)) and program.is_source(path):
            called = (str(program.script_name(path)), "__main__")
            self.found, self.code = path, program.code_of(path, called, as_script=True)
        if self.code is None:
            raise ImportError(path)
        return self

    def find_spec(self, name: str, target: Any = None) -> ModuleSpec | None:
        """Find the program, and nothing else."""
        return ModuleSpec(name, self, origin=self.found) if name == "__main__" else None  # type: ignore[arg-type]

    def get_code(self, _: str) -> CodeType | None:
        """Return the code; from now on everything is as if the hook had not taken the path."""
        self.remove()
        sys.path_importer_cache[self.found] = None  # as for every script
        if sys.path and sys.path[0] == self.found:
            del sys.path[0]
            isolated = getattr(sys.flags, "safe_path", False) or sys.flags.isolated
            if self.path is not None and not isolated:
                sys.path.insert(0, os.path.dirname(os.path.realpath(self.found)))
        return self.code


def hook_compile() -> None:
    """Replace ``compile``, with which programs compile the program that they run: cProfile, pdb, coverage, IPython,
    debugpy. Only if a spec names functions of a program on the command line."""
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
        # the import system writes its compiled code to a file
        if mode == "exec" and not flags & ast.PyCF_ONLY_AST and "importlib" not in caller.f_code.co_filename:
            try:
                path = os.fsdecode(filename)
                name = program.run_by_another(path) if type(source) in (str, bytes) else None
                if name is not None:
                    tree = ast.parse(source, path)
                    source = tree if program.show(tree, (name, "__main__")) else source
            except Exception as error:  # Python itself reports a text that cannot be parsed
                faults.failed("compile", error)
        try:
            return original(source, filename, mode, flags, True, optimize, **more)
        except BaseException as error:
            without_frame(error)
            raise

    adapting.put(builtins, "compile", compile)


class LineHook:
    """Check after each line of a running program which of its functions exist. The hook is gone with the last
    function."""

    def __init__(self, main: ModuleType, names: set[str], called: tuple[str, ...]) -> None:
        """Set up the hook. ``names``: the functions' names; ``called``: the names by which lists may call the
        program."""
        self._names = names
        self._called = called
        self._globals = vars(main)
        self._calls = 0
        self._watch = self._call
        self._frame: FrameType | None = None

    def install(self) -> None:
        """Watch this thread, which runs the program or is about to. An earlier watcher of the thread goes first."""
        if sys.gettrace() is not None:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not self._is_program(frame):
            frame = frame.f_back
        if frame is not None:
            self._frame, frame.f_trace = frame, self._line
        sys.settrace(self._watch)

    def remove(self) -> None:
        """Stop watching."""
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
