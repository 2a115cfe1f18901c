"""Attach threads and thread-pool work to the recorded call that started the thread or submitted the work.

A thread of Python begins with an empty context, and a worker of a pool works for everybody. A call therefore travels
with the start of a thread, and with each piece of work::

    def rollout(task):
        Thread(target=solve, args=(task,)).start()   # the calls of ``solve`` are in the trajectory
        pool.submit(score, task)                     # so are the calls of ``score``, in whatever thread

The call travels alone: the context of a thread has nothing else of the starter. ``asyncio.to_thread`` takes the context
along, ``loop.run_in_executor`` does not, and veRL's reward managers run ``compute_score`` through ``run_in_executor``.
"""

from __future__ import annotations

import _thread
import functools
import threading
from collections.abc import Callable
from contextvars import Context
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from autotrace.adapters.hooks import Changed, changing
from autotrace.patch import adapting, engine
from autotrace.record.context import OpenCall, current, current_call, made_current
from autotrace.record.object_fields import member

_STARTS = ((threading, "_start_joinable_thread"), (threading, "_start_new_thread"), (_thread, "start_new_thread"))
"""Functions that start a thread, and where callers find each. ``Thread.start`` calls the first since Python 3.13, the
second before."""
_POOLS = {
    "concurrent.futures.thread": ("ThreadPoolExecutor", "submit"),
    "multiprocessing.pool": ("ThreadPool", "apply_async", "_map_async", "imap", "imap_unordered"),
    "gevent.threadpool": ("ThreadPool", "spawn"),
}
"""Maps the module of a pool to the class, and the methods that take work. The threads of a pool begin with nothing,
because the work brings calls along."""
_WORK = ("func", "callback", "error_callback")
"""Parameters that hold work, besides the first."""


def install() -> None:
    """Make calls travel. Idempotent."""
    adapting.when_imported("threading", _follow_starts)
    for module in _POOLS:
        adapting.when_imported(module, _follow_pool)


def _follow_starts(_: ModuleType) -> None:
    if not engine.settings().follow_threads:
        return
    for owner, name in _STARTS:
        original = vars(owner).get(name)
        if type(original) is BuiltinFunctionType:  # another function, such as gevent's, starts no thread
            adapting.put(owner, name, changing(original, "thread start", _started))


def _started(*args: Any, **kwargs: Any) -> Changed:
    call = current_call()
    if call is not None and args and callable(args[0]) and not _is_of_a_pool(args[0]):
        args = (functools.partial(holding(call).run, args[0]), *args[1:])
    return args, kwargs


def holding(call: OpenCall) -> Context:
    """Return a context in which ``call`` is current, and nothing else is set."""
    context = Context()
    context.run(current.set, call)
    return context


def _is_of_a_pool(function: Any) -> bool:
    """Tell whether a thread that begins with ``function`` belongs to a pool."""
    if type(function) is not MethodType:
        return False
    begins = (function.__func__, member(function.__self__, "_target"))
    return any(type(each) is FunctionType and each.__module__ in _POOLS for each in begins)


def _follow_pool(module: ModuleType) -> None:
    name, *methods = _POOLS[module.__name__]
    pool = vars(module)[name]
    for method in methods:
        adapting.put(pool, method, changing(getattr(pool, method), "thread pool", _taken))


def _taken(pool: Any, /, *args: Any, **kwargs: Any) -> Changed:
    call = current_call()
    if call is not None:
        inside = functools.partial(functools.partial, _inside, call)
        work = {name: inside(kwargs[name]) for name in _WORK if callable(kwargs.get(name))}
        args, kwargs = (*map(inside, args[:1]), *args[1:]), {**kwargs, **work}
    return (pool, *args), kwargs


def _inside(call: OpenCall, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    with made_current(call):
        return function(*args, **kwargs)
