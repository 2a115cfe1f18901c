"""The patch engine of a process: started when the first module of the plan is about to be imported."""

from __future__ import annotations

import builtins
import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from autotrace.bootstrap import elsewhere, environment
from autotrace.patch.bind import Binder
from autotrace.patch.finder import Finder
from autotrace.patch.index import Index
from autotrace.record import calls, context, faults, flusher, ids, sampling
from autotrace.record.probe import Probe
from autotrace.spec.plan import Plan, Settings, Target

ADAPTERS = {
    "ray": "autotrace.adapters.ray",
    "verl": "autotrace.adapters.verl",
    "torch": "autotrace.adapters.torch",
    "vllm": "autotrace.adapters.vllm",
}
"""Library -> the module that knows what YAML cannot say about it; its ``install()`` runs right after the import."""


class Engine:
    """One per process. ``find_spec`` is what the bootstrap's ``sys.meta_path`` entry delegates to."""

    def __init__(self, plan: Plan, main: str | None) -> None:
        self.plan = plan
        self.index = Index(plan)
        self.binder = Binder(self.index, report, main)
        self.waiting: dict[str, list[Callable[[ModuleType], None]]] = {}
        self.finder = Finder(self._wanted, self._imported)
        self._seen = threading.local()
        for library, adapter in ADAPTERS.items():
            self.when_imported(library, _adapter(adapter))

    def start(self) -> None:
        """Hook class creation, then take what is imported already."""
        _hook_build_class(self.binder.created)
        for name, module in list(sys.modules.items()):
            if module is not None and self._wanted(name) and not _initialising(module):
                self._imported(module)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See ``Finder.find_spec``."""
        return self.finder.find_spec(name, path, target)

    def when_imported(self, name: str, callback: Callable[[ModuleType], None]) -> None:
        """Call ``callback(module)`` after ``name`` was imported, or now if it is."""
        module = sys.modules.get(name)
        if module is not None and not _initialising(module):
            _guarded(callback, module)
        else:
            self.waiting.setdefault(name, []).append(callback)

    def _wanted(self, name: str) -> bool:
        return name in self.waiting or self.index.wanted(name)

    def _imported(self, module: ModuleType) -> None:
        name = getattr(module, "__name__", "")
        for callback in self.waiting.pop(name, ()):
            _guarded(callback, module)
        self.binder.module(module)


engine: Engine | None = None
_reported: set[tuple[str, str, str]] = set()


def report(key: str, name: str, state: str, reason: str) -> None:
    """Say what happened to a target; goes out with the first record, or at exit."""
    if (key, name, state) not in _reported:
        _reported.add((key, name, state))
        flusher.report(key, name, state, reason)


def start(plan: Plan | None = None, run_folder: str | None = None, run_id: str | None = None) -> Engine | None:
    """Start the engine of this process; without arguments everything comes from the environment. Idempotent.

    Returns None, and says so once in the log, when the plan cannot be read: the host runs untraced.
    """
    global engine
    if engine is not None:
        return engine
    try:
        if plan is None:
            plan = Plan.loads(elsewhere.plan_text(os.environ))
        folder = run_folder or elsewhere.run_folder(os.environ)
        load(plan)
        flusher.calls_of = _calls
        flusher.on_open = functools.partial(elsewhere.start_relay, folder)
        flusher.configure(folder, run_id or os.environ.get(environment.RUN_ID, ""), plan.settings, plan.digest)
        os.register_at_fork(after_in_child=_after_fork_in_child)
        engine = Engine(plan, _main_module())
        engine.start()
    except Exception as error:
        faults.failed("start", error)
    return engine


def load(plan: Plan) -> None:
    """Make the probes of ``plan``."""
    for target in plan.targets:
        add(target, plan.settings)
    calls.decide = sampling.decision(plan.settings.sampling)


def add(target: Target, settings: Settings) -> Probe:
    """Make the probe of one target."""
    probe = calls.probes[target.key] = Probe(target, settings)
    probe.on_fault = _given_up
    return probe


def _given_up(probe: Probe) -> None:
    report(probe.key, probe.key, "failed", "switched off after repeated failures of autotrace's own; see the drops")


def _calls() -> dict[str, int]:
    return {key: probe.calls for key, probe in list(calls.probes.items()) if probe.calls}


def _after_fork_in_child() -> None:
    try:
        ids.reseed()
        calls.epoch += 1
        flusher.after_fork_in_child()
    except Exception as error:
        faults.failed("fork", error)


def _main_module() -> str | None:
    """What ``__main__`` is called when it is imported: ``python -m pkg.mod``, or the stem of a script."""
    arguments = sys.orig_argv[1:]
    for place, word in enumerate(arguments):
        if word == "-m" and place + 1 < len(arguments):
            name = arguments[place + 1]
            return name
        if word.startswith("-m") and len(word) > 2:
            return word[2:]
        if word == "-c":
            return None
        if word in ("-W", "-X"):
            continue
        if not word.startswith("-") and (place == 0 or arguments[place - 1] not in ("-W", "-X")):
            stem = os.path.basename(word)
            return stem[:-3] if stem.endswith(".py") else None
    return None


def _adapter(name: str) -> Callable[[ModuleType], None]:
    def install(_: ModuleType) -> None:
        importlib.import_module(name).install()

    return install


def _guarded(callback: Callable[[ModuleType], None], module: ModuleType) -> None:
    try:
        callback(module)
    except Exception as error:
        faults.failed(f"hook:{module.__name__}", error)


def _initialising(module: Any) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _hook_build_class(created: Callable[[type], None]) -> None:
    """Be told of every class right after its body ran: before ``@ray.remote`` copies its methods, before anybody
    subclasses it, also in ``__main__``. Costs 0.5 us a class statement."""
    original = builtins.__build_class__
    if getattr(original, "autotrace", False):
        return

    def __build_class__(function: Any, name: str, /, *bases: Any, **keywords: Any) -> Any:
        cls = original(function, name, *bases, **keywords)
        if isinstance(cls, type):
            try:
                created(cls)
            except Exception as error:
                faults.failed("class", error)
        return cls

    __build_class__.autotrace = True  # type: ignore[attr-defined]
    builtins.__build_class__ = __build_class__


__all__ = ["ADAPTERS", "Engine", "add", "context", "engine", "load", "report", "start"]
