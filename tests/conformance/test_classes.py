"""Classes of every make: how they are created is not disturbed, what they do with their methods keeps working."""

from __future__ import annotations

import abc
import asyncio
import copy
import gc
import json
import pickle
import sys
import weakref
from typing import Any

import pytest

from autotrace.config.plan import Target
from autotrace.spool.records import Open

from .conftest import Host

BASE = """
import abc
class Loop(abc.ABC):
    @abc.abstractmethod
    def run(self, x):
        return ["base", x]
    @classmethod
    def make(cls, x):
        return [cls.__name__, x]
    @staticmethod
    def tool(x):
        return x
    def stream(self, x):
        yield from range(x)
"""


def subclasses(*names: str) -> list[Target]:
    return [Target(name, (f"loops.Loop.{name}",), subclasses=True) for name in names]


def test_overrides_in_classes_defined_later_are_recorded_once_a_call(host: Host) -> None:
    host.watch(*subclasses("run", "make", "stream"))
    host.load("loops", BASE)
    module = host.load(
        "mine",
        """
from loops import Loop
class Mine(Loop):
    def run(self, x):
        return [*super().run(x), "mine"]
    @classmethod
    def make(cls, x):
        return [*super().make(x), "mine"]
    def stream(self, x):
        yield from super().stream(x)
        yield "mine"
class Deeper(Mine):
    def run(self, x):
        return [*super().run(x), "deeper"]
    @classmethod
    def make(cls, x):
        return [*super().make(x), "deeper"]
class Sibling(Loop):
    def run(self, x):
        return Deeper().run(x)
""",
    )
    assert module.Deeper().run(1) == ["base", 1, "mine", "deeper"]
    assert module.Deeper.make(1) == ["Deeper", 1, "mine", "deeper"]
    assert list(module.Mine().stream(2)) == [0, 1, "mine"]
    assert host.opened() == ["Deeper.run", "Deeper.make", "Mine.stream"]
    assert module.Sibling().run(1) == ["base", 1, "mine", "deeper"]
    assert host.opened()[3:] == ["Sibling.run", "Deeper.run"]


GLOB_BASE = """
class Loop:
    def run(self, x): return ["base", *self.step(x)]
    def step(self, x): return [x]
    def skipped(self): return 1
"""
GLOB_MINE = """
from loops import Loop
class Mine(Loop):
    def run(self, x): return ["mine", *super().run(x)]
    def step(self, x): return [*super().step(x), "mine"]
    def skipped(self): return super().skipped()
    def own(self): return 1
"""


@pytest.mark.parametrize("names", [("loops.Loop.*",), ("loops.**",)], ids=["class", "package"])
@pytest.mark.parametrize("late", [False, True], ids=["before", "after the classes"])
def test_a_glob_with_subclasses_takes_the_overrides_too(host: Host, names: tuple[str, ...], late: bool) -> None:
    target = Target("all", names, subclasses=True, without=("*.skipped",))
    if not late:
        host.watch(target)
    host.load("loops", GLOB_BASE)
    module = host.load("mine", GLOB_MINE)
    if late:
        host.watch(target)
    assert module.Mine().run(1) == ["mine", "base", 1, "mine"] and module.Mine().skipped() == module.Mine().own() == 1
    assert host.opened() == ["Mine.run", "Mine.step"]
    assert module.Loop().run(1) == ["base", 1]
    assert host.opened()[2:] == ["Loop.run", "Loop.step"]


def test_a_glob_below_a_package_is_bound_where_its_class_is(host: Host) -> None:
    """The modules above it are looked at too, and nothing is missing there (``host`` fails if a fault was counted)."""
    host.write("pkg.__init__", "value = 3\n")
    host.write("pkg.sub.__init__", "")
    host.watch("pkg.sub.mod.Loop.*", "pkg.value.Loop.*")
    module = host.load("pkg.sub.mod", GLOB_BASE)
    assert module.Loop().run(1) == ["base", 1] and host.opened() == ["Loop.run", "Loop.step"]
    assert {state for state, _ in host.reports().values()} == {"bound"}


USED = ("weakref.WeakKeyDictionary.get", "threading.Event.set", "collections.Counter.update", "os.path.join", "os.walk")


def test_what_recording_itself_uses_is_refused(host: Host) -> None:
    import collections
    import os
    import threading

    host.watch(*USED, "threading.*", "msgspec.**", "plain.f", "plain.join")
    module = host.load("plain", "from os.path import join\ndef f(x): return join('a', x)\n")
    weakref.WeakKeyDictionary().get(module.f)
    threading.Event().set()
    collections.Counter().update("a")
    assert os.path.join("a", "b") == "a/b" and module.f("b") == "a/b"
    assert host.opened() == ["f", "join"]
    refused = {place: reason for place, (state, reason) in host.reports().items() if state == "refused"}
    assert {place.replace(":", ".") for place in refused} >= set(USED[:3]) | {"os.walk"}
    reason = "autotrace uses os to record a call, which would record itself: name the function that calls it"
    assert refused["os:walk"] == reason
    assert {report[0] for place, report in host.reports().items() if not place.startswith("plain")} == {"refused"}


def test_an_override_that_the_base_method_calls_is_no_super_call(host: Host) -> None:
    host.watch(*subclasses("run"))
    module = host.load(
        "loops",
        BASE
        + """
class Outer(Loop):
    def run(self, x): return self.run(x - 1) if x else "end"
class Inner(Outer):
    def run(self, x): return Outer.run(self, x) if x > 1 else "end"
""",
    )
    assert module.Outer.run(module.Inner(), 2) == "end"
    assert host.opened() == ["Outer.run", "Inner.run"]


def test_an_override_nobody_asked_for_is_reported(host: Host) -> None:
    host.watch("loops.Loop.run")
    module = host.load("loops", BASE + "class Mine(Loop):\n    def run(self, x): return x\n")
    assert module.Mine().run(1) == 1 and not host.opened()
    assert host.reports()["loops:Mine.run"][0] == "shadowed"


def test_an_override_that_is_a_target_itself_is_not_reported_as_shadowing(host: Host) -> None:
    host.watch("loops.Loop.run", "loops.Mine.run")
    module = host.load("loops", BASE + "class Mine(Loop):\n    def run(self, x): return x\n")
    assert module.Mine().run(1) == 1 and host.opened() == ["Mine.run"]
    assert host.reports()["loops:Mine.run"][0] == "bound"


METACLASS = """
asked = []
def counting(name):
    def method(cls, *args):
        asked.append(name)
        return getattr(type, name)(cls, *args)
    return method
class OfMetaclasses(type):
    __hash__, __eq__ = counting("__hash__"), counting("__eq__")
class Counting(type, metaclass=OfMetaclasses):
    __getattribute__, __hash__, __eq__ = counting("__getattribute__"), counting("__hash__"), counting("__eq__")
    __instancecheck__, __subclasscheck__ = counting("__instancecheck__"), counting("__subclasscheck__")
    __subclasses__, __dir__ = counting("__subclasses__"), counting("__dir__")
class Base(metaclass=Counting):
    def run(self, x): return x
"""
OF_THE_METACLASS = """
from metaclasses import Base, asked
class Loop(Base):
    def step(self, x): return x
asked.clear()
class Mine(Loop):
    def own(self, x): return x
class Other(Base): pass
created = list(asked)
class Override(Loop):
    def step(self, x): return ["override", x]
"""


@pytest.mark.parametrize("others", [(), ("mine.Mine.absent", "mine.Hidden.*"), ("mine.Loop.absent", "mine.*.absent")])
def test_a_class_that_is_created_is_not_asked_and_nor_is_its_metaclass(host: Host, others: tuple[str, ...]) -> None:
    host.watch("metaclasses.Base.run", Target("step", ("mine.Loop.step",), subclasses=True), *others)
    host.load("metaclasses", METACLASS)
    module = host.load("mine", OF_THE_METACLASS)
    assert module.created == []
    assert module.Override().step(1) == ["override", 1] and module.Mine().run(2) == 2
    assert host.opened() == ["Override.step", "Base.run"]


def test_abstract_methods_stay_abstract(host: Host) -> None:
    host.watch(*subclasses("run"))
    module = host.load("loops", BASE + "class Half(Loop): ...\n")
    assert module.Loop.run.__isabstractmethod__ and module.Loop.__abstractmethods__ == {"run"}
    with pytest.raises(TypeError, match="abstract"):
        module.Half()


def test_a_class_made_in_a_function_is_collected_as_before(host: Host) -> None:
    host.watch(*subclasses("run"))
    module = host.load("loops", BASE)

    def make() -> Any:
        class Local(module.Loop):  # type: ignore[name-defined, misc]
            def run(self, x: int) -> Any:
                return super().run(x)

        Local().run(1)
        return weakref.ref(Local)

    seen = make()
    gc.collect()
    assert host.opened() == ["test_a_class_made_in_a_function_is_collected_as_before.<locals>.make.<locals>.Local.run"]
    gc.collect()
    assert seen() is None


def test_dataclasses(host: Host) -> None:
    host.watch("data.**")
    module = host.load(
        "data",
        """
from dataclasses import dataclass, field
@dataclass
class Plain:
    x: int = 1
    def double(self): return self.x * 2
@dataclass(frozen=True, slots=True)
class Slotted:
    x: int = 1
    def double(self): return self.x * 2
@dataclass
class Child(Plain):
    y: int = 2
    def double(self): return super().double() + self.y
""",
    )
    for made, value in ((module.Plain(), 2), (module.Slotted(), 2), (module.Child(), 4)):
        assert made.double() == value
        assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)
        assert pickle.loads(pickle.dumps(made.double))() == value
    assert not hasattr(module.Slotted(), "__dict__")
    assert set(host.opened()) == {"Plain.double", "Slotted.double", "Child.double"}


def test_attrs_classes_with_slots_and_super(host: Host) -> None:
    """attrs makes a second class and puts it into the closures of the methods it finds: ours have that cell too."""
    host.watch("data.**")
    module = host.load(
        "data",
        """
import attrs
@attrs.define
class Base:
    x: int = 1
    def double(self): return self.x * 2
@attrs.define
class Child(Base):
    y: int = 2
    def double(self): return super().double() + self.y
    @classmethod
    def make(cls): return __class__(3)
    @property
    def own(self): return super().double()
""",
    )
    assert module.Child().double() == 4 and type(module.Child.make()) is module.Child and module.Child().own == 2
    assert pickle.loads(pickle.dumps(module.Child())) == module.Child()
    assert host.opened() == ["Child.double", "Base.double", "Child.make", "Base.double"]


def test_enums_named_tuples_protocols_and_typed_dicts(host: Host) -> None:
    host.watch("data.**")
    module = host.load(
        "data",
        """
import enum, typing
class Colour(enum.Enum):
    RED = 1
    BLUE = 2
    def described(self): return f"{self.name} {self.value}"
    @classmethod
    def default(cls): return cls.RED
    @staticmethod
    def many(): return 2
class Bits(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    def both(self): return self | Bits.B
class Point(typing.NamedTuple):
    x: int
    y: int = 2
    def sum(self): return self.x + self.y
@typing.runtime_checkable
class Runs(typing.Protocol):
    def run(self, x): ...
class Runner:
    def run(self, x): return x
class Table(typing.TypedDict):
    x: int
T = typing.TypeVar("T")
class Box(typing.Generic[T]):
    def __init__(self, x: T): self.x = x
    def get(self) -> T: return self.x
""",
    )
    assert [colour.described() for colour in module.Colour] == ["RED 1", "BLUE 2"]
    assert module.Colour.default() is module.Colour.RED and module.Colour.many() == 2 and len(module.Colour) == 2
    assert module.Bits.A.both() == module.Bits.A | module.Bits.B
    assert module.Point(1).sum() == 3 and module.Point(1)._replace(y=5).sum() == 6
    assert isinstance(module.Runner(), module.Runs) and not isinstance(3, module.Runs)
    assert module.Box[int](3).get() == 3 and module.Table(x=1) == {"x": 1}
    assert pickle.loads(pickle.dumps(module.Colour.RED)) is module.Colour.RED
    assert host.opened().count("Colour.described") == 2


def test_functools_wrappers_that_are_not_functions_stay_what_they_are(host: Host) -> None:
    names = ("cached", "generic", "Thing.dispatched", "Thing.custom")
    host.watch("odd_tools.**", *(f"odd_tools.{name}" for name in names))
    module = host.load(
        "odd_tools",
        """
import functools
@functools.lru_cache
def cached(x): return object()
@functools.singledispatch
def generic(x): return "any"
@generic.register
def of_int(x: int): return "int"
class Custom:
    def __get__(self, instance, owner): return lambda: 7
class Thing:
    @functools.singledispatchmethod
    def dispatched(self, x): return "any"
    @dispatched.register
    def _(self, x: int): return "int"
    custom = Custom()
""",
    )
    assert module.cached(1) is module.cached(1) and module.cached.cache_info().hits == 1
    assert module.generic("x") == "any" and module.generic(1) == "int"
    assert module.generic.registry[int] and module.generic.dispatch(int)
    assert module.Thing().dispatched(1) == "int" and module.Thing().custom() == 7
    reports = {place.partition(":")[2]: report for place, report in host.reports().items()}
    assert reports["cached"] == ("bound", "in place, below functools.lru_cache: calls that it computes")
    assert reports["generic"] == ("bound", "in place") and reports["Thing.dispatched"] == ("bound", "in place")
    assert reports["Thing.custom"] == ("bound", "replaced (wrapt)")


def test_each_call_through_a_dispatcher_is_recorded_once_with_the_arguments_of_the_implementation(host: Host) -> None:
    """Implementations: plain, asynchronous, of a class, in C, registered after the first calls."""
    host.watch("dispatchers.function", "dispatchers.Thing.method", "dispatchers.Thing.of_class")
    module = host.load(
        "dispatchers",
        """
import functools
@functools.singledispatch
def function(x): return "any"
@function.register
def _(x: int, more, *, extra=0): return more, extra
@function.register
async def _(x: str): return x
function.register(bytes, len)
class Thing:
    @functools.singledispatchmethod
    def method(self, x): return "any"
    @method.register
    def _(self, x: int, more, *, extra=0): return more, extra
    @method.register
    async def of_text(self, text: str): return text
    @functools.singledispatchmethod
    @classmethod
    def of_class(cls, x): return "any"
    @of_class.register
    @classmethod
    def _(cls, number: int): return cls, number
""",
    )
    thing = module.Thing()
    for call in (module.function, thing.method):
        assert call(1.0) == "any" and call(1, 2, extra=3) == (2, 3) and asyncio.run(call("a")) == "a"
        call.register(list, lambda *a: a[-1])
        assert call([1]) == [1]
    assert module.function(b"ab") == 2 and module.Thing.of_class(1) == (module.Thing, 1)
    assert module.Thing.__dict__["method"].dispatcher.registry[int].__qualname__ == "Thing._"
    for _ in range(2):  # kept from the first call on; a call by another way is no call of the dispatcher
        thing.method.register(dict, staticmethod(json.dumps))
        assert thing.method({}) == json.dumps({}) == "{}" and asyncio.run(thing.of_text("a")) == "a"
    with pytest.raises(TypeError, match="positional argument"):
        thing.method(1)
    names = ["function"] * 4 + ["Thing.method"] * 4 + ["function", "Thing.of_class"] + ["Thing.method"] * 2
    assert host.opened() == names and host.statuses() == ["OK"] * 12
    inputs = [record.inputs for record in host.records(Open)]
    assert inputs[0] == inputs[4] == {"x": 1.0}
    assert inputs[1] == {"x": 1, "args": [2], "extra": 3} and inputs[5] == {"x": 1, "more": 2, "extra": 3}
    assert inputs[2] == {"x": "a"} and inputs[6] == {"text": "a"} and inputs[9] == {"number": 1}
    host.stop()
    thing.method.register(dict, lambda self, x: {})
    assert thing.method({}) == {} and asyncio.run(thing.method("a")) == "a"
    assert host.opened() == names


def test_a_metaclass_sees_the_frame_of_the_class_statement(host: Host) -> None:
    source = """
import sys
frames = []
class Meta(type):
    def __new__(mcls, name, bases, namespace):
        frame = sys._getframe(1)
        where = frame.f_globals["__name__"], frame.f_code.co_name, frame.f_lineno, frame.f_locals.get("here")
        frames.append(where)
        return super().__new__(mcls, name, bases, namespace)
class A(metaclass=Meta): ...
def make():
    here = "local"
    class B(A): ...
    return B
make()
def fails():
    class C(A, A): ...
"""
    bare = host.load("bare_meta", source)
    host.watch("same_meta.**")
    traced = host.load("same_meta", source)
    assert [("bare_meta", *where[1:]) for where in traced.frames] == bare.frames
    for module in (bare, traced):
        with pytest.raises(TypeError, match="duplicate base class"):
            module.fails()


def test_what_looks_at_its_caller_is_left_alone(host: Host) -> None:
    host.watch("frames.**", "frames.caller_name")
    module = host.load(
        "frames",
        """
import inspect, sys, warnings, logging
def caller_name(): return sys._getframe(1).f_code.co_name
def by_inspect(): return inspect.currentframe().f_back.f_code.co_name
def by_stack(): return inspect.stack()[1].function
def _helper(): return sys._getframe(2).f_code.co_name
def by_helper(): return _helper()
def own_name(): return sys._getframe().f_code.co_name
def ordinary(): return 1
""",
    )
    for name in ("caller_name", "by_inspect", "by_stack", "by_helper"):
        assert getattr(module, name)() == "test_what_looks_at_its_caller_is_left_alone"
        assert "caller" in host.reports()[f"frames:{name}"][1]
    assert module.own_name() == "own_name" and module.ordinary() == 1
    assert host.opened() == ["own_name", "ordinary"]


def test_a_class_decorator_that_decorates_the_methods(host: Host) -> None:
    """A method was wrapped when its class was created; what the decorator put around it is not wrapped again."""
    host.watch("decorated.C.run", "decorated.D.run")
    module = host.load(
        "decorated",
        """
import functools
def logged(cls):
    def around(method):
        @functools.wraps(method)
        def inner(self, *args): return ["logged", method(self, *args)]
        return inner
    cls.run = around(cls.run)
    return cls
@logged
class C:
    def run(self, x): return x
class Base:
    def run(self, x): return x
@logged
class D(Base): ...
""",
    )
    assert module.C().run(1) == module.D().run(1) == ["logged", 1]
    assert host.opened() == ["C.run", "Base.run"]


def test_names_for_one_function_stay_one_function(host: Host) -> None:
    host.watch("names.**")
    module = host.load(
        "names",
        """
import json
def first(x): return x
second = _third = first
class Thing:
    def method(self): return 1
    alias = method
    _private = method
    encoder = staticmethod(json.dumps)
""",
    )
    assert module.first is module.second is module._third
    assert module.Thing.method is module.Thing.alias is module.Thing._private
    assert pickle.loads(pickle.dumps(module._third)) is module.first
    assert pickle.loads(pickle.dumps(module.Thing.encoder)) is module.Thing.encoder


def test_a_glob_touches_nothing_that_is_private_excluded_or_from_elsewhere(host: Host) -> None:
    host.watch(Target("all", ("names.**",), without=("names.skipped", "names.Skipped.*")))
    host.load(
        "names",
        """
from os.path import join
from collections import OrderedDict
class Proxy:
    @property
    def __class__(self): raise RuntimeError("working outside of request context")
    def __getattr__(self, name): raise RuntimeError("working outside of request context")
proxy = Proxy()
def public(): ...
def _private(): ...
def skipped(): ...
class Skipped:
    def method(self): ...
class _Hidden:
    def method(self): ...
class Public:
    def __init__(self): ...
    def method(self): ...
    def _private(self): ...
    class Nested:
        def method(self): ...
""",
    )
    bound = {place for place, (state, _) in host.reports().items() if state == "bound"}
    assert bound == {"names:public", "names:Public.method", "names:Public.Nested.method"}


def test_an_instance_in_the_path_names_its_class(host: Host) -> None:
    host.watch("clients.client.get", "clients.Client.gett")
    host.load("clients", "class Client:\n    def get(self): ...\nclient = Client()\n")
    reports = host.reports()
    assert reports["clients:client.get"] == ("refused", "`client` is an instance: name its class, clients.Client.get")
    assert reports["clients:Client.gett"][0] == "pending"
    assert "did you mean `get`?" in reports["clients:Client.gett"][1]


def test_a_class_statement_costs_little_and_its_hook_goes_away(host: Host) -> None:
    import builtins

    before = builtins.__build_class__
    host.watch("nothing.**")
    assert builtins.__build_class__ is not before
    assert isinstance(abc.ABCMeta("Made", (), {}), abc.ABCMeta)
    host.stop()
    assert builtins.__build_class__ is before


if sys.version_info >= (3, 12):

    def test_type_parameters(host: Host) -> None:
        host.watch("generic.**")
        module = host.load(
            "generic",
            "def first[T](x: T) -> T: return x\nclass Box[T]:\n    def get[U](self, x: U) -> T | U: return x\n",
        )
        assert module.first(1) == 1 and module.Box[int]().get(2) == 2
        assert module.first.__type_params__[0].__name__ == "T" and host.opened() == ["first", "Box.get"]
