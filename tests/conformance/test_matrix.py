"""Every case over every kind: what the host sees of a watched module is what it sees of the same module unwatched."""

from __future__ import annotations

import asyncio
import copy
import dis
import gc
import inspect
import pickle
import threading
import traceback
import typing
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle
import pytest

from autotrace.config.plan import Target
from autotrace.record import context

from .conftest import Host
from .kinds import FUNCTIONS, KINDS, Kind, finished, stepped
from .pair import Pair, plain

Case = Callable[[Kind, ModuleType], Any]


def outcome(call: Callable[[], Any]) -> Any:
    """What ``call`` returned, or everything about what it raised that a host could act on."""
    try:
        return "returned", call()
    except Exception as error:
        frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        return "raised", type(error).__name__, str(error), frames, repr(error.__context__), repr(error.__cause__)


def result(kind: Kind, module: ModuleType) -> Any:
    return outcome(lambda: kind.run(module, 3))


def exception(kind: Kind, module: ModuleType) -> Any:
    return outcome(lambda: kind.run(module, 3, fail=True))


def wrong_arguments(kind: Kind, module: ModuleType) -> Any:
    """The error belongs to the call, not to the first await or item: nothing is run here."""
    if not kind.takes_argument:
        return None
    found = kind.found(module)
    return [outcome(lambda: found()), outcome(lambda: found(1, 2, 3)), outcome(lambda: found(1, colour="red"))]


def inspection(kind: Kind, module: ModuleType) -> Any:
    found = kind.found(module)
    tests = [
        inspect.isfunction, inspect.ismethod, inspect.isroutine, inspect.isbuiltin, inspect.iscoroutinefunction,
        inspect.isgeneratorfunction, inspect.isasyncgenfunction, inspect.isabstract, inspect.isdatadescriptor,
        asyncio.iscoroutinefunction, callable,
    ]  # fmt: skip
    return [test(found) for test in tests], type(found).__name__


def signature(kind: Kind, module: ModuleType) -> Any:
    if not kind.takes_argument:
        return None
    found = kind.found(module)
    hints = typing.get_type_hints(found.func if hasattr(found, "func") else found) if kind.function else None
    direct = inspect.signature(found, follow_wrapped=False) if kind.function else None
    return str(inspect.signature(found)), str(direct), str(hints), str(inspect.getfullargspec(found))


def names(kind: Kind, module: ModuleType) -> Any:
    if not kind.function:
        return None
    found = kind.found(module)
    function = found.__func__ if isinstance(found, MethodType) else found
    code = function.__code__
    flags = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_VARARGS
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return (
        [found.__name__, found.__qualname__, found.__module__, found.__doc__, dict(found.__annotations__)],
        [function.__defaults__, function.__kwdefaults__, code.co_argcount, code.co_kwonlyargcount, parameters],
        [code.co_name, code.co_flags & flags, code.co_posonlyargcount, function.__globals__ is vars(module)],
        sorted(vars(function)),
        [dis.COMPILER_FLAG_NAMES.get(code.co_flags & inspect.CO_ITERABLE_COROUTINE)],
    )


def source(kind: Kind, module: ModuleType) -> Any:
    if not kind.function:
        return None
    found = kind.found(module)
    unwrapped = inspect.unwrap(found)
    lines = inspect.getsource(found), inspect.getsourcelines(found)[1], unwrapped.__code__.co_firstlineno
    return lines, hasattr(found, "__wrapped__"), unwrapped is inspect.unwrap(found)


def types(kind: Kind, module: ModuleType) -> Any:
    """What stands in the ``__dict__`` of its owner."""
    owner: Any = module
    *path, last = kind.target.split(".")
    for word in path:
        owner = getattr(owner, word)
    raw = inspect.getattr_static(owner, last)
    inner = getattr(raw, "__func__", None) or getattr(raw, "fget", None) or getattr(raw, "func", None) or raw
    members = inspect.classify_class_attrs(module.Thing)
    return type(raw).__name__, type(inner) is FunctionType, [(item.name, item.kind) for item in members]


def pickled(kind: Kind, module: ModuleType) -> Any:
    if not kind.function:
        return None
    found = kind.found(module)
    again = pickle.loads(pickle.dumps(found))
    same = again.__func__ is found.__func__ if isinstance(found, MethodType) else again is found
    return same, [len(pickle.dumps(found, protocol)) for protocol in range(2, 6)]


def copied(kind: Kind, module: ModuleType) -> Any:
    found = kind.found(module)
    if not kind.function:
        return finished(copy.deepcopy(found)(kind.owner(module)(3) if not kind.takes_argument else 3))
    holder = {"callback": found}
    again = copy.deepcopy(holder)["callback"], copy.copy(found)
    return [finished(function(3)) for function in again], type(again[0]).__name__


def cloudpickled(kind: Kind, module: ModuleType) -> Any:
    """By reference, and by value as a module that workers cannot import."""
    if not kind.function:
        return None
    found = kind.found(module)
    by_reference = cloudpickle.loads(cloudpickle.dumps(found))
    cloudpickle.register_pickle_by_value(module)
    try:
        by_value = cloudpickle.loads(cloudpickle.dumps(found))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    return finished(by_reference(3)), finished(by_value(3)), str(inspect.signature(by_value))


def equality(kind: Kind, module: ModuleType) -> Any:
    first, second = kind.found(module), kind.found(module)
    return first == second if kind.function or kind.name == "callable instance" else None


def in_threads(kind: Kind, module: ModuleType) -> Any:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda x: kind.run(module, x), range(16)))


def contexts(kind: Kind, module: ModuleType) -> Any:
    """The caller's context variables, after the call."""
    before = dict(copy_context().items())
    outcome(lambda: kind.run(module, 3))
    outcome(lambda: kind.run(module, 3, fail=True))
    half = kind.start(module, 3)
    if inspect.isgenerator(half):
        next(half)
        assert context.current.get() is None
        half.close()
    elif inspect.iscoroutine(half) or inspect.isasyncgen(half):
        finished(half)
    after = dict(copy_context().items())
    return {variable.name for variable in before.keys() ^ after.keys()}, module.hostvar.host.get()


def reprs(kind: Kind, module: ModuleType) -> Any:
    """What is to be run says what it is, and comes back of the same type."""
    started = kind.start(module, 1)
    seen = type(started).__name__, getattr(started, "__name__", None), getattr(started, "__qualname__", None)
    finished(started)
    return seen


CASES: tuple[Case, ...] = (
    result, exception, wrong_arguments, inspection, signature, names, source, types, pickled, copied, cloudpickled,
    equality, in_threads, contexts, reprs,
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_host_sees_no_difference(host: Host, kind: Kind, case: Case) -> None:
    pair = Pair(host, kind)
    pair.same(lambda module: case(kind, module))
    assert next(iter(host.reports().values()))[0] == "bound"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_call_is_recorded_once_with_its_status(host: Host, kind: Kind) -> None:
    pair = Pair(host, kind)
    kind.run(pair.traced, 3)
    with pytest.raises(ValueError, match="refused"):
        kind.run(pair.traced, 3, fail=True)
    assert len(host.opened()) == 2
    assert host.statuses() == ["OK", "ERROR"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_traceback_ends_in_the_hosts_code(host: Host, kind: Kind) -> None:
    pair = Pair(host, kind)
    with pytest.raises(ValueError) as caught:
        kind.run(pair.traced, 3, fail=True)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "_work"
    assert not any("importlib" in frame.filename for frame in frames)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_everything_is_put_back(host: Host, kind: Kind) -> None:
    pair = Pair(host)
    before = {
        owner: dict(vars(owner)) for owner in (pair.traced, pair.traced.Thing, pair.traced.Base, pair.traced.Cached)
    }
    host.stop()
    again = Pair(host, kind)
    assert again.traced is pair.traced and host.reports()
    kind.run(again.traced, 1)
    assert host.opened()
    host.stop()
    for owner, members in before.items():
        assert {name: value for name, value in vars(owner).items() if not name.startswith("__")} == {
            name: value for name, value in members.items() if not name.startswith("__")
        }
    recorded = len(host.opened())
    kind.run(again.traced, 1)
    assert len(host.opened()) == recorded


class Number:
    """A number that can be referred to weakly."""

    def __index__(self) -> int:
        return 2

    def __mul__(self, other: int) -> int:
        return 2 * other


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_nothing_of_a_call_is_kept_alive(host: Host, kind: Kind) -> None:
    """With the garbage collector off: no cycle through our frames keeps an argument, a result or an error alive."""

    pair = Pair(host, kind)
    gc.collect()
    gc.disable()
    try:
        for module in (pair.bare, pair.traced):
            error = None
            argument = Number()
            seen = weakref.ref(argument)
            finished(kind.start(module, argument), stepped)
            try:
                finished(kind.start(module, argument, fail=True), stepped)
            except ValueError as raised:
                error = weakref.ref(raised)
            del argument
            host.records()
            assert error is not None and error() is None, module.__name__
            assert seen() is None, module.__name__
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", FUNCTIONS, ids=lambda kind: kind.name)
def test_two_targets_that_mean_one_function_are_one_span_and_a_word(host: Host, kind: Kind) -> None:
    host.load("bare_subjects", Pair.__init__.__globals__["SOURCE"])
    again = f"same_subjects:{kind.target}"
    host.watch(*(Target(key, (key,), subclasses=kind.subclasses) for key in (f"same_subjects.{kind.target}", again)))
    module = host.load("same_subjects", Pair.__init__.__globals__["SOURCE"])
    kind.run(module, 1)
    assert len(host.opened()) == 1
    reports = [(record.state, record.reason) for record in host.records() if getattr(record, "key", "") == again]
    assert reports == [("refused", f"its calls are recorded for the target `same_subjects.{kind.target}` already")]


def test_recursion_is_a_span_for_every_call(host: Host) -> None:
    host.watch("same_subjects.factorial")
    module = host.load("same_subjects", Pair.__init__.__globals__["SOURCE"])
    assert module.factorial(5) == 120
    assert len(host.opened()) == 6


def test_a_wrapper_called_from_within_itself_by_another_thread(host: Host) -> None:
    host.watch("same_subjects.apply")
    module = host.load("same_subjects", Pair.__init__.__globals__["SOURCE"])

    def inside() -> int:
        thread = threading.Thread(target=module.apply, args=(int, 3))
        thread.start()
        thread.join()
        return int(module.apply(module.apply, int, 4))

    assert module.apply(inside) == 4
    assert len(host.opened()) == 4


def test_a_warning_names_the_line_it_named_before(host: Host) -> None:
    host.watch("same_subjects.warns")
    module = host.load("same_subjects", Pair.__init__.__globals__["SOURCE"])
    with pytest.warns(DeprecationWarning) as warned:
        module.warns(1)
    assert warned[0].filename == __file__


def test_a_class_a_module_and_a_value_are_refused_with_the_reason(host: Host) -> None:
    host.watch("same_subjects.Thing", "same_subjects.math", "same_subjects.closed")
    host.load("same_subjects", Pair.__init__.__globals__["SOURCE"])
    reports = {place.partition(":")[2]: report for place, report in host.reports().items()}
    assert {state for state, _ in reports.values()} == {"refused"}
    assert "name its methods" in reports["Thing"][1]
    assert "module" in reports["math"][1] and "not callable" in reports["closed"][1]


def test_observations_leave_out_the_name_of_the_module_only() -> None:
    assert plain({"same_subjects.x": ["same_subjects", 1]}) == {"bare_subjects.x": ["bare_subjects", 1]}
