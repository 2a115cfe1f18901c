"""How deep a program comes whose functions are recorded: as deep as without it, for what calls itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import some

from .processes import run

PROGRAM = """
import asyncio, json, sys, threading
from concurrent.futures import ThreadPoolExecutor
def plain(n): return 0 if n == 0 else 1 + plain(n - 1)
async def coroutine(n): return 0 if n == 0 else 1 + await coroutine(n - 1)
def keywords(*, n): return 0 if n == 0 else 1 + keywords(n=n - 1)
class Node:
    def visit(self, n): return 0 if n == 0 else 1 + self.visit(n - 1)
def generator(n):
    if n:
        yield from generator(n - 1)
    yield n
def drive(n):
    try:
        coroutine(n).send(None)
    except StopIteration:
        pass
async def link(n):
    if n:
        return await asyncio.create_task(link(n - 1))
    return plain(8)
def hop(n):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(hop, n - 1).result() if n else plain(8)
def chained(n):
    asyncio.run(link(40))  # tasks and threads, whose stacks are short
    hop(40)
    return plain(n)
WAYS = {"plain": plain, "coroutine": drive, "keywords": lambda n: keywords(n=n), "method": Node().visit,
        "generator": lambda n: list(generator(n)), "chained": chained}
def deepest(call):
    low, high = 1, 4096
    while high - low > 1:
        middle = (low + high) // 2
        try:
            call(middle)
            low = middle
        except RecursionError:
            high = middle
    return low
def in_threads(call):
    found = []
    def work():
        for n in (5, 300, 5, 900):
            try:
                call(n)
            except RecursionError:
                pass
        found.append(deepest(call))
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return min(found)
if __name__ == "__main__":
    call = WAYS[sys.argv[1]]
    call(8)
    shallow = sys.getrecursionlimit()
    print(json.dumps([shallow, in_threads(call) if sys.argv[2:] else deepest(call)]))
"""
LIST = "- deep.link\n- deep.hop\n- deep.plain\n- deep.coroutine\n- deep.keywords\n- deep.Node.visit\n- deep.generator\n"


def depths(folder: Path, *words: str) -> tuple[int, int]:
    """How deep the program came, bare and traced."""
    (folder / "deep.py").write_text(PROGRAM)
    command = [str(folder / "deep.py"), *words]
    bare = json.loads(subprocess.run([sys.executable, *command], capture_output=True, check=True).stdout)
    traced = json.loads(run(folder, LIST, *command).stdout)
    assert traced[0] == bare[0] == 1000  # who is not deep sees nothing
    return bare[1], traced[1]


@pytest.mark.parametrize("way", some(["plain", "coroutine", "keywords", "method", "chained"], "method", "chained"))
def test_recursion_comes_as_deep(tmp_path: Path, way: str) -> None:
    bare, traced = depths(tmp_path, way)
    assert 0.95 * bare < traced < 1.1 * bare


def test_of_generators_it_does_not(tmp_path: Path) -> None:
    """Three frames a generator, and none of them knows of the one that it resumes."""
    bare, traced = depths(tmp_path, "generator")
    assert 0.3 * bare < traced < bare


def test_threads_that_are_deep_at_once(tmp_path: Path) -> None:
    bare, traced = depths(tmp_path, "plain", "threads")
    assert 0.95 * bare < traced < 2.1 * bare
