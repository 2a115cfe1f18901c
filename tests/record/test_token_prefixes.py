"""A token is stored once per trajectory, and every list comes back exactly."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotrace.config.plan import Settings
from autotrace.record import faults, flusher
from autotrace.record.backlog import backlog
from autotrace.record.context import attach, current_carrier
from autotrace.record.token_prefixes import TokenLog
from autotrace.record.weights import NUMBER_BYTES
from autotrace.ship.assembly.token_sequences import TokenList, TokenSequences
from autotrace.spool.records import Close, Open
from autotrace.trajectory.model import Allowance
from tests.cases import examples

from .conftest import Recorder

ids = st.lists(st.integers(0, 200_000), max_size=30)


@settings(max_examples=examples(200), deadline=None)
@given(turns=st.lists(st.tuples(ids, ids, st.booleans()), min_size=1, max_size=8))
def test_every_turn_is_rebuilt_whatever_the_turns_share(turns: list[tuple[list[int], list[int], bool]]) -> None:
    log, reader = TokenLog(0), TokenSequences(Allowance())
    sequence: list[int] = []
    lists: list[tuple[TokenList, list[int]]] = []
    for span, (new, response, fresh) in enumerate(turns):
        prompt = new if fresh else sequence + new
        written, note = log.prompt(prompt, withheld=False)
        rebuilt, problem = reader.full(span, written)
        assert rebuilt is not None and problem is None
        assert rebuilt.first(len(prompt)).make() == prompt
        both, problem = reader.full(span, log.response(note, response, False))
        assert both is not None and problem is None
        assert both.from_(len(prompt)).tolist() == response
        lists += [(rebuilt, prompt), (both, prompt + response)]
        sequence = prompt + response
    for tokens, ids in lists:  # what continued them has changed none of them
        assert tokens.from_(0).tolist() == ids


def test_twenty_turns_cost_their_tokens_once(recorder: Recorder) -> None:
    def generate(prompt_ids: list[int], answer: list[int]) -> Any:
        return SimpleNamespace(token_ids=answer)

    def run(turns: int) -> SimpleNamespace:
        sequence = [random.randrange(150_000) for _ in range(2000)]
        prompt = len(sequence)
        for _ in range(turns):
            answer = [random.randrange(150_000) for _ in range(300)]
            sequence = sequence + traced(sequence, answer).token_ids
            sequence = sequence + [random.randrange(150_000) for _ in range(100)]
        return SimpleNamespace(prompt_ids=sequence[:prompt], response_ids=sequence[prompt:])

    traced = recorder.wrap(
        generate, key="llm", exclude=("answer",), tokens={"prompt": ("prompt_ids",), "response": ("result.token_ids",)}
    )
    agent = recorder.wrap(
        run, key="agent", tokens={"prompt": ("result.prompt_ids",), "response": ("result.response_ids",)}
    )
    output = agent(20)
    unique = len(output.prompt_ids) + len(output.response_ids)
    size = sum(path.stat().st_size for path in (recorder.folder / "spool").glob("*.seg") if recorder.records())
    assert size < 1.3 * 4 * unique
    *_, close = recorder.records(Close)
    assert close.response.total == unique and close.skip == len(output.prompt_ids)
    assert len(close.response.new) == 4 * 100  # what the tools said last, no turn had seen it yet


def test_the_engines_side_of_a_call_names_its_tokens_by_count_and_digest_only(recorder: Recorder) -> None:
    tokens = {"prompt": ("prompt_ids",), "response": ("result",)}

    def engine(prompt_ids: list[int]) -> list[int]:
        return [7, 8]

    server = recorder.wrap(engine, key="engine", tokens=tokens)

    def client(prompt_ids: list[int]) -> list[int]:
        with attach(current_carrier()):
            return server(prompt_ids)  # type: ignore[no-any-return]

    recorder.wrap(client, key="client", tokens=tokens)([1, 2, 3])
    agent_side, engine_side = recorder.records(Open)
    assert agent_side.prompt.new and not engine_side.prompt.new
    assert engine_side.prompt.digest == agent_side.prompt.digest and engine_side.prompt.total == 3


def test_content_none_keeps_counts_and_digests_only(recorder: Recorder) -> None:
    recorder.use(Settings(content="none"))

    def generate(prompt_ids: list[int], secret: str) -> Any:
        return SimpleNamespace(token_ids=[4242, 4243])

    recorder.wrap(generate, key="llm", tokens={"prompt": ("prompt_ids",), "response": ("result.token_ids",)})(
        [4240, 4241], "my prompt"
    )
    (opened,), (closed,) = recorder.records(Open), recorder.records(Close)
    assert opened.inputs is None and closed.output is None
    assert (opened.prompt.total, opened.prompt.new, closed.response.new) == (2, b"", b"")


@pytest.mark.parametrize("field", ["prompt", "response", "logprobs", "mask"])
def test_a_path_to_something_else_costs_the_numbers_not_the_span(recorder: Recorder, field: str) -> None:
    class Unwilling:
        def __bool__(self) -> bool:
            raise RuntimeError("no")

    def chat(prompt: Any, text: str) -> dict[str, Any]:
        return {"answer": text, "response": [3], "logprobs": [0.5], "mask": [1], field: wrong}

    wrong = [{"role": "user", "content": "hello"}, Unwilling()]
    paths = {name: (f"result.{name}",) for name in ("response", "logprobs", "mask")}
    recorder.use(Settings(flush_interval=0.01, logprobs=True))
    traced = recorder.wrap(chat, tokens={"prompt": ("prompt",), **paths})
    traced(wrong if field == "prompt" else [1, 2], "hi")
    (opened,), (closed,) = recorder.records(Open), recorder.records(Close)
    assert opened.inputs["text"] == "hi" and closed.status == "OK" and closed.output["answer"] == "hi"
    found = {
        "prompt": opened.prompt,
        "response": closed.response,
        "logprobs": closed.logprobs,
        "mask": closed.mask,
    }
    assert [name for name, value in found.items() if value is None] == [field]
    path = field if field == "prompt" else f"result.{field}"
    said = [reason for reason in faults.counts if reason.startswith("fault:")]
    assert said == [f"fault:tokens:{chat.__qualname__}:{field}: {path}"]


def test_with_too_much_waiting_calls_are_recorded_without_their_tokens(recorder: Recorder) -> None:
    """Memory is bounded also for trajectories that are open already: none of their calls is missing."""
    recorder.use(Settings(memory_limit=150_000, flush_interval=0.01))
    most = []

    def generate(prompt_ids: list[int]) -> list[int]:
        most.append(backlog.waiting())
        return list(range(100))

    traced = recorder.wrap(generate, role="llm", tokens={"prompt": ("prompt_ids",), "response": ("result",)})

    def rollout() -> None:
        with flusher._flusher._busy:  # a disk that takes its time
            backlog.watchful = True
            for _ in range(20):
                traced(list(range(2_000)))

    recorder.wrap(rollout, role="trajectory", key="rollout")()
    opens = [record for record in recorder.records(Open) if record.parent]
    assert len(opens) == 20 == len(recorder.records(Close)) - 1
    withheld = sum(record.prompt is None for record in opens)
    assert 0 < withheld < 20 and faults.counts["drop:tokens"] >= withheld
    assert max(most) < 150_000 + 2 * 2_000 * NUMBER_BYTES
    traced(list(range(2_000)))
    assert recorder.records(Open)[-1].prompt is not None, "there is room again"
