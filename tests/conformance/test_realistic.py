"""Programs that do with functions what programs do: each gives the same bare and recorded."""

from __future__ import annotations

import re
import sys

import pytest

from .conftest import Host

MANY = {count: ", ".join(f"a{number}" for number in range(count)) for count in (64, 65, 100, 255, 256, 257, 300)}
LONG = "\n".join(f"    x{number} = x + {number}" for number in range(3000))

PROGRAMS: dict[str, tuple[str, str, int]] = {
    "restricted builtins": (
        "f fails later generated",
        "def _make(text, **names):\n"
        "    space = {'__builtins__': {}, '__name__': __name__, **names}\n"
        "    exec(text, space)\n"
        "    return space\n"
        "f = _make('def f(x): return [x]')['f']\n"
        "fails = _make('def fails(x): raise error(x)', error=KeyError)['fails']\n"
        "later = _make('async def later(x): raise error(x)', error=KeyError)['later']\n"
        "generated = _make('def generated(x):\\n yield x\\n yield [x]')['generated']\n"
        "def go(x):\n"
        "    import asyncio\n"
        "    out = [f(x), list(generated(x))]\n"
        "    for call in (lambda: fails(x), lambda: asyncio.run(later(x))):\n"
        "        try: call()\n"
        "        except BaseException as error: out.append(repr(error))\n"
        "    return out\n",
        4,
    ),
    "globals with the names of builtins": (
        "f generated async_generated later",
        "BaseException = StopIteration = StopAsyncIteration = Exception = None\n"
        "def f(x):\n    raise KeyError(x)\n"
        "def generated(x):\n    got = yield x\n    return [got]\n"
        "async def async_generated(x):\n    yield x\n    raise KeyError(x)\n"
        "async def later(x): raise KeyError(x)\n"
        "async def collected(x): return [item async for item in async_generated(x)]\n"
        "def delegated(x): return (yield from generated(x))\n"
        "def go(x):\n"
        "    import asyncio\n"
        "    out = [list(delegated(x))]\n"
        "    for call in (lambda: f(x), lambda: asyncio.run(collected(x)), lambda: asyncio.run(later(x))):\n"
        "        try: call()\n"
        "        except KeyError as error: out.append(repr(error))\n"
        "    return out\n",
        4,
    ),
    "no module": (
        "f",
        "space = {}\nexec('def f(x): return [x, __builtins__ is not None]', space)\nf = space['f']\n"
        "def go(x): return f(x), f.__module__\n",
        1,
    ),
    "another module's name": (
        "f",
        "def f(x): return [x]\nf.__module__ = 'elsewhere.not_there'\nf.__qualname__ = 'Other.g'\nf.__name__ = 'g'\n"
        "def go(x): return f(x), f.__name__, f.__qualname__, f.__module__\n",
        1,
    ),
    **{
        f"{count} parameters": (  # Python loads a variable after the 64th, and after the 256th, by other instructions
            "f g",
            f"def f({MANY[count]}): return a0 + a{count - 1}\ndef g(*, {MANY[count]}): return a0 + a{count - 1}\n"
            f"def go(x): return f(*range({count})), g(**{{f'a{{n}}': n for n in range({count})}})\n",
            2,
        )
        for count in MANY
    },
    "3000 lines": ("f", f"def f(x):\n{LONG}\n    return x2999\ndef go(x): return f(x)\n", 1),
    "names no identifier has": (
        "f",
        "from types import FunctionType\n"
        "def f(a, *, b): return [a, b]\n"
        "f.__code__ = f.__code__.replace(co_varnames=('class', 'not a name'))\n"
        "def go(x): return f(x, **{'not a name': 2}), f(**{'class': 1, 'not a name': 2})\n",
        2,
    ),
    "wraps afterwards": (
        "f",
        "import functools, inspect\ndef f(x, y=1): return [x, y]\n"
        "def go(x):\n"
        "    @functools.wraps(f)\n"
        "    def g(*a): return f(*a)\n"
        "    return g(x), inspect.signature(g), inspect.unwrap(g) is f, inspect.getsource(g)\n",
        1,
    ),
    "a declared signature": (
        "f",
        "import inspect\ndef f(*a, **k): return [a, k]\n"
        "f.__signature__ = inspect.Signature([inspect.Parameter('x', inspect.Parameter.POSITIONAL_OR_KEYWORD)])\n"
        "def go(x): return f(x, y=2), inspect.signature(f)\n",
        1,
    ),
    "tenacity's kind of retry": (
        "f",
        "import functools\n"
        "def retry(f):\n"
        "    @functools.wraps(f)\n"
        "    def wrapped(*a):\n"
        "        wrapped.tries = 0\n"
        "        while True:\n"
        "            wrapped.tries += 1\n"
        "            try: return f(*a)\n"
        "            except KeyError:\n"
        "                if wrapped.tries == 3: raise\n"
        "    wrapped.retry = wrapped\n"
        "    return wrapped\n"
        "left = [1, 2]\n"
        "@retry\ndef f(x):\n    if left: raise KeyError(left.pop())\n    return [x]\n"
        "def go(x): return f(x), f.tries, f.retry is f\n",
        1,
    ),
    "wrapt": (
        "f A.m",
        "import inspect, wrapt\n"
        "@wrapt.decorator\ndef passed(wrapped, instance, args, kwargs): return wrapped(*args, **kwargs)\n"
        "@passed\ndef f(x): return [x]\n"
        "class A:\n    @passed\n    def m(self, x): return [x]\n"
        "def go(x): return f(x), A().m(x), inspect.signature(f), isinstance(f, wrapt.FunctionWrapper)\n",
        2,
    ),
    "descriptors of its own": (
        "A.m A.also A.dispatched",
        "import functools\n"
        "class hybrid:\n"
        "    def __init__(self, f): self.f = f\n"
        "    def __get__(self, instance, owner): return self.f(instance or owner)\n"
        "    def __set_name__(self, owner, name): self.name = name\n"
        "class A:\n"
        "    @hybrid\n    def m(self): return [1]\n"
        "    @functools.lru_cache(None)\n    def also(self, x): return x\n"
        "    @functools.singledispatchmethod\n    def dispatched(self, x): return 'any'\n"
        "    @dispatched.register\n    def _(self, x: str): return 'text'\n"
        "def go(x):\n    a = A()\n    return a.m, A.m, a.also(x), a.also(x), a.dispatched(x), a.dispatched('a')\n",
        5,
    ),
    "special methods": (
        "A.__init__ A.__new__ A.__eq__ A.__hash__ A.__getattr__ A.__call__ A.__enter__ A.__exit__ A.__init_subclass__"
        " A.__class_getitem__ A.__iter__ A.__len__ A.__del__ A.__repr__",
        "import gc\n"
        "class A:\n"
        "    gone = []\n"
        "    def __new__(cls, x): return super().__new__(cls)\n"
        "    def __init__(self, x): self.x = x\n"
        "    def __eq__(self, other): return type(other) is A and self.x == other.x\n"
        "    def __hash__(self): return hash(self.x)\n"
        "    def __getattr__(self, name):\n"
        "        if name.startswith('_'): raise AttributeError(name)\n"
        "        return name\n"
        "    def __call__(self, y): return [self.x, y]\n"
        "    def __enter__(self): return self\n"
        "    def __exit__(self, *error): return True\n"
        "    def __init_subclass__(cls, **names): cls.names = names\n"
        "    def __class_getitem__(cls, item): return cls, item\n"
        "    def __iter__(self): yield self.x\n"
        "    def __len__(self): return 3\n"
        "    def __del__(self): self.gone.append(1)\n"
        "    def __repr__(self): return f'A({self.x})'\n"
        "def go(x):\n"
        "    class B(A, n=1): pass\n"
        "    a = A(x)\n"
        "    with a: raise KeyError\n"
        "    out = [a == A(x), {a: 1}[A(x)], a.other, a(2), B.names, A[3][1], list(a), len(a), repr(a)]\n"
        "    del a\n    gc.collect()\n    return out, len(A.gone)\n",
        0,
    ),
    "functions in an enumeration": (
        "f E.method",
        "import enum, functools\ndef f(x): return [x]\n"
        "class E(enum.Enum):\n"
        "    A = functools.partial(f)\n    B = 2\n"
        "    def method(self): return self.value\n"
        "    @classmethod\n    def made(cls, x): return cls(x)\n"
        "def go(x): return E.B.method(), E.made(2), list(E)[-1], f(x)\n",
        2,
    ),
    "abstract classes and protocols": (
        "Base.run Base.also Child.run P.speak",
        "import abc, typing\n"
        "class Base(abc.ABC):\n"
        "    @abc.abstractmethod\n    def run(self, x): return [x]\n"
        "    @property\n    @abc.abstractmethod\n    def also(self): return 1\n"
        "class Child(Base):\n    also = 2\n    def run(self, x): return super().run(x) + [1]\n"
        "@typing.runtime_checkable\nclass P(typing.Protocol):\n    def speak(self): return 'default'\n"
        "class Says(P): pass\n"
        "def go(x):\n"
        "    try: Base()\n    except TypeError as error: refused = str(error)\n"
        "    return Child().run(x), refused, sorted(Base.__abstractmethods__), isinstance(Says(), P), Says().speak()\n",
        3,
    ),
    "a nonlocal and a closure that changes": (
        "add",
        "def count():\n    total = 0\n    def add(x):\n        nonlocal total\n        total += x\n"
        "        return total\n    return add\n"
        "add = count()\ndef go(x): return add(x), add(x), add.__closure__[0].cell_contents\n",
        2,
    ),
    "a generator function in a thread, closed in another": (
        "f",
        "import threading\n"
        "def f(x):\n"
        "    try:\n        yield x\n        yield x\n    finally:\n        out.append('closed')\n"
        "out = []\n"
        "def go(x):\n"
        "    items = f(x)\n    out.append(next(items))\n"
        "    thread = threading.Thread(target=items.close); thread.start(); thread.join()\n    return list(out)\n",
        1,
    ),
    "reloaded": (
        "f",
        "import importlib, sys\ndef f(x): return [x]\n"
        "def go(x):\n"
        "    before = f\n"
        "    again = importlib.reload(sys.modules[__name__])\n"
        "    old = before(x)\n"
        "    before.__code__ = again.f.__code__\n"
        "    return old, again.f(x), before(x), again.f is before\n",
        3,
    ),
    "autoreload": (
        "f",
        "import importlib, sys\ndef f(x, y=1): return [x, y]\n"
        "def go(x):\n"
        "    held = {'f': f}\n"
        "    new = importlib.reload(sys.modules[__name__]).f\n"
        "    for name in ('__code__', '__defaults__', '__doc__', '__dict__'):\n"
        "        setattr(held['f'], name, getattr(new, name))\n"
        "    return held['f'](x), new(x)\n",
        2,
    ),
    "its own caller of itself": (
        "f",
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)\ndef go(x): return f(300)\n",
        301,
    ),
    "one function in two classes": (
        "A.m B.n",
        "def shared(self, x): return [type(self).__name__, x]\nclass A:\n    m = shared\nclass B:\n    n = shared\n"
        "def go(x): return A().m(x), B().n(x), A.m is B.n\n",
        2,
    ),
    "a future's callback and a weak method": (
        "A.m",
        "import weakref\nclass A:\n    def m(self, x): return [x]\n"
        "def go(x):\n    a = A()\n    method = weakref.WeakMethod(a.m)\n    first = method()(x)\n    del a\n"
        "    return first, method()\n",
        1,
    ),
    "compared and kept in sets": (
        "f A.m",
        "class A:\n    def m(self): return 1\ndef f(x): return [x]\n"
        "KEPT = {f, A.m}\nTABLE = {f: 'f', A.m: 'm', f.__code__: 'code'}\n"
        "def go(x):\n    codes = f.__code__ == f.__code__, hash(f.__code__) == hash(f.__code__)\n"
        "    return f in KEPT, A.m in KEPT, TABLE[f], A().m == A().m, codes, f(x)\n",
        1,
    ),
    "exec in its frame": (
        "f",
        "def f(x):\n    y = 2\n    exec('z = x + y', globals(), locals_ := dict(locals()))\n"
        "    return sorted(locals()), eval('x + y'), locals_['z'], vars()['y'], dir()\ndef go(x): return f(x)\n",
        1,
    ),
    "raises in its caller's handler": (
        "f g",
        "import sys, traceback\n"
        "def f(x): return sys.exc_info()[0], traceback.format_exc()\n"
        "def g(x): raise\n"
        "def go(x):\n"
        "    out = [f(x)]\n"
        "    try:\n        raise KeyError(x)\n"
        "    except KeyError:\n"
        "        out += [str(f(x)[0])]\n"
        "        try: g(x)\n        except KeyError as error: out.append(repr(error))\n"
        "    try: g(x)\n    except RuntimeError as error: out.append(repr(error))\n"
        "    return out\n",
        4,
    ),
    "asyncio's own looks": (
        "f g",
        "import asyncio, inspect\nasync def f(x):\n    await asyncio.sleep(0)\n    return [x]\n"
        "async def g(x):\n    async with asyncio.timeout(5) if hasattr(asyncio, 'timeout') else asyncio.Lock():\n"
        "        return await asyncio.gather(f(x), asyncio.create_task(f(x)), asyncio.shield(f(x)))\n"
        "def go(x): return asyncio.run(g(x)), asyncio.iscoroutinefunction(f), inspect.iscoroutinefunction(f)\n",
        4,
    ),
    "beartype and typeguard": (
        "f g A.m",
        "import beartype, typeguard\n"
        "@beartype.beartype\ndef f(x: int) -> list: return [x]\n"
        "@typeguard.typechecked\ndef g(x: int) -> list: return [x]\n"
        "@beartype.beartype\nclass A:\n    def m(self, x: int) -> list: return [x]\n"
        "def go(x):\n"
        "    out = [f(x), g(x), A().m(x)]\n"
        "    for call in (f, g, A().m, beartype.beartype(h), typeguard.typechecked(h)):\n"
        "        try: call('a')\n        except Exception as error: out.append(type(error).__name__)\n"
        "    return out\n"
        "def h(x: int) -> list: return [x]\n",
        5,
    ),
    "doctest": (
        "f",
        "import doctest, sys\n"
        "def f(x):\n    '''\n    >>> f(1)\n    [1]\n    >>> f()\n    Traceback (most recent call last):\n"
        "    TypeError: f() missing 1 required positional argument: 'x'\n    '''\n    return [x]\n"
        "def go(x):\n"
        "    found = doctest.DocTestFinder().find(f)\n"
        "    return doctest.testmod(sys.modules[__name__]), [(test.lineno, len(test.examples)) for test in found]\n",
        1,
    ),
    "dill": (
        "f g A.m",
        "import dill\ndef f(x, y=1): return [x, y]\ng = (lambda n: lambda x: [x, n])(5)\n"
        "class A:\n    def m(self, x): return [x]\n"
        "def go(x):\n"
        "    by_value = [dill.loads(dill.dumps(one, byref=False, recurse=True)) for one in (f, g, A().m)]\n"
        "    return [one(x) for one in by_value], dill.loads(dill.dumps(f)) is f, dill.source.getsource(f)\n",
        3,
    ),
    "joblib's pool and memory": (
        "f",
        "import joblib, tempfile\ndef f(x): return [x]\n"
        "def go(x):\n"
        "    with joblib.parallel_config('threading', n_jobs=2):\n"
        "        results = joblib.Parallel()(joblib.delayed(f)(n) for n in range(3))\n"
        "    with tempfile.TemporaryDirectory() as folder:\n"
        "        remembered = joblib.Memory(folder, verbose=0).cache(f)\n"
        "        return results, remembered(x), remembered(x), remembered.check_call_in_cache(x)\n",
        4,
    ),
}
if sys.version_info >= (3, 12):
    PROGRAMS["type parameters"] = (
        "f A.m",
        "import inspect, typing\ndef f[T: int](x: T) -> list[T]: return [x, T.__name__]\n"
        "class A[T]:\n    def m[S](self, x: S, y: T) -> S: return [x, S.__name__, T.__name__]\n"
        "def go(x): return f(x), A().m(x, 1), f.__type_params__, typing.get_type_hints(f)['x'], inspect.getsource(f)\n",
        2,
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_gives_the_same(host: Host, program: str) -> None:
    same(host, *PROGRAMS[program])


def same(host: Host, names: str, source: str, calls: int) -> None:
    """``go`` of ``source`` gives the same, and opens ``calls`` calls; 0: any number."""
    bare = repr(host.load("real_bare", source).go(3))
    host.watch(*(f"real_same.{name}" for name in names.split()))
    module = host.load("real_same", source)
    got = repr(module.go(3)).replace("real_same", "real_bare")
    assert _plain(got) == _plain(bare)
    if calls > 0:
        assert len(host.opened()) == calls, (host.opened(), host.reports())


def _plain(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)
