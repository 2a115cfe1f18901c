"""The shipped spec of SGLang on classes that are put together as in a release (the release itself: tests/engines)."""

from __future__ import annotations

import asyncio

from autotrace.config.plan import Plan
from autotrace.spec.compiler import compile_plan
from tests.conformance.conftest import Host, host  # noqa: F401

MANAGER = """
class TokenizerControlMixin:
    async def flush_cache(self): return "flushed"
class TokenizerManager(TokenizerControlMixin):
    async def pause_generation(self, obj): return "paused"
    async def continue_generation(self, obj): return "continued"
"""
WORKER = """
from sglang.srt.managers.tokenizer_manager import TokenizerManager
class TokenizerWorker(TokenizerManager):
    async def pause_generation(self, obj): return "all paused"
    async def continue_generation(self, obj): return "all continued"
"""


def test_one_of_several_front_ends_is_recorded_as_the_single_one_is(host: Host) -> None:  # noqa: F811
    """SGLang 0.5.23: ``multi_tokenizer_mixin.TokenizerWorker`` overrides both."""
    plan: Plan = compile_plan()
    host.watch(*(target for target in plan.targets if target.key.startswith("sglang.")))
    host.write("sglang.__init__", "")
    host.load("sglang.srt.managers.tokenizer_manager", MANAGER)
    module = host.load("sglang.srt.managers.multi_tokenizer_mixin", WORKER)
    worker = module.TokenizerWorker()
    assert asyncio.run(worker.pause_generation(None)) == "all paused"
    assert asyncio.run(worker.continue_generation(None)) == "all continued"
    assert asyncio.run(worker.flush_cache()) == "flushed"
    names = ["TokenizerWorker.pause_generation", "TokenizerWorker.continue_generation"]
    assert host.opened() == [*names, "TokenizerControlMixin.flush_cache"]
    assert "shadowed" not in {state for state, _ in host.reports().values()}
