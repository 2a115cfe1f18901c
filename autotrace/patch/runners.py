"""Functions of a program whose code no loader of ours can give: another program runs it (a profiler, a debugger),
Python was given its text (``python -c``), or it had begun before autotrace started."""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib.util
import os
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from autotrace.patch import main_module
from autotrace.patch.script import Instrument
from autotrace.record import faults
from autotrace.record.errors import without_frame
from autotrace.record.frames import transparent

_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_LONGEST = 3_000_000
"""Calls of the program after which it is not watched any longer: a function that is still to be made may never be."""


def source_of(path: str) -> str:
    """The text of a script. Raises ``OSError``, ``SyntaxError`` or ``UnicodeDecodeError``."""
    with open(path, "rb") as file:
        return importlib.util.decode_source(file.read())


class CompileHook:
    """Stands in for ``compile``, with which all of them compile the program that they were given: cProfile, pdb,
    coverage, IPython, debugpy. Only where a list names functions of a program on the command line."""

    def __init__(self, instrument: Instrument) -> None:
        self._instrument: Instrument | None = instrument
        self._original: Any = None
        self._installed: Any = None

    def install(self) -> None:
        """Put the hook in place."""
        original = self._original = builtins.compile

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
            if mode == "exec" and not flags & ast.PyCF_ONLY_AST:
                source = self._seen(source, filename, caller)
            try:
                return original(source, filename, mode, flags, True, optimize, **more)
            except BaseException as error:
                without_frame(error)
                raise

        self._installed = builtins.compile = compile

    def remove(self) -> None:
        """Put back what was there; if somebody else hooked on top, stay and do nothing."""
        self._instrument = None
        if builtins.compile is self._installed:
            builtins.compile = self._original

    def _seen(self, source: Any, filename: Any, caller: FrameType) -> Any:
        try:
            if self._instrument is None or type(source) not in (str, bytes):
                return source
            path = os.fsdecode(filename)
            name = main_module.run_by_another(path)
            # the import system writes what it compiles to a file
            if name is not None and "importlib" not in caller.f_code.co_filename:
                text = source if type(source) is str else importlib.util.decode_source(source)
                return self._instrument(name, text, path) or source
        except Exception as error:  # what cannot be parsed, Python itself complains about
            faults.failed("compile", error)
        return source


class LineHook:
    """Looks, after each line of a program that runs, which of its functions are made. It is gone with the last."""

    def __init__(self, program: ModuleType, names: set[str], made: Callable[[], None]) -> None:
        """``made()`` is called when one or more of ``names`` are there."""
        self._names = names
        self._made = made
        self._globals = vars(program)
        self._calls = 0
        self._installed: Any = None
        self._frame: FrameType | None = None

    def install(self) -> None:
        """Watch this thread, which runs the program or is about to. Whoever watches it already goes first."""
        frame: FrameType | None = sys._getframe(1)
        about_to = False
        while frame is not None and not self._is_program(frame):
            about_to = about_to or frame.f_globals.get("__name__") == "site"
            frame = frame.f_back
        if sys.gettrace() is None and (frame is not None or about_to):
            if frame is not None:
                self._frame, frame.f_trace = frame, self._line
            self._installed = self._call
            sys.settrace(self._installed)

    def remove(self) -> None:
        """Watch no more."""
        if self._installed is not None and sys.gettrace() is self._installed:
            sys.settrace(None)
        if self._frame is not None and self._frame.f_trace is not None:
            self._frame.f_trace = None
        self._installed = self._frame = None

    def _is_program(self, frame: FrameType) -> bool:
        return frame.f_globals is self._globals and frame.f_code.co_name == "<module>"

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        self._calls += 1
        if self._calls > _LONGEST:
            self.remove()
        return self._line if self._is_program(frame) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        try:
            made = self._names.intersection(self._globals)
            if made:
                self._names -= made
                self._made()
            if self._names:
                return self._line
            self.remove()
        except Exception as error:
            faults.failed("line", error)
        return None
