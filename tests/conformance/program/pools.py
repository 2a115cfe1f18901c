"""Every way to start a process, with targets that are wrapped: ``python pools.py START_METHOD``."""

from __future__ import annotations

import functools
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

import work


class Mine:
    """A class of ``__main__`` (``__mp_main__`` in a spawned child)."""

    def method(self, x: int) -> int:
        return work.leaf(x)


def square(x: int) -> int:
    """A function of ``__main__``."""
    return x * x


def main() -> None:
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.SimpleQueue()
    tool, mine = work.Tool(), Mine()
    targets = [work.pid, tool.method, work.Tool.static, work.Tool.made, mine.method, functools.partial(work.leaf, 1)]
    for target in targets:
        process = context.Process(target=target, args=() if isinstance(target, functools.partial) else (1,))
        process.start()
        process.join(240)
        assert process.exitcode == 0, (target, process.exitcode)
    process = context.Process(target=work.put, args=(queue, 1))
    process.start()
    assert queue.get() == 2
    process.join(240)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(work.leaf, range(4))) == [1, 2, 3, 4]
        assert list(pool.map(square, range(4))) == [0, 1, 4, 9] and square(3) == 9
        assert [pool.submit(target, 1).result() for target in targets[1:5]] == [2] * 4
    with context.Pool(1) as pool:
        assert pool.map(work.leaf, [1]) == [2] and pool.apply(mine.method, (1,)) == 2
        pool.close()  # its workers end; ``with`` alone would kill them
        pool.join()
    print("all answers right")


if __name__ == "__main__":
    main()
