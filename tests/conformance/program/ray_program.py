"""Actors and tasks of every make: with workers that trace, and with workers that do not."""

from __future__ import annotations

import os
import runpy

import actors
import ray


@ray.remote
class Local(actors.Base):
    """An actor of ``__main__``: Ray sends it by value."""

    def work(self, x: int) -> int:
        return x + 1


@ray.remote
def local_task(x: int) -> int:
    return x + 2


def everything(options: dict) -> None:
    sync = ray.remote(actors.Sync).options(**options).remote()
    names = ("work", "by_callback", "inherited", "overridden", "static", "made")
    assert [ray.get(getattr(sync, name).remote(1)) for name in names] == [2, 2, 1, 1, 1, 1]
    stream = sync.stream.options(num_returns="streaming").remote(3)
    assert [ray.get(item) for item in stream] == [0, 1, 2]
    try:
        ray.get(sync.fails.remote(1))
    except KeyError as error:
        assert "1" in str(error)
    decorated = actors.Decorated.options(**options).remote()
    assert ray.get([decorated.work.remote(1), decorated.inherited.remote(1)]) == [2, 1]
    local = Local.options(**options).remote()
    assert ray.get([local.work.remote(1), local.inherited.remote(1)]) == [2, 1]
    task = ray.remote(actors.function).options(**options)
    assert ray.get(task.remote(1)) == 2
    assert ray.get([actors.TASKS["task"].options(**options).remote(1), local_task.options(**options).remote(1)]) == [
        2,
        3,
    ]
    call = ray.remote(actors.calls_back).options(**options)
    assert ray.get([call.remote(actors.function, 1), call.remote(actors.Sync().work, 1)]) == [2, 2]
    concurrent = actors.Async.options(**options).remote()
    waiting = [concurrent.wait.remote(x) for x in range(3)]
    assert ray.get(concurrent.release.remote()), "an async method lost its kind"
    assert ray.get(waiting, timeout=240) == [0, 1, 2]
    items = concurrent.stream.options(num_returns="streaming").remote(2)
    assert [ray.get(item) for item in items] == [0, 1]
    for actor in (sync, decorated, local, concurrent):  # they end well and write out what they have
        actor.__ray_terminate__.remote()


def main() -> None:
    runpy.run_path(os.environ["RAY_WAITS"])
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    everything({})
    everything({"runtime_env": {"env_vars": {"AUTOTRACE": "0"}}})
    print("all answers right with Ray", ray.__version__)


if __name__ == "__main__":
    main()
