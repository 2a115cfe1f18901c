"""A user's own module with veRL's decorator and attribute block: ``extension_program.py`` under ``autotrace-run``."""

from __future__ import annotations

import asyncio
import contextlib
import os

from verl.utils import rollout_trace
from verl.utils.rollout_trace import RolloutTraceConfig, rollout_trace_attr, rollout_trace_op

RolloutTraceConfig.init("their-project", "their-experiment", "weave")
assert RolloutTraceConfig.get_backend() is None, "veRL's own tracer stands aside"
assert RolloutTraceConfig.get_client() is None

from verl.tools.base_tool import BaseTool  # noqa: E402


class Search:
    """What users decorate: coroutines, plain functions, failing ones."""

    @rollout_trace_op
    async def look_up(self, query: str, limit: int = 3) -> list[str]:
        """Find ``query``."""
        return [self.clean(query)] * limit

    @rollout_trace_op
    def clean(self, text: str) -> str:
        """Strip it."""
        return text.strip()

    @rollout_trace_op
    async def fail(self) -> None:
        """Raise."""
        raise ValueError("nothing found")


class Better(Search):
    """An override that calls ``super()``."""

    @rollout_trace_op
    async def look_up(self, query: str, limit: int = 3) -> list[str]:
        """Find ``query`` better."""
        return await super().look_up(query, limit=limit)


class Tool(BaseTool):
    """A method that the spec names as well."""

    def __init__(self) -> None:
        self.name = "tool"

    @rollout_trace_op
    async def execute(self, instance_id: str, parameters: dict, **kwargs: object) -> str:
        """Answer."""
        return "done"


async def main() -> None:
    """Three blocks: one whole, one that fails, one that is not to be traced."""
    with rollout_trace_attr(sample_index=17, step=3, rollout_n=1, name="own_loop"):
        assert await Search().look_up(" apples ") == ["apples"] * 3
        assert await Better().look_up("pears", limit=1) == ["pears"]
        assert await Tool().execute("id", {"a": 1}) == "done"
        with contextlib.suppress(ValueError):
            await Search().fail()
    with contextlib.suppress(ValueError), rollout_trace_attr(sample_index=18, step=3, validate=True):
        await Search().fail()
    if "trace" in rollout_trace.rollout_trace_attr.__wrapped__.__code__.co_varnames:  # since 0.7.0
        with rollout_trace_attr(sample_index=19, step=3, trace=False):
            await Search().look_up("plums")


asyncio.run(main())

RolloutTraceConfig.reset()
with contextlib.suppress(ImportError):  # where trackio is not installed
    RolloutTraceConfig.init("their-project", "their-experiment", "trackio")
assert RolloutTraceConfig.get_backend() == "trackio", "a backend that autotrace does not deliver to is left to veRL"

RolloutTraceConfig.reset()
os.environ["AUTOTRACE_TRACE_BACKENDS"] += ",trackio"  # as the launcher says it where a package has that backend
RolloutTraceConfig.init("their-project", "their-experiment", "trackio")
assert RolloutTraceConfig.get_backend() is None, "a backend of another package is taken over as well"
