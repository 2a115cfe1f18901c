"""``python -m tests.faults.ray_program RUN_FOLDER ACTORS``: actors that record until ``ray.kill``.

Prints for each its pid and when it was killed (monotonic ns).
"""

from __future__ import annotations

import os
import random
import runpy
import sys
import time

import ray


@ray.remote
class Worker:
    """Runs the program of the other fault tests in a process of Ray's."""

    def pid(self) -> int:
        return os.getpid()

    def work(self, folder: str) -> None:
        sys.argv = ["program", folder, "endless"]
        from tests.faults import program

        program.endless()


def main(folder: str, actors: int) -> None:
    """Kill each after some time."""
    from autotrace.spool.reader import segments

    chance = random.Random(5)
    runpy.run_path(os.environ["RAY_WAITS"])
    ray.init(address="local", num_cpus=actors, include_dashboard=False, log_to_driver=False)
    workers = [Worker.remote() for _ in range(actors)]  # type: ignore[attr-defined]
    pids = ray.get([worker.pid.remote() for worker in workers])
    for worker in workers:
        worker.work.remote(folder)
    while len(segments(folder)) < actors:
        time.sleep(0.02)
    for pid, worker in zip(pids, workers, strict=True):
        time.sleep(chance.uniform(0.1, 0.6))
        ray.kill(worker)
        print(pid, time.monotonic_ns(), flush=True)
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
