"""An agent without any RL, veRL or inference engine in it: a plain asyncio program.

autotrace-run --spec examples/plain_asyncio/traced.yaml python examples/plain_asyncio/planner.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator


class Planner:
    """Plans a day trip: asks about several towns at once and keeps the best."""

    async def plan(self, towns: list[str]) -> str:
        """The town with the finest weather."""
        reports = await asyncio.gather(*(self.look_up(town) for town in towns), return_exceptions=True)
        known = {town: report for town, report in zip(towns, reports, strict=True) if isinstance(report, int)}
        best = max(known, key=known.__getitem__)
        words = [word async for word in self.explain(best, known[best])]
        return " ".join(words)

    async def look_up(self, town: str) -> int:
        """Degrees in ``town``; some towns have no weather station."""
        await asyncio.sleep(0.01 * len(town))
        degrees = {"Aachen": 17, "Bremen": 14, "Celle": 16}
        if town not in degrees:
            raise LookupError(f"no weather station in {town}")
        return degrees[town]

    async def explain(self, town: str, degrees: int) -> AsyncIterator[str]:
        """The answer, word by word."""
        for word in f"Go to {town}, it has {degrees} degrees.".split():
            await asyncio.sleep(0.001)
            yield word


async def main() -> None:
    """Two trips are planned at the same time."""
    planner = Planner()
    trips = (["Aachen", "Bremen", "Atlantis"], ["Bremen", "Celle"])
    for answer in await asyncio.gather(*(planner.plan(list(towns)) for towns in trips)):
        print(answer)


if __name__ == "__main__":
    asyncio.run(main())
