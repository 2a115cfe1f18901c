"""Watch for the first module of the plan, and do nothing else until then. The ``.pth`` line imports this module.

The module imports little, and only from the standard library: every Python process of the run pays for this file.
Repeating the import is harmless: a ``.pth`` line runs twice in a Python 3.11 virtual environment, and a Ray worker with
a ``runtime_env`` runs the line four times.
"""

from __future__ import annotations

import atexit
import os
import sys

from autotrace.config import environment, import_system
from autotrace.run.inherited import is_over

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OWN = ("msgspec", "wrapt")
"""Names imports of the engine outside the standard library."""
SPAWN = "multiprocessing.spawn"
"""Name of a module that a child imports before the script of its parent; other Python children do not."""


class Watch:
    """Replaces the function that looks for modules until a module of ``names`` is wanted; then the patch engine, which
    replaces that function from then on, takes over."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.started = False
        self._original = import_system.current()
        self._installed = self.find_spec  # each access makes another object
        import_system.replace(self._original, self._installed)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Return the spec that Python finds without autotrace."""
        first = name in self.names and not self.started
        engine = self.start() if first else None
        spec = self._original(name, path, target)
        if engine is not None:
            engine.imports.spec_found(name, spec)
        return spec

    def start(self) -> Any:
        """Load and return the engine; after any failure there, the host imports on."""
        self.started = True
        import_system.replace(self._installed, self._original)
        try:
            from autotrace.adapters import registry

            engine = registry.start()
            from autotrace.record import flush_requests, flusher

            atexit.unregister(flusher.shutdown)  # ``_write_out`` comes after more of the host's functions
            if not _is_first():
                flush_requests.write_at_once()
            return engine
        except BaseException as error:
            if _is_hosts(error):  # a timeout of the program's, say: the next module of the plan tries again
                self.started = False
                import_system.replace(self._original, self._installed)
                raise
            _complain()
            return None

    def remove(self) -> None:
        """Stop watching, if the engine was not started."""
        import_system.replace(self._installed, self._original)


def _is_hosts(error: BaseException) -> bool:
    try:
        from autotrace.record.origin import is_hosts
    except Exception:  # the import of autotrace itself failed
        return not isinstance(error, Exception)
    return is_hosts(error)


def _complain() -> None:
    try:
        import logging

        logging.getLogger("autotrace").warning("autotrace could not start; this process runs untraced")
    except Exception as error:  # logging is half imported, or has handlers of the host
        if _is_hosts(error):
            raise


def _is_first() -> bool:
    """Tell whether this is the first process of the run."""
    return os.environ.get(environment.MAIN_PID) == f"{os.getpid()}:{os.uname().nodename}"


def _write_out() -> None:
    """Write waiting records at the end of the process. Registered before the program runs, so that all exit functions
    of the program come earlier."""
    flusher = sys.modules.get("autotrace.record.flusher")
    if flusher is not None:
        flusher.shutdown()


watch: Watch | None = None
"""Watch of this process, once the process is activated."""


def main() -> None:
    """Activate this process if ``AUTOTRACE`` says so."""
    global watch
    switch = os.environ.get(environment.AUTOTRACE, "")
    if switch.lower() not in environment.ON or watch is not None or not _is_main_interpreter():
        return
    if switch != "1":
        os.environ[environment.AUTOTRACE] = "1"
    if environment.PLAN not in os.environ or is_over(os.environ):
        from autotrace.bootstrap import prepare

        if not prepare.ensure():
            return
    names = frozenset(name for name in os.environ.get(environment.MODULES, "").split(",") if name)
    watch = Watch(names)
    atexit.register(_write_out)
    if _is_first():
        from autotrace.bootstrap import exit

        exit.install()
    script = not names.isdisjoint(_scripts())  # nobody imports a script,
    if script and SPAWN not in names:  # not even the children that multiprocessing spawns of it
        os.environ[environment.MODULES] += f",{SPAWN}"
    if script or "__main__" in names or not names.isdisjoint((*sys.modules, *sys.stdlib_module_names, *OWN)):
        watch.start()  # the engine could not start amid the import of its own needs


def _is_main_interpreter() -> bool:
    """Tell whether this is the process's first interpreter; no other interpreter is traced. A run has one flusher for a
    process."""
    try:
        interpreters = __import__("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    except ImportError:  # a Python that was built without
        return True
    return bool(interpreters.get_current() == interpreters.get_main())


def leave() -> None:
    """Undo ``main``: this process can be activated again. ``engine.stop`` undoes the engine's work."""
    global watch
    if watch is not None:
        watch.remove()
    watch = None
    atexit.unregister(_write_out)
    if "autotrace.bootstrap.exit" in sys.modules:
        sys.modules["autotrace.bootstrap.exit"].remove()


def _scripts() -> list[str]:
    """Return the names that specs use for the scripts on the command line: file names without ``.py``.

    One of the scripts is the program, or runs in another program (``python -m cProfile train.py``).
    """
    return [os.path.basename(word).removesuffix(".py") for word in getattr(sys, "argv", None) or []]


main()
