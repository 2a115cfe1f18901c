"""A call that begins after its trajectory ended does not belong to that trajectory, wherever the call is made from."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from autotrace.config.plan import Settings
from autotrace.record import calls, context, statements
from autotrace.spool.records import Fact, Open

from .conftest import Recorder

Work = Callable[[str], Any]


def step(task: str) -> str:
    return task


def plain(work: Work) -> contextvars.Context:
    work("inside")
    return contextvars.copy_context()


def streamed(work: Work) -> Iterator[contextvars.Context]:
    work("inside")
    yield contextvars.copy_context()


async def coroutine(work: Work) -> contextvars.Context:
    work("inside")
    return contextvars.copy_context()


async def async_streamed(work: Work) -> AsyncIterator[contextvars.Context]:
    work("inside")
    yield contextvars.copy_context()


@contextlib.contextmanager
def block(work: Work) -> Iterator[contextvars.Context]:
    work("inside")
    yield contextvars.copy_context()


@contextlib.asynccontextmanager
async def async_block(work: Work) -> AsyncIterator[contextvars.Context]:
    work("inside")
    yield contextvars.copy_context()


def failing(work: Work) -> contextvars.Context:
    work("inside")
    raise ValueError(contextvars.copy_context())


async def _run(root: Any, kind: str, work: Work) -> contextvars.Context:
    """Run ``root`` to its end; what a task that it started would have for a context."""
    if kind == "plain":
        return root(work)
    if kind == "failing":
        with pytest.raises(ValueError) as caught:
            root(work)
        return caught.value.args[0]
    if kind == "streamed":
        (inherited,) = root(work)
        return inherited
    if kind == "coroutine":
        return await root(work)
    if kind == "async_streamed":
        (inherited,) = [each async for each in root(work)]
        return inherited
    if kind == "block":
        with root(work) as inherited:
            return inherited
    async with root(work) as inherited:
        return inherited


ROOTS = {each.__name__: each for each in (plain, failing, streamed, coroutine, async_streamed, block, async_block)}


def opened(recorder: Recorder) -> list[tuple[str, bool]]:
    """Target and whether it begins a trace, of each call."""
    names = recorder.names()
    return [(names[record.target].rpartition(".")[2], not record.parent) for record in recorder.records(Open)]


@pytest.mark.parametrize("kind", ROOTS)
async def test_a_later_call_of_a_context_that_the_root_left_behind_begins_a_trace(
    recorder: Recorder, kind: str
) -> None:
    work, client = recorder.wrap(step), recorder.wrap(step, key="client", role="llm", inside=True)
    root = recorder.wrap(ROOTS[kind], role="trajectory", where="mine.yaml:1")
    inherited = await _run(root, kind, work)
    assert inherited.run(work, "later") == "later" and inherited.run(client, "later") == "later"
    assert inherited.run(context.current_carrier) is None
    assert opened(recorder) == [(kind, True), ("step", False), ("step", True)]


@pytest.mark.parametrize("kind", ROOTS)
async def test_a_trajectory_that_is_not_sampled_suppresses_nothing_later(recorder: Recorder, kind: str) -> None:
    work, root = recorder.wrap(step), recorder.wrap(ROOTS[kind], role="trajectory", where="mine.yaml:1")
    client = recorder.wrap(step, key="client", role="llm", inside=True)
    calls.decide = lambda attributes: False
    inherited = await _run(root, kind, lambda text: (work(text), client(text)))
    calls.decide = None
    assert inherited.run(work, "later") == "later"
    assert opened(recorder) == [("step", True)] and not calls.probes["client"].has_met_outside


@pytest.mark.parametrize("is_recorded", [False, True])
async def test_an_engine_loop_that_the_first_request_started_is_in_no_later_trajectory(
    recorder: Recorder, is_recorded: bool
) -> None:
    forward = recorder.wrap(step)
    queue: asyncio.Queue[tuple[str, asyncio.Future[str]]] = asyncio.Queue()
    loops: list[asyncio.Task[None]] = []

    async def serve() -> None:
        while True:
            prompt, answer = await queue.get()
            answer.set_result(forward(prompt))

    async def generate(prompt: str) -> str:
        if not loops:
            loops.append(asyncio.create_task(start()))
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        await queue.put((prompt, answer))
        return await answer

    async def rollout(task: str) -> str:
        return await ask(f"{task}.0") + await ask(f"{task}.1")

    ask, root = recorder.wrap(generate, role="llm"), recorder.wrap(rollout, role="trajectory")
    start = recorder.wrap(serve) if is_recorded else serve
    for task in ("first", "second"):
        await root(task)
    loops.pop().cancel()
    kinds = [target for target, begins in opened(recorder) if begins]
    assert kinds == ["rollout", "rollout", "step", "step"]
    spans = {record.span: record for record in recorder.records(Open)}
    first = [one for one in spans.values() if (one.inputs or {}).get("task", "").startswith("first") and one.parent]
    assert len(first) == 2 and all(one.trace == spans[one.parent].trace for one in first)


def test_what_is_left_of_a_trajectory_is_inside_the_call_of_the_trainer(recorder: Recorder) -> None:
    work = recorder.wrap(step)
    root = recorder.wrap(plain, role="trajectory")

    def fit(step: int) -> contextvars.Context:
        inherited = root(work)
        assert inherited.run(work, "in the trainer's call") and inherited.run(root, work)
        return inherited

    trained = recorder.wrap(fit, role="trainer", attributes={"step": ("step",)})
    trained(3).run(work, "later")
    names = recorder.names()
    spans = recorder.records(Open)
    begun = [names[one.target].rpartition(".")[2] for one in spans if not one.parent]
    assert begun == ["fit", "plain", "plain", "step"]
    assert [one.attributes for one in spans if names[one.target].endswith("plain")] == [{"step": 3}] * 2
    (inside,) = [one for one in spans if (one.inputs or {}).get("task") == "in the trainer's call"]
    assert inside.parent == spans[0].span


def test_a_late_call_that_names_its_trajectory_belongs_to_it_and_so_do_the_calls_inside(recorder: Recorder) -> None:
    work = recorder.wrap(step)

    def rollout(id: str) -> str:
        return id

    def score(id: str) -> str:
        work("judge")
        return work("again")

    recorder.wrap(rollout, role="trajectory", id=("id",))("one")
    recorder.wrap(score, role="reward", of=("id",))("one")
    root, late, *inside = recorder.records(Open)
    assert late.parent == root.span and [one.parent for one in inside] == [late.span] * 2
    assert {one.trace for one in (late, *inside)} == {root.trace}


async def test_work_that_began_in_time_stays(recorder: Recorder) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def summarise() -> None:
        begun.set()
        await over.wait()

    async def rollout() -> asyncio.Task[None]:
        task = asyncio.create_task(slow())
        await begun.wait()
        return task

    slow = recorder.wrap(summarise)
    task = await recorder.wrap(rollout, role="trajectory")()
    over.set()
    await task
    assert opened(recorder) == [("rollout", True), ("summarise", False)]


def test_a_batch_decides_about_its_own_groups_alone(recorder: Recorder) -> None:
    recorder.use(Settings())

    def rollout(uid: str) -> None: ...

    def generate(uids: list[str]) -> contextvars.Context:
        for uid in uids:
            root(uid)
        return contextvars.copy_context()

    root = recorder.wrap(rollout, role="trajectory", attributes={"uid": ("uid",)})
    batch = {"group": ("uids",), "limit": ("uids.0",)}
    inherited = recorder.wrap(generate, role="trainer", batch=batch)(["1", "2", "3"])
    inherited.run(root, "4")
    names = recorder.names()
    uids = [one.attributes["uid"] for one in recorder.records(Open) if names[one.target].endswith("rollout")]
    assert len(uids) == 2 and uids[-1] == "4"


def test_a_fact_that_is_stated_later_is_no_fact_of_it(recorder: Recorder) -> None:
    inherited = recorder.wrap(plain, role="trajectory")(recorder.wrap(step))
    inherited.run(statements.fact, "reward", 1.0)
    assert not recorder.records(Fact)
