"""Give the text of every wrapper. ``template`` reads the text and gives each wrapper the original's parameters; nothing
imports this module.

The wrapper of a coroutine is ``plain`` with ``await`` before each call. Wrappers of the other kinds are ``generator``,
with parts of ``manager`` and ``asynchronous`` in the place of parts of the same name. The wrapper of a watched function
is ``watched``, with a part of ``armed``.

The drivers of coroutines and generators that a plain function returns (``drivers``) are compiled from the same text:
there ``function`` hands out the coroutine or generator, and ``begin`` makes the open call current again.

A wrapper holds nothing of autotrace between two runs. An exception of the host that arrives in autotrace's code (of a
signal handler, of another thread) must close the open call and reach the host. So everything after ``begin`` is inside
``try``. The code that closes the call raises nothing of autotrace's, and is called again after an interruption. An
exception that passes through loses the wrapper's entry in the traceback. A bare ``raise`` adds the entry again on
Python 3.10, so ``template`` writes another instruction there.
``template`` puts ``_autotrace_`` before each name, and replaces the comment ``before`` with the first statements.
"""

# mypy: ignore-errors
# ruff: noqa: F821, F841 - the parts of a wrapper stand in several functions

from __future__ import annotations

import sys

function = key = None


def plain(*args, **kwargs):
    # before
    calls = sys.modules.get("autotrace.record.calls")
    call = None
    try:
        if calls is not None:
            call = calls.begin(function, key, args, kwargs)
        if call is None:
            return function(*args, **kwargs)
        result = function(*args, **kwargs)
        return calls.end(call, result)
    except BaseException as error:
        if call is not None:
            try:
                calls.fail(call, error)
            except BaseException as again:
                calls.fail(call, again)
                raise
        if calls is not None:
            calls.without_frame(error)
        raise


# A function that is only watched: nothing happens unless it raises. Of a coroutine the call is awaited, and a generator
# yields from it. ``armed`` is the same once it has raised: that it returned then means that another try went well.
def watched(*args, **kwargs):
    # before
    try:
        # part result
        return function(*args, **kwargs)
        # end
    except BaseException as error:
        calls = sys.modules.get("autotrace.record.calls")
        if calls is not None:
            calls.raised(function, error)
            calls.without_frame(error)
        raise


def armed(*args, **kwargs):
    # part result
    result = function(*args, **kwargs)
    calls = sys.modules.get("autotrace.record.calls")
    if calls is not None:
        calls.returned(function)
    return result
    # end


# A suspended wrapper keeps no item alive: a yielded item is popped from a list, and a sent item is dropped at once.
# An exception that is thrown in is passed on outside the ``except``: inside, the exception would become the
# ``__context__`` of later exceptions of the original. The same holds for GeneratorExit, which the original may answer
# with a value or an error, and for an exception that the host raises while an item passes through the wrapper.
# The call is current while the generator runs, never across a ``yield``: a current call would leak into the caller.
# ``final`` tells whether an item is the final item: then the call belongs to an engine, has many chunks, and is not
# made current again for each chunk. False: items are only counted. None: ``calls.item`` looks at items. The wrapper
# keeps the next ``left`` short texts or numbers (of type ``kind``), because ``calls.item`` costs as much as the rest.
def generator(*args, **kwargs):
    # before
    calls = sys.modules.get("autotrace.record.calls")
    call = current = final = sent = left = keep = kind = size = block = None
    thrown = []
    item = []
    try:
        if calls is not None:
            call = calls.begin(function, key, args, kwargs)
        # part start
        if call is None:
            return (yield from function(*args, **kwargs))
        current = calls.current
        type_of = calls.type_of
        inner = function(*args, **kwargs)
        # end
        try:
            while True:
                # part step
                if thrown:
                    value = inner.throw(thrown.pop())
                else:
                    value = inner.send(sent)
                    sent = None
                # end
                try:
                    # part item
                    if left and type_of(value) is kind and size(value) <= 512 and current.get() is call:
                        current.set(call.above)
                        call.above = None
                        left -= 1
                        keep(value)
                        sent = yield value
                    else:
                        if final:
                            call.items += 1
                            try:
                                last = final(value)
                            except Exception as error:
                                last = calls.unread(error)
                            if last:
                                calls.close(call, value)
                                call = final = None
                        elif final is False and current.get() is call:
                            current.set(call.above)
                            call.above = None
                            call.items += 1
                        elif call is not None:
                            call, final, (left, keep, kind, size) = calls.item(call, value)
                        item.append(value)
                        value = None
                        sent = yield item.pop()
                    # end
                except BaseException as error:
                    thrown.append(error)
                    if calls is not None:
                        calls.without_frame(error)
                    value = None
                    item.clear()
                # part resume
                if not final and call is not None:
                    above = current.get()
                    if above is not call:
                        call.above = above
                        current.set(call)
                    above = None
                # end
        # part over
        except StopIteration as stop:
            if call is not None:
                calls.exhausted(call, stop.value)
            return stop.value
        # end
    except BaseException as error:
        if call is not None:
            try:
                calls.ended(call, error)
            except BaseException as again:
                calls.ended(call, again)
                raise
        if calls is not None:
            calls.without_frame(error)
        raise


# The generator of a context manager, whose one item is what ``with`` binds. The call begins when the ``with`` is
# entered, and is current in its body too (``calls.entered``, ``calls.resumed``).
def manager(*args, **kwargs):
    # part item
    if call is not None:
        block = calls.entered(call, value)
    item.append(value)
    value = None
    sent = yield item.pop()
    # end
    # part resume
    if call is not None:
        block = calls.resumed(call, block)
    # end


# No reference to the inner generator but this frame's own: SGLang's holds its weight-update lock while suspended, and
# whoever keeps it blocks weight sync for ever. The event loop must not know it either (its hooks are off for the first
# step): ``loop.shutdown_asyncgens`` would close both at once, and one of them would be "already running". A closed loop
# does nothing for a generator that is dropped. Python closes the inner one then, unless that has a finalizer, even one
# without an effect (``sys.getrefcount``).
async def asynchronous(*args, **kwargs):
    # part start
    if call is not None:
        current = calls.current
        type_of = calls.type_of
    inner = function(*args, **kwargs)
    hooks = sys.get_asyncgen_hooks()
    try:
        drops = None if hooks.finalizer is None else sys.getrefcount if call is None else calls.dropped(call)
        sys.set_asyncgen_hooks(None, drops)
        step = inner.__anext__()
    finally:
        sys.set_asyncgen_hooks(*hooks)
    # end
    try:
        while True:
            # part step
            if thrown:
                value = await inner.athrow(thrown.pop())
            elif sent is not None:
                value = await inner.asend(sent)
                sent = None
            elif step is not None:
                value = await step
                step = None
            else:  # ``async for`` is the cheapest way to take a step
                async for value in inner:  # noqa: B007 - it is used below
                    break
                else:
                    break
            # end
    # part over
    except StopAsyncIteration:
        pass
    if call is not None:
        calls.exhausted(call, None)
    # end
