"""Run the patch engine of a process, which starts when the first module of the plan is about to be imported."""

from __future__ import annotations

import ast
import atexit
import functools
import importlib
import os
import sys
from collections.abc import Mapping
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any
from weakref import WeakSet

from autotrace.config import environment
from autotrace.config.plan import Plan, Settings, Target
from autotrace.patch import adapting, attach, import_hook, program, watch, wrapper
from autotrace.patch.binder import Binder
from autotrace.patch.import_hook import ImportHook
from autotrace.patch.plan_index import PlanIndex
from autotrace.patch.program_hooks import LineHook, ScriptHook, hook_compile
from autotrace.record import calls, context, faults, flusher, garbage, ids, own_thread, sampling, trajectory_ids
from autotrace.record.backlog import backlog
from autotrace.record.object_fields import module_of, name_of
from autotrace.record.probe import Probe
from autotrace.run import remote_node

_UNSEEN = (
    "autotrace did not see `{}` being imported (its loader: {}), so nothing in it was wrapped: import it with a plain "
    "`import`, or before autotrace starts"
)
_UNSEEN_IN_PROGRAM = (
    "autotrace did not see the program define `{}` (imported from elsewhere, typed at a prompt, read from stdin, or in "
    "a program that another one runs): name the module that defines it, or move it into one"
)


class Engine:
    """Bind the plan in this process; a process has one engine."""

    def __init__(self, plan: Plan, adapters: Mapping[str, str]) -> None:
        """Set up the engine. ``adapters``: module -> the module whose ``install()`` is called right after the first
        module's import."""
        self.plan = plan
        self.index = PlanIndex(plan)
        self.binder = Binder(self.index, report)
        self.imports = ImportHook(self._wanted, self._imported, self._catch_up)
        self._late: list[ModuleType] = []
        """List wanted modules that were half imported when the engine started, by this thread or another."""
        self._seen: WeakSet[ModuleType] = WeakSet()
        self._program: list[ScriptHook | LineHook] = []
        """List the hooks that see the program create its functions."""
        for library, adapter in adapters.items():  # `start` does this for a library that is imported already
            adapting.waiting.setdefault(library, []).append(functools.partial(_install, adapter))

    def start(self) -> None:
        """Hook class creation and imports, then bind the modules that are imported already."""
        import_hook.hook(self._created)
        program.wanted, program.on_definition = self.index.functions_of, self._defined
        self.imports.install()
        self._take_imported()
        self._take_program()
        atexit.register(self._over)  # runs before the flusher's own, which was registered before

    def _take_imported(self) -> None:
        """Bind the modules that were imported before the engine started; first the modules that an adapter waits for,
        because the adapter's rules hold for the other modules."""
        for name, module in sorted(sys.modules.items(), key=lambda item: item[0] not in adapting.waiting):
            try:
                if isinstance(module, ModuleType) and self._wanted(name):
                    self._take(module)
            except Exception as error:  # a module object of the host's own making
                faults.failed("modules", error)

    def _take(self, module: ModuleType) -> None:
        if adapting.initialising(module):
            self._late.append(module)
        elif module not in self._seen:
            self._imported(module)

    def stop(self) -> None:
        """Restore everything that was replaced, by adapters too, and remove all hooks."""
        self._over()
        atexit.unregister(self._over)
        program.wanted = program.on_definition = None
        self.imports.remove()
        for hook in self._program:
            hook.remove()
        wrapper.restore()
        adapting.stop()
        garbage.unwatch()

    def _created(self, cls: type, file: str | None) -> None:
        if engine is not self:
            return
        self.binder.created(cls, file)
        if (module := module_of(cls)) in program.MAINS:
            for callback in adapting.waiting.pop(f"{program.name_of(module)}:{name_of(cls)}", ()):
                callback(cls)

    def _wanted(self, name: str) -> bool:
        program_wanted = name in program.modules() and self.index.wanted("__main__")
        return program_wanted or name in adapting.waiting or self.index.wanted(name)

    def _defined(self, module: str, function: str, value: Any, called: tuple[str, ...]) -> Any:
        made = ModuleType(module)  # a program run by another program need not be a module
        setattr(made, function, value)
        for name in called:
            self.binder.module(made, name, only=function)
        return vars(made)[function]

    def _imported(self, module: ModuleType) -> None:
        self._seen.add(module)
        name = getattr(module, "__name__", "")
        while callbacks := adapting.waiting.pop(name, ()):  # an adapter may wait for the library that installs it
            for callback in callbacks:
                adapting.tell(callback, module)
        self.binder.module(module)

    def _catch_up(self) -> None:
        """Bind the half-imported modules that are ready now."""
        late, self._late = self._late, []
        for module in late:
            self._take(module)

    def _over(self) -> None:
        """Report the targets in modules that were loaded without the import system or by an unusual loader, or in the
        program, which is never imported."""
        try:
            # Python removes `__file__` when the script ends
            called = ("__main__", program.name_of("__main__") or program.script_name(program.script()))
            for name in self.index.modules:
                module = sys.modules.get("__main__" if name in called else name)
                if isinstance(module, ModuleType) and (name in called or module not in self._seen):
                    loader = type(getattr(module, "__loader__", None))
                    unseen = _UNSEEN.format(name, f"{loader.__module__}.{loader.__qualname__}")
                    self.binder.over(module, name, _UNSEEN_IN_PROGRAM if name in called else unseen)
        except Exception as error:
            faults.failed("over", error)

    def _take_program(self) -> None:
        """Bind the program's existing functions, and watch for the functions that the program creates later."""
        main = sys.modules.get("__main__")
        if not isinstance(main, ModuleType):
            return
        script, called = program.script(), program.names_of("__main__", None)
        for name in called[1:]:  # the program has begun; `__main__` itself was taken with all modules
            self.binder.module(main, name)
        if program.is_spawned() or (script is not None and not hasattr(main, "__file__")):
            self._program.append(ScriptHook(script))
        elif names := program.show(ast.parse(program.source_of(main)), called).difference(vars(main)):
            self._program.append(LineHook(main, names, called))
        if any(self.index.functions_of((other, "__main__")) for other in program.others().values()):
            hook_compile()
        for hook in self._program:
            hook.install()


engine: Engine | None = None
_reported: set[tuple[str, str, str]] = set()


def report(key: str, name: str, state: str, reason: str) -> None:
    """Report the fate of a target; the report leaves with the first record, or at exit. A bound target that records
    only inner calls is reported only with the first record."""
    if (key, name, state) not in _reported:
        _reported.add((key, name, state))
        probe = calls.probes.get(key)
        backlog.report(key, name, state, reason, alone=state != "bound" or probe is None or not probe.is_inner)


def start(
    plan: Plan | None = None,
    run_folder: str | None = None,
    run_id: str | None = None,
    *,
    adapters: Mapping[str, str] = MappingProxyType({}),
) -> Engine | None:
    """Start the engine of this process; without arguments all values come from the environment. Idempotent.

    ``adapters``: see ``Engine``; ``adapters.registry`` has all adapters of autotrace. Returns None, and logs the error
    once, if the plan cannot be read: the host runs untraced.
    """
    global engine
    if engine is not None:
        return engine
    try:
        if plan is None:
            plan = Plan.loads(remote_node.plan_text(os.environ))
        folder = run_folder or remote_node.run_folder(os.environ)
        for target in plan.targets:
            add(target, plan.settings)
        calls.decide = sampling.decision(plan.settings.sampling)
        flusher.calls_of, flusher.paths_of = _calls, _paths
        flusher.on_open = functools.partial(remote_node.start_relay, folder)
        flusher.configure(folder, run_id or os.environ.get(environment.RUN_ID, ""), plan.settings, plan.digest)
        _register_at_fork()
        engine = Engine(plan, adapters)
        engine.start()
    except Exception as error:
        faults.failed("start", error)
    return engine


def stop() -> None:
    """Undo ``start``: functions get their own code again, values that cannot be restored (see ``adapting.put``) pass
    calls through, records are written out. A later ``start`` begins again. Never raises."""
    global engine
    running, engine = engine, None
    try:
        if running is not None:
            running.stop()
        flusher.stop()
    except Exception as error:
        faults.failed("stop", error)
    flusher.calls_of, flusher.paths_of, flusher.on_open = dict, dict, None
    calls.probes.clear()
    calls.decide = None
    _reported.clear()
    context.forked()  # open calls belong to the run that is over
    trajectory_ids.forget()


def settings() -> Settings:
    """Return how this run records."""
    return engine.plan.settings if engine is not None else Settings()


def record_function(function: Any, *, key: str, role: str = "span", name: str | None = None, **target: Any) -> None:
    """Record the calls of ``function`` under a target created here, for a function that a spec cannot name, for example
    from a user's file.

    Takes functions and partials of functions; anything else is left alone. ``target``: further fields of
    ``config.plan.Target``.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if type(function) is not FunctionType or wrapper.key_of(function) is not None:
        return
    if key not in calls.probes:
        add(Target(key, (key,), role=role, label=name, **target), settings())
    report(key, f"{function.__module__}:{function.__qualname__}", "bound", attach.IN_PLACE)
    wrapper.place(function, key)


def add(target: Target, settings: Settings) -> Probe:
    """Create the probe of a target."""
    probe = calls.probes[target.key] = Probe(target, settings)
    probe.on_fault = _given_up
    if settings.watch and target.watch and target.role in watch.ROLES:
        probe.watch = functools.partial(watch.below, target)
    return probe


def _given_up(probe: Probe) -> None:
    report(probe.key, probe.key, "failed", "switched off after repeated failures of autotrace's own; see the drops")


def _calls() -> dict[str, int]:
    return {key: probe.counts.calls for key, probe in list(calls.probes.items()) if probe.counts.calls}


def _paths() -> dict[str, tuple[int, int]]:
    return {name: counts for probe in list(calls.probes.values()) for name, counts in probe.absences().items()}


@functools.lru_cache(maxsize=1)
def _register_at_fork() -> None:
    os.register_at_fork(after_in_child=_after_fork_in_child)
    if sys.version_info >= (3, 12):
        os.register_at_fork(before=own_thread.before_fork, after_in_parent=own_thread.after_fork_in_parent)


def _after_fork_in_child() -> None:
    try:
        ids.reseed()
        context.forked()
        trajectory_ids.forget()
        for probe in list(calls.probes.values()):
            probe.forked()
        flusher.after_fork_in_child()
    except Exception as error:
        faults.failed("fork", error)


def _install(adapter: str, _: ModuleType) -> None:
    importlib.import_module(adapter).install()
