"""Calls of every kind, inside and outside a recorded span: ``program.py [otel] [blocked FOLDER]``."""

from __future__ import annotations

import os
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor

import ray
import work


def main() -> None:
    options = {"_tracing_startup_hook": "work:setup_tracing"} if "otel" in sys.argv else {}
    runpy.run_path(os.environ["RAY_WAITS"])
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, **options)
    assert ray.init.__wrapped__.__module__ == "ray._private.worker"
    bare = {"env_vars": {"PYTHONPATH": sys.argv[-1]}} if "blocked" in sys.argv else {}
    sync = work.Sync.options(runtime_env=bare).remote()
    actors = {"sync": sync}
    calls = {"sync": lambda name: ray.get(sync.call.remote(name))}
    if bare:
        calls["task"] = lambda name: ray.get(work.task.options(runtime_env=bare).remote(name))
    else:
        actors |= {"async": work.Async.remote(), "threaded": work.Threaded.remote()}
        actors["relay"] = work.Relay.remote(actors["async"])
        for kind in ("async", "threaded", "relay"):
            calls[kind] = lambda name, actor=actors[kind]: ray.get(actor.call.remote(name=name))
        if not options:  # a generator method under Ray's own tracing is a TypeError in Ray 2.60, without autotrace too
            streaming = sync.stream.options(num_returns="streaming")
            calls["stream"] = lambda name: ray.get(next(streaming.remote(name)))
        calls["task"] = lambda name: ray.get(work.task.remote(name, "more", option="one"))
        calls["generator"] = lambda name: ray.get(next(work.generator_task.remote(name)))
    for kind, call in calls.items():
        assert call(f"{kind} outside") == f"{kind} outside"
        with ThreadPoolExecutor(4) as pool:
            names = [f"{kind} {number}" for number in range(4)]
            assert list(pool.map(lambda name, call=call: work.outer(name, call), names)) == names
        assert call(f"{kind} after") == f"{kind} after"
    print("all answers right")


if __name__ == "__main__":
    main()
