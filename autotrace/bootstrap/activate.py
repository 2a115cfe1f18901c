"""What the ``.pth`` line imports: watch for the first module of the plan, and do nothing else until then.

Standard library only, and almost none of it: every Python process of the run pays for this file. Idempotent: a ``.pth``
line runs twice in a Python 3.11 virtual environment, and a Ray worker with a ``runtime_env`` runs it four times.
"""

from __future__ import annotations

import os
import sys

from autotrace.config import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SPAWN = "multiprocessing.spawn"
"""What a child imports before it runs the script of its parent; other Python children do not."""


class Watch:
    """A ``sys.meta_path`` entry that waits for one of ``names`` and then hands over to the patch engine."""

    autotrace = True

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.engine: Any = None
        self.started = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """None (somebody else finds it) until a module of the plan is imported."""
        overtaken = not (sys.meta_path and sys.meta_path[0] is self) and self._come_first()
        if self.engine is None:
            if self.started or not (name in self.names or (overtaken and not self.names.isdisjoint(sys.modules))):
                return None
            self.start()
            if self.engine is None:
                return None
        elif overtaken:
            self.engine.take_imported()
        return self.engine.find_spec(name, path, target)

    def _come_first(self) -> bool:
        """Go before a finder that was put first meanwhile (pytest's, a type checker's): what it finds, those behind it
        never hear of. False: this one is no entry itself, somebody passes the question on."""
        if not any(entry is self for entry in sys.meta_path):
            return False
        sys.meta_path[:] = [self, *(entry for entry in sys.meta_path if entry is not self)]
        return True

    def start(self) -> None:
        """Load the engine; whatever goes wrong there, the host imports on."""
        self.started = True
        try:
            from autotrace.patch import engine

            self.engine = engine.start()
        except Exception:
            import logging

            logging.getLogger("autotrace").warning("autotrace could not start; this process runs untraced")


def main() -> None:
    """Activate this process if ``AUTOTRACE`` says so."""
    switch = os.environ.get(environment.AUTOTRACE, "")
    if switch.lower() not in environment.ON or any(isinstance(entry, Watch) for entry in sys.meta_path):
        return
    if switch != "1":
        os.environ[environment.AUTOTRACE] = "1"
    if environment.PLAN not in os.environ:
        from autotrace.bootstrap import prepare

        if not prepare.ensure():
            return
    names = frozenset(name for name in os.environ.get(environment.MODULES, "").split(",") if name)
    watch = Watch(names)
    sys.meta_path.insert(0, watch)
    main_pid = os.environ.get(environment.MAIN_PID, "")
    if main_pid.partition(":")[0] == str(os.getpid()):
        from autotrace.bootstrap import exit

        exit.install()
    script = _script() in names  # nobody imports a script,
    if script and SPAWN not in names:  # not even the children that multiprocessing spawns of it
        os.environ[environment.MODULES] += f",{SPAWN}"
    if script or "__main__" in names or not names.isdisjoint(sys.modules):
        watch.start()


def _script() -> str | None:
    """What the script of this process is called in a list: its file name without ``.py``."""
    name = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    return name[:-3] if name.endswith(".py") else None


main()
