"""Functions and classes in veRL's own registries are recorded, and are the objects that were registered."""

from __future__ import annotations

import asyncio
import importlib
import pickle

import pytest

from tests.conformance.conftest import Host, host

__all__ = ["host"]

SOURCE = '''
import asyncio
import torch
from verl.tools.function_tool import FUNCTION_TOOL_REGISTRY, function_tool, get_function_tool
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss
from verl.workers.reward_manager import get_reward_manager_cls
from verl.workers.reward_manager.registry import register as register_reward_manager

@function_tool
def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: one number
        b: another
    """
    return a + b

@function_tool("NAME_look_up")
async def search(query: str) -> str:
    """Searches.

    Args:
        query: what for
    """
    return query

@register_adv_est("NAME")
def advantage(rewards, mask): return rewards * mask, rewards

@register_policy_loss("NAME")
def loss(old, new): return (old - new).abs().mean()

@register_reward_manager("NAME")
class Rewards:
    def __call__(self, data): return self.score(data)
    def score(self, data): return len(data)

def go():
    tools = [get_function_tool("add"), get_function_tool("NAME_look_up")]
    ones = torch.ones(2)
    return [
        asyncio.run(tools[0].call({"a": 2, "b": 3})), asyncio.run(tools[1].call({"query": "x"})),
        [value.tolist() for value in get_adv_estimator_fn("NAME")(ones, ones)],
        float(get_policy_loss_fn("NAME")(ones, ones * 3)), get_reward_manager_cls("NAME")()([1, 2]),
        tools[0].fn is add, get_adv_estimator_fn("NAME") is advantage, function_tool(add) is add,
    ]
'''


@pytest.mark.parametrize("early", [True, False], ids=["imported before", "imported after"])
def test_what_verl_has_registered(host: Host, early: bool) -> None:
    names = ("add", "search", "advantage", "loss", "Rewards.score")
    module_name = "registered_before" if early else "registered_after"
    source = SOURCE.replace("NAME", module_name)
    tools = importlib.import_module("verl.tools.function_tool")
    tools.FUNCTION_TOOL_REGISTRY.clear()
    if early:
        host.load(module_name, source)
    host.watch(*(f"{module_name}.{name}" for name in names))
    module = importlib.import_module(module_name) if early else host.load(module_name, source)
    try:
        assert module.go() == [5, "x", [[1.0, 1.0], [1.0, 1.0]], 2.0, 2, True, True, True]
        assert sorted(host.opened()) == sorted(names), host.reports()
        assert pickle.loads(pickle.dumps(module.advantage)) is module.advantage
        assert asyncio.iscoroutinefunction(module.search)
    finally:
        tools.FUNCTION_TOOL_REGISTRY.clear()
