"""Record the parts of TRL that a spec cannot name or compute.

- The user's tools, methods of environments and reward functions have no name. The functions are recorded while the
  trainer uses the functions; tools are recorded in the trajectory of the row that called the tool.
- The reward of a row is the weighted sum of the values of the reward functions.
- The tokenizer that decodes, and the MLflow or W&B run that the trainer's own logger has open.

Read in the wheels of TRL 0.26 to 1.16. Anything unexpected is left alone.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from autotrace.adapters.hooks import follow
from autotrace.adapters.trainers import end_tokens, is_here, publish_runs
from autotrace.config.originals import time
from autotrace.patch import adapting, engine
from autotrace.record import context, faults, rows, statements
from autotrace.record.backlog import backlog
from autotrace.record.context import RetainingCall
from autotrace.record.follower import Follower
from autotrace.record.formulas import value_of
from autotrace.spool.records import Fact

TOOLS = "trl tools"
REWARDS = "trl reward functions"
"""Keys of the functions in reports."""

_ROW = "idx_with_tool"
"""Name of the row's number in the loop over tool calls (0.26, where all rows share a table of tools)."""


def watch(module: ModuleType) -> None:
    """Record the functions that the trainer of ``module`` is given. Called once ``module`` is imported."""
    _around(module.GRPOTrainer, "_tool_call_loop", _with_tools)
    _around(module.GRPOTrainer, "_calculate_rewards", _with_rewards)


def _around(owner: type, name: str, enter: Callable[[Any], Callable[[], None] | None]) -> None:
    """Call ``enter(self)`` before each call of ``owner.name``. If ``enter`` returns a function, call that
    afterwards."""
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
    """Record the tools in the tables of ``trainer`` until the returned function is called."""
    tables: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = []
    for kind in ("_sync_tool_dict", "_async_tool_dict", "_tool_dict"):
        of_rows = getattr(trainer, f"{kind}s", None)
        shared = getattr(trainer, kind, None)
        found: list[tuple[int | None, Any]] = [*enumerate(of_rows)] if of_rows else [(None, shared)]
        for number, table in found:
            if type(table) is dict and table:
                traced = {name: _in_row(number, tool, str(name)) for name, tool in table.items()}
                tables.append((table, dict(table), traced))
    for table, _, traced in tables:  # all wrappers could be made
        table.update(traced)

    def restore() -> None:
        for table, before, _ in tables:
            table.update(before)

    return restore


def _in_row(number: int | None, tool: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap ``tool`` so that calls are recorded in row ``number``; the wrapper looks like ``tool``."""
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
    """Build a recorded function that calls a given tool with the tool's own signature. Each epoch has another function,
    because recording ends with the run."""

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
    """Record the reward functions of ``trainer``, with a call for each row."""
    for function in trainer.reward_funcs:
        engine.record_function(function, key=REWARDS, role="reward", rows=("completions",), include=("result[i]",))


BATCH = "trl.trainer.grpo_trainer.GRPOTrainer._generate_and_score_completions"
SCORES = "trl.experimental.async_grpo.async_rollout_worker._AsyncRolloutLoop._score_group"
_PARTS = value_of(
    "self._logs.rewards.*[row_from_end(i, n, self.accelerator.process_index, self.accelerator.num_processes)]"
)


def install() -> None:
    """Register the hooks on the modules below. Called once, right after ``trl`` was imported."""
    follow(BATCH, _TrainerBatch())
    follow(SCORES, _GroupScores())
    adapting.when_imported("trl.trainer.grpo_trainer", watch)


class _TrainerBatch(Follower):
    """Follows the trainer's call around a batch of rollouts."""

    def __init__(self) -> None:
        self._published = False

    def opened(self, call: RetainingCall, arguments: Mapping[str, Any]) -> None:
        trainer = arguments.get("self")
        if self._published or trainer is None:
            return
        self._published = True
        _publish_tokenizer(getattr(trainer, "processing_class", None))
        args = getattr(trainer, "args", None)
        publish_runs(getattr(args, "report_to", None) or (), None, getattr(args, "run_name", None))

    def holds(self, call: RetainingCall, result: Any) -> bool:
        trainer = (call.arguments or {}).get("self")
        if trainer is None or call.rows is None:
            return False
        weights = _weights(trainer)
        at = time.monotonic_ns()
        count = len(call.rows.calls)
        for number, row in enumerate(call.rows.calls):
            parts = None if row is None else _PARTS.read({"self": trainer, "i": number, "n": count})
            if row is None or type(parts) is not dict or not parts:
                continue
            parts = {name: shortest(part) for name, part in parts.items() if type(part) is float}
            total = weighted(list(parts.values()), weights)
            if total is not None:
                backlog.put(Fact(row.trace.id, None, "reward", total, at))
            if len(parts) > 1:
                backlog.put(Fact(row.trace.id, None, "reward_extra_info", parts, at))
        return False


class _GroupScores(Follower):
    """Reads the scores that the asynchronous worker gave the rollouts of a group (1.16, which names rollouts)."""

    def opened(self, call: RetainingCall, arguments: Mapping[str, Any]) -> None:
        call.arguments = {"group": arguments.get("group")}

    def holds(self, call: RetainingCall, result: Any) -> bool:
        group = (call.arguments or {}).get("group")
        at, first = time.monotonic_ns(), 0
        for sequences in getattr(group, "completions_sequences", None) or ():
            name = getattr(sequences[0], "rollout_id", None) if sequences else None
            if isinstance(name, str) and first < len(result):
                sample = result[first]  # one for each sequence, all with the same advantage
                facts = {"advantage": sample.advantage, "reward": sample.metrics.get("reward")}
                parts = {key[8:]: value for key, value in sample.metrics.items() if key.startswith("rewards/")}
                for fact, value in {**facts, **({"reward_extra_info": parts} if len(parts) > 1 else {})}.items():
                    backlog.put(Fact(b"", {"of": name}, fact, value, at))
            first += len(sequences)
        return False


def shortest(value: float) -> float:
    """Round a float32 as people write the number: 0.1, not 0.10000000149011612."""
    return float(f"{value:.7g}")


def weighted(parts: list[Any], weights: list[float]) -> float | None:
    """Add the reward up as the trainer does: a function without a value for a row does not count.

    None if no function gave a value, or the numbers of parts and weights differ.
    """
    pairs = [(part, weight) for part, weight in zip(parts, weights, strict=False) if not math.isnan(part)]
    if len(parts) != len(weights) or not pairs:
        return None
    return shortest(sum(part * weight for part, weight in pairs))


def _weights(trainer: Any) -> list[float]:
    weights: Any = getattr(trainer, "reward_weights", None)
    return [float(weight) for weight in weights.tolist()] if is_here(weights) else []


def _publish_tokenizer(processing: Any) -> None:
    tokenizer = getattr(processing, "tokenizer", processing)
    path = getattr(tokenizer, "name_or_path", None)
    if isinstance(path, str) and path:
        about = {
            "class": type(tokenizer).__name__,
            "processor": tokenizer is not processing,
            "end_tokens": end_tokens(tokenizer),
        }
        statements.bind("tokenizer", {"path": path, "source": path, "trust_remote_code": False, **about})
