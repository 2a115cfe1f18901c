"""What a group's prompt becomes is found out once, and nobody gets at another's copy of it."""

from __future__ import annotations

import random

import pytest

from autotrace.config.plan import Settings
from autotrace.redact.redactor import Redactor
from autotrace.ship.assembly import shared_prompts
from autotrace.ship.assembly.conversation import ConversationDecoder
from autotrace.ship.assembly.shared_prompts import SharedPrompts
from autotrace.trajectory.markup import MARKUPS, matters
from tests.ship.assembly.test_conversation import SECRET, Decode, assembled, ids, recorded

PROMPT = ids("<|im_start|>system\nYou look things up.<|im_end|>\n<|im_start|>user\nWho was first?<|im_end|>\n" * 3)


def test_rollouts_with_one_prompt_have_it_decoded_once_and_messages_of_their_own() -> None:
    decode, redactor = Decode(), Redactor(Settings())
    shared, trajectories = SharedPrompts(decode, redactor), []
    for answer in ("Ada.", f"The key is {SECRET}"):
        trajectory = assembled(recorded([(PROMPT, ids(answer))]))
        ConversationDecoder(trajectory, decode, redactor, shared).fill()
        trajectories.append(trajectory)
    assert decode.tokens == len(PROMPT) + len("Ada.") + len(f"The key is {SECRET}")
    one, other = (trajectory.spans[1] for trajectory in trajectories)
    assert one.new_prompt_text == other.new_prompt_text == bytes(PROMPT).decode()
    assert one.messages is not None and other.messages is not None
    assert one.messages[:-1] == other.messages[:-1] and len(one.messages) == 7
    assert one.messages[-1]["content"] == "Ada." and SECRET not in str(other.messages)
    one.messages[0]["content"] = "changed"
    assert other.messages[0]["content"] == "You look things up."


def test_a_secret_in_a_shared_prompt_is_redacted_for_everybody() -> None:
    decode, redactor = Decode(), Redactor(Settings())
    shared = SharedPrompts(decode, redactor)
    for _ in range(2):
        trajectory = assembled(recorded([(ids(f"my key is {SECRET}, and " + "more " * 20), ids("Thanks."))]))
        ConversationDecoder(trajectory, decode, redactor, shared).fill()
        assert SECRET not in str(trajectory) and trajectory.spans[1].new_prompt_ids is None


def test_only_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = Decode()
    shared = SharedPrompts(decode, Redactor(Settings()))
    monkeypatch.setattr(shared_prompts, "MAX_CHARACTERS", 250)
    for letter in "abac":  # when c comes, b is the oldest
        shared.of(ids(letter * 100))
    decode.tokens = 0
    for letter in "ac":
        assert shared.of(ids(letter * 100)).text == letter * 100
    assert decode.tokens == 0
    assert shared.of(ids("b" * 100)).text == "b" * 100 and decode.tokens == 100


def test_the_end_that_matters_begins_with_the_last_mark_of_each_kind() -> None:
    choose = random.Random(1)
    pieces = [
        "<", "<|im_start|>", "user", "\n", "<|im_end|>", "<|start_header_id|>", "assistant", "<|end_header_id|>", "|>",
        "<start_of_turn>", "model", "<|user|>", "<|observation|>\n", "<\uff5cUser\uff5c>", "<|", "x" * 70, "<|tool|>",
    ]  # fmt: skip
    for _ in range(5_000):
        text = "".join(choose.choices(pieces, k=choose.randrange(12)))
        begins = [last.start() for markup in MARKUPS if (last := markup.last(text)) is not None]
        assert matters(text) == text[max(0, min([len(text) - 64, *begins])) :]
