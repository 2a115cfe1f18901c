"""An agent whose first call starts a worker that outlives it: ``late_worker.py thread|task STOP_FILE``.

The worker inherits the trajectory's context and works until STOP_FILE exists, 500 calls a second.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
import time

KIND, STOP = sys.argv[1:3]


class Agent:
    """Makes its worker when it is first needed, as clients with a connection pool or a prefetcher do."""

    _worker: object = None

    async def run(self, question: str) -> str:
        if self._worker is None:
            if KIND == "task":
                self._worker = asyncio.create_task(self._work_in_task())
            else:
                context = contextvars.copy_context()
                self._worker = threading.Thread(target=context.run, args=(self._work_in_thread,))
                self._worker.start()
        await asyncio.sleep(0.02)
        return question.upper()

    async def _work_in_task(self) -> None:
        while not os.path.exists(STOP):
            self.poll()
            await asyncio.sleep(0.002)

    def poll(self) -> None:
        """What the worker does."""

    def _work_in_thread(self) -> None:
        while not os.path.exists(STOP):
            self.poll()
            time.sleep(0.002)


async def main() -> None:
    agent = Agent()
    for question in ("first", "second"):
        await agent.run(question)
    while not os.path.exists(STOP):
        await asyncio.sleep(0.05)
    if isinstance(agent._worker, threading.Thread):
        agent._worker.join()


if __name__ == "__main__":
    asyncio.run(main())
