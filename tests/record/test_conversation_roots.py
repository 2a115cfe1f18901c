"""Calls that no spec knows: those whose messages continue each other get one root."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotrace.config.plan import Settings
from autotrace.record import calls, conversation_roots
from autotrace.record.context import Ended, OpenCall, Trace
from autotrace.record.conversation_roots import ConversationRoots
from autotrace.record.sampling import decision
from autotrace.spool.records import OF, Close, Define, Fact, Open

from .conftest import Recorder

Message = dict[str, Any]


class Client:
    """Asks a model; ``said`` is what it answers next. Its own name is what a list of ours would have."""

    def __init__(self, recorder: Recorder) -> None:
        self.said: Any = "yes"
        self.recorder = recorder
        answers: Callable[[], Any] = lambda: self.said  # noqa: E731

        def create(*, messages: Any, **_: Any) -> Any:
            if isinstance(said := answers(), Exception):
                raise said
            return {"choices": [{"message": {"role": "assistant", "content": said}}]}

        self.ask = recorder.wrap(create, key="client.create", role="llm", inside=True)

    def turns_of_each(self) -> set[str]:
        """The conversations, by name."""
        opened = self.recorder.records(Open)
        return {record.attributes[OF] for record in opened if OF in (record.attributes or {})}

    def turns(self) -> list[list[str]]:
        """What was asked last in each call, by conversation."""
        named: dict[str, list[str]] = {}
        for record in self.recorder.records(Open):
            if record.attributes and OF in record.attributes:
                named.setdefault(record.attributes[OF], []).append(record.inputs["messages"][-1]["content"])
        return [*named.values()]


@pytest.fixture
def client(recorder: Recorder) -> Iterator[Client]:
    yield Client(recorder)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def test_a_conversation_is_one_trajectory_with_a_root_that_ends(client: Client) -> None:
    client.ask(messages=[user("a")])
    client.ask(messages=[user("a"), assistant("yes"), user("b")])
    client.ask(messages=[user("other")])
    assert client.turns() == [["a", "b"], ["other"]]
    opened = [record for record in client.recorder.records(Open) if OF not in (record.attributes or {})]
    defined = {record.id: (record.key, record.role) for record in client.recorder.records(Define)}
    assert [defined[record.target] for record in opened] == [("conversation", "trajectory")] * 2
    named = {record.trace: record.key for record in client.recorder.records(Fact)}
    assert named == {record.trace: {"request": record.trace.hex(), "span": record.span} for record in opened}
    client.recorder.use(Settings(flush_interval=0.01))  # the end of the run
    ended = {record.span: record for record in client.recorder.read(Close)}
    last = [ended[record.span].at for record in opened]
    assert all(ended[record.span].status == "OK" for record in opened) and last == sorted(last)


def test_rollouts_of_one_prompt_are_not_mixed_up(client: Client) -> None:
    for answer in ("x", "y"):
        client.said = answer
        client.ask(messages=[user("a")])
    for answer in ("y", "x"):
        client.ask(messages=[user("a"), assistant(answer), user(f"after {answer}")])
    assert client.turns() == [["a", "after x"], ["a", "after y"]]
    opened = client.recorder.records(Open)
    assert len({record.attributes["prompt_digest"] for record in opened if OF not in record.attributes}) == 1


def test_who_asks_the_same_after_an_error_goes_on(client: Client) -> None:
    client.said = ValueError("busy")
    with pytest.raises(ValueError, match="busy"):
        client.ask(messages=[user("a")])
    client.said = "yes"
    for _ in range(2):
        client.ask(messages=[user("a")])
    assert client.turns() == [["a", "a"], ["a"]]


def test_what_clients_change_in_messages_does_not_part_them(client: Client) -> None:
    marked = {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}
    client.said = "  yes\n"
    client.ask(messages=[marked])
    again = {"role": "assistant", "name": "bot", "content": [{"type": "text", "text": "yes\n"}]}
    client.ask(messages=[user("a"), again, user("b")])
    assert [len(turns) for turns in client.turns()] == [2]


def test_a_conversation_of_more_messages_than_are_recorded(client: Client) -> None:
    long = [user("a"), *(turn for n in range(150) for turn in (assistant("yes"), user(f"{n}")))]
    for more in range(3):
        client.ask(messages=long + [turn for n in range(more) for turn in (assistant("yes"), user(f"more {n}"))])
    assert len(client.turns_of_each()) == 1


def test_messages_that_are_not_recorded_part_conversations(client: Client) -> None:
    for _ in range(2):
        client.ask(messages=(one for one in [user("a")]))
    assert len(client.turns_of_each()) == 2


def test_a_system_prompt_may_change(client: Client) -> None:
    client.ask(messages=[{"role": "system", "content": "It is 10:00."}, user("a")])
    client.ask(messages=[{"role": "system", "content": "It is 10:01."}, user("a"), assistant("yes"), user("b")])
    assert client.turns() == [["a", "b"]]


def test_a_root_of_the_users_switches_it_off(client: Client) -> None:
    client.recorder.wrap(user, key="agent.solve", role="trajectory", where="mine.yaml:1")
    client.ask(messages=[user("a")])
    assert client.recorder.records(Open) == []


def test_a_trainer_in_the_process_switches_it_off(client: Client) -> None:
    client.recorder.wrap(user, key="json.trainer", role="trajectory", where="patch_specs/trainer.yaml:1")
    client.ask(messages=[user("a")])
    assert client.recorder.records(Open) == []


def test_a_share_of_the_prompts_is_sampled_whole(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "decide", decision({"rate": 0.5}))
    for number in range(40):
        first = [user(f"task {number}")]
        client.ask(messages=first)
        client.ask(messages=[*first, assistant("yes"), user("go on")])
    turns = client.turns()
    assert 5 < len(turns) < 35 and {len(one) for one in turns} == {2}


def test_sampling_runs_no_code_of_the_hosts(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class Message(dict[str, Any]):
        def __str__(self) -> str:
            raise AssertionError("the host's code ran")

        __repr__ = __str__

    monkeypatch.setattr(calls, "decide", decision({"rate": 0.5}))
    for number in range(40):
        client.ask(messages=[Message(user(f"task {number}" + 100_000 * "x"))])
    assert 5 < len(client.turns()) < 35


def test_a_call_whose_end_never_comes_holds_no_conversation_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_roots, "MOST_OPEN", 2)
    monkeypatch.setattr(conversation_roots, "QUIET", 0.0)
    written: list[Any] = []
    roots = ConversationRoots(written.append, lambda *_: 1)
    for number in range(5):
        roots.begun(OpenCall(number + 1, Trace(b""), 0, None, None, 0), {"messages": [user(f"task {number}")]})
    roots.settle()
    assert len([record for record in written if isinstance(record, Close)]) == 3


def test_a_fault_of_ours_costs_a_call_its_place_alone(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_roots, "_digest", lambda _: 1 // 0)
    assert client.ask(messages=[user("a")])["choices"]
    monkeypatch.setattr("autotrace.record.orphans.rooted", lambda _: 1 // 0)
    assert client.ask(messages=[user("b")])["choices"]
    assert len(client.recorder.records(Open)) == 1 == len(client.recorder.records(Close))


def test_without_content_each_call_is_one(recorder: Recorder) -> None:
    recorder.use(Settings(flush_interval=0.01, content="none"))
    client = Client(recorder)
    client.ask(messages=[user("a")])
    client.ask(messages=[user("a"), assistant("yes"), user("b")])
    named = [record.attributes[OF] for record in recorder.records(Open) if OF in (record.attributes or {})]
    assert len(set(named)) == 2


def test_a_quiet_one_ends_and_what_comes_later_still_belongs_to_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_roots, "QUIET", 0.0)
    monkeypatch.setattr(conversation_roots, "LOOK_EVERY", 0.0)
    client.ask(messages=[user("a")])
    client.recorder.records()
    client.recorder.records()
    roots = {record.span for record in client.recorder.records(Open) if OF not in record.attributes}
    assert roots <= {record.span for record in client.recorder.records(Close)}
    client.ask(messages=[user("a"), assistant("yes"), user("b")])
    assert client.turns() == [["a", "b"]]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2), st.booleans()), max_size=40))
def test_the_conversations_of_random_trees_are_found(steps: list[tuple[int, int, bool]]) -> None:
    """Each step asks anew, one of three prompts, or goes on from an earlier turn, not always the last."""
    roots = ConversationRoots(lambda _: None, lambda *_: 1)
    turns: list[tuple[int, str, list[Message], str]] = []
    """Conversation, the root it got, messages, answer."""
    for number, (earlier, prompt, goes_on) in enumerate(steps):
        conversation, messages = number, [user(f"prompt {prompt}")]
        if goes_on and turns:
            conversation, _, before, said = turns[earlier % len(turns)]
            messages = [*before, assistant(said), user(f"then {number}")]
        call = OpenCall(number + 1, Trace(b""), 0, None, None, 0)
        root = roots.begun(call, {"messages": messages})[OF]
        answer = f"<{number}>"
        roots.ended(Ended(call, number), {"message": {"content": answer}})
        turns.append((conversation, root, messages, answer))
    assert len({root for _, root, _, _ in turns}) == len({conversation for conversation, *_ in turns})
    assert len({(conversation, root) for conversation, root, _, _ in turns}) == len({one for one, *_ in turns})
