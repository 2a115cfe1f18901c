"""Texts of turns that share what came before: decoded once, redacted everywhere, whatever goes on from where."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence

from autotrace.config.plan import Settings
from autotrace.record.token_prefixes import TokenLog
from autotrace.redact.redactor import Redactor
from autotrace.ship.assembly.assembler import Assembly, Callee, Origin
from autotrace.ship.assembly.conversation import ConversationDecoder
from autotrace.spool.records import FORMAT, Close, Header, Open
from autotrace.trajectory.model import Trajectory

SECRET = "sk-proj-" + "Ab1" * 16
HEADER = Header(FORMAT, "run", "node", 1, "boot", "python", "", 0, 0)
TARGETS = {0: Callee("", "Agent.run", "agent"), 1: Callee("", "Client.generate", "llm")}


def ids(text: str) -> list[int]:
    return [*text.encode()]


class Decode:
    """Tokens are bytes; counts what it decodes."""

    joins = True

    def __init__(self) -> None:
        self.tokens = 0

    def __call__(self, ids: Sequence[int]) -> str:
        self.tokens += len(ids)
        return bytes(list(ids)).decode("utf-8", "replace")


def recorded(calls: list[tuple[list[int], list[int]]]) -> list[Open | Close]:
    """The records of a trajectory whose LLM calls had these prompts and responses."""
    log, trace, at = TokenLog(0), b"t" * 16, 1
    records: list[Open | Close] = [Open(1, trace, 0, 0, at)]
    for span, (prompt, response) in enumerate(calls, 2):
        written, note = log.prompt(prompt, False)
        records.append(Open(span, trace, 1, 1, at := at + 1, prompt=written))
        records.append(Close(span, trace, at := at + 1, "OK", response=log.response(note, response, False)))
    return [*records, Close(1, trace, at + 1, "OK")]


def assembled(records: list[Open | Close]) -> Trajectory:
    assembly, origin = Assembly(), Origin("node-1-aa", HEADER, lambda: TARGETS, 0)
    for record in records:
        assembly.add(origin, record)
    made = assembly.finish(lambda process: None, final=False)
    assert made is not None
    return Trajectory("00" * 16, "run", made.spans, notes=list(made.notes))


def filled(calls: list[tuple[list[int], list[int]]], decode: Callable[[list[int]], str] | None = None) -> Trajectory:
    trajectory = assembled(recorded(calls))
    ConversationDecoder(trajectory, decode or Decode(), Redactor(Settings(max_string=1 << 40))).fill()
    return trajectory


def test_two_calls_that_go_on_from_the_same_answer_have_their_own_texts() -> None:
    first, answer = ids("Question? "), ids("Answer. ")
    shared = first + answer
    calls = [
        (first, answer),
        (shared + ids("So? "), ids("A.")),
        (shared + ids("But? "), ids("B.")),
        (shared, ids("C.")),
    ]
    spans = filled(calls).llm_spans
    assert [span.prompt_text for span in spans] == [bytes(prompt).decode() for prompt, _ in calls]
    assert [span.prompt_ids for span in spans] == [prompt for prompt, _ in calls]
    assert [span.new_prompt_text for span in spans] == ["Question? ", "So? ", "But? ", ""]
    assert [span.response_text for span in spans] == ["Answer. ", "A.", "B.", "C."]


def test_what_is_redacted_in_one_turn_is_redacted_in_all_that_repeat_it_and_no_ids_spell_it() -> None:
    calls, prompt = [], ids("Begin. ")
    for said in ("Fine. ", f"It is {SECRET} then. ", "Done. "):
        calls.append((prompt, ids(said)))
        prompt = [*prompt, *ids(said), *ids("Go on. ")]
    trajectory = filled(calls)
    agent, before, secret, after = trajectory.spans
    assert before.prompt_ids == calls[0][0] and before.response_ids == calls[0][1]
    assert secret.response_ids is None and secret.new_prompt_ids == ids("Go on. ")
    assert secret.prompt_ids is None and after.prompt_ids is None, "the prompt repeats what was said before"
    assert after.response_ids == calls[2][1]
    texts = [getattr(span, name) for span in trajectory.spans
             for name in ("prompt_text", "new_prompt_text", "response_text", "messages")]  # fmt: skip
    assert SECRET not in str(texts) and "It is <redacted> then. " in (after.prompt_text or "")
    assert agent.prompt_text == "Begin. " and (agent.response_text or "").startswith("Fine. Go on. It is <redacted>")
    assert trajectory.notes == [
        f"redacted after decoding, token ids left out: {name}"
        for name in ("Agent.run", "Client.generate", "Client.generate")
    ]


def test_a_failing_tokenizer_leaves_nothing_that_was_not_redacted() -> None:
    decode = Decode()

    def fails(tokens: Sequence[int]) -> str:
        if list(tokens) == ids("boom"):
            raise ValueError("no such token")
        return decode(tokens)

    trajectory = assembled(recorded([(ids("Begin. "), ids(f"It is {SECRET}.")), (ids("Other."), ids("boom"))]))
    try:
        ConversationDecoder(trajectory, fails, Redactor(Settings())).fill()
    except ValueError as error:
        assert "no such token" in str(error)
    assert SECRET not in str([(span.response_text, span.messages) for span in trajectory.spans])
    assert trajectory.llm_spans[0].response_ids is None


def test_a_character_that_is_split_between_two_turns_is_whole_in_the_whole_text() -> None:
    first, second = "é".encode()
    prompt = ids("Spell. ")
    trajectory = filled([(prompt, [first]), ([*prompt, first, second], ids("!"))])
    assert trajectory.root.response_text == "é!"
    assert trajectory.llm_spans[0].response_text == "�"


def test_each_token_is_decoded_once() -> None:
    decode, calls = Decode(), conversation(50)
    filled(calls, decode)
    assert decode.tokens == len(calls[-1][0]) + len(calls[-1][1])


class AtOnce(Decode):
    """As ``ByteLevel`` with a table of Arrow's: many sequences in one call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def each(self, sequences: Sequence[array[int]]) -> list[str] | None:
        """None: one of them is to be asked for by itself."""
        self.calls.append(len(sequences))
        return None if any(7 in ids for ids in sequences) else [self(ids) for ids in sequences]


def test_what_a_trajectory_added_is_decoded_in_one_call_also_where_a_call_said_nothing() -> None:
    calls = conversation(5)
    prompt, _ = calls[2]
    calls[2] = (prompt, [])
    decode = AtOnce()
    at_once, singly = filled(calls, decode), filled(calls)
    assert len(decode.calls) == 1 and decode.calls[0] > 5
    assert at_once == singly


def test_what_cannot_be_decoded_at_once_is_decoded_one_by_one() -> None:
    calls = [*conversation(3), (ids("Bell: \a"), ids("Ding."))]
    assert filled(calls, AtOnce()) == filled(calls)


def test_a_trajectory_costs_its_turns_and_not_their_square() -> None:
    def cost(turns: int) -> float:
        records, spent = recorded(conversation(turns)), []
        for _ in range(5):
            began = time.thread_time_ns()
            ConversationDecoder(assembled(records), Decode(), Redactor(Settings())).fill()
            spent.append(time.thread_time_ns() - began)
        return min(spent)

    cost(20)
    assert cost(320) < 20 * cost(40), "8 times as many turns"


def conversation(turns: int) -> list[tuple[list[int], list[int]]]:
    """Of a hundred tokens a turn."""
    calls: list[tuple[list[int], list[int]]] = []
    prompt = ids("Begin. ")
    for turn in range(turns):
        said = ids(f"This is turn {turn} of many, and all of it is said. ")
        calls.append((prompt, said))
        prompt = [*prompt, *said, *ids("<tool_response> an answer that is short </tool_response> ")]
    return calls
