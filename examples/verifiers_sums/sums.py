"""A taskset of verifiers: two sums, whose rewards look for the result and for the use of a tool."""

from __future__ import annotations

from collections.abc import Iterator

import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: int


class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        return float(f"It is {self.data.answer}." in trace.last_reply)

    @vf.reward(weight=0.1)
    async def used_the_tool(self, trace: vf.Trace) -> float:
        return float(bool(trace.tool_messages))


class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self) -> Iterator[SumTask]:
        for a, b in ((2, 2), (2, 3)):
            yield SumTask(SumData(prompt=f"What is {a} plus {b}?", answer=a + b, name=f"sum-{a}-{b}"), vf.TaskConfig())


__all__ = ["Sums"]
