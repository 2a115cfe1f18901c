"""TRL: what its trainer is given by its user, and what no list could name: tools, methods of environments and reward
functions. They are recorded while the trainer uses them, tools in the trajectory of the row that asked.

Read in the wheels of TRL 0.26 to 1.16. What is not as expected is left alone.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from autotrace.patch import adapting, engine
from autotrace.record import context, faults, rows

TOOLS = "trl tools"
REWARDS = "trl reward functions"
"""Keys of the functions in reports."""

_ROW = "idx_with_tool"
"""What the loop over tool calls calls the row's number (0.26, where all rows share one table of tools)."""


def watch(module: ModuleType) -> None:
    """Have the functions recorded that the trainer of ``module`` is given. Called once it is imported."""
    _around(module.GRPOTrainer, "_tool_call_loop", _with_tools)
    _around(module.GRPOTrainer, "_calculate_rewards", _with_rewards)


def _around(owner: type, name: str, enter: Callable[[Any], Callable[[], None] | None]) -> None:
    """Have ``enter(self)`` called before each call of ``owner.name``, and after it what that returned, if anything."""
    original = vars(owner).get(name)
    if not inspect.isfunction(original):
        return

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        leave = None
        try:
            leave = enter(self)
        except Exception as error:
            faults.failed(f"trl:{name}", error)
        try:
            return original(self, *args, **kwargs)
        finally:
            if leave is not None:
                leave()

    adapting.put(owner, name, method)


# -- tools ------------------------------------------------------------------------------------------------------------


def _with_tools(trainer: Any) -> Callable[[], None]:
    """Record the tools in the tables of ``trainer`` until the function that is returned is called."""
    tables: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = []
    for kind in ("_sync_tool_dict", "_async_tool_dict", "_tool_dict"):
        of_rows = getattr(trainer, f"{kind}s", None)
        shared = getattr(trainer, kind, None)
        found: list[tuple[int | None, Any]] = [*enumerate(of_rows)] if of_rows else [(None, shared)]
        for number, table in found:
            if type(table) is dict and table:
                traced = {name: _in_row(number, tool, str(name)) for name, tool in table.items()}
                tables.append((table, dict(table), traced))
    for table, _, traced in tables:  # all of them could be made
        table.update(traced)

    def restore() -> None:
        for table, before, _ in tables:
            table.update(before)

    return restore


def _in_row(number: int | None, tool: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``tool`` recorded in row ``number``; to look at, it is ``tool``."""
    is_async = inspect.iscoroutinefunction(tool)
    traced = _traced(name, str(getattr(tool, "__module__", "")), is_async, context.epoch)

    @functools.wraps(tool)
    def called(**arguments: Any) -> Any:
        row = sys._getframe(1).f_locals.get(_ROW) if number is None else number
        if is_async:
            return _awaited(row, traced, tool, arguments)
        with rows.row(row):
            return traced(tool, **arguments)

    return called


async def _awaited(row: Any, traced: Callable[..., Any], tool: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    with rows.row(row):
        return await traced(tool, **arguments)


@functools.lru_cache(maxsize=1000)
def _traced(name: str, module: str, is_async: bool, epoch: int) -> Callable[..., Any]:
    """A recorded function that calls the tool it is given, and is called as the tool is. One for each epoch: recording
    it ends with the run."""

    def call(called_tool: Any, /, **arguments: Any) -> Any:
        return called_tool(**arguments)

    async def call_async(called_tool: Any, /, **arguments: Any) -> Any:
        return await called_tool(**arguments)

    function: Any = call_async if is_async else call
    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    engine.record_function(function, key=TOOLS, role="tool", exclude=("called_tool",))
    return function  # type: ignore[no-any-return]


# -- rewards ----------------------------------------------------------------------------------------------------------


def _with_rewards(trainer: Any) -> None:
    """Record the reward functions of ``trainer``, a call for each row."""
    for function in trainer.reward_funcs:
        engine.record_function(function, key=REWARDS, role="reward", rows=("completions",), include=("result[i]",))
