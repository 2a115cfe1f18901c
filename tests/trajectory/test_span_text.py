"""What a trajectory was asked."""

from __future__ import annotations

from typing import Any

from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.span_text import PROMPT_LINE, message_text, prompt_line, question


def asked(*messages: dict[str, Any], inputs: dict[str, Any] | None = None, **fields: Any) -> Trajectory:
    root = Span("1" * 16, None, "run", "trajectory", "run", 1, end_ns=9, inputs=inputs or {})
    turn = Span("2" * 16, root.span_id, "generate", "llm", "generate", 2, end_ns=3, **fields)
    if messages:
        turn.messages = list(messages)
    return Trajectory("0" * 32, "run", [root, turn])


def test_the_users_last_message_before_the_model_first_answered() -> None:
    system, user = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "\n  How many plums? \nThink."},
    )
    assert prompt_line(asked(system, {"role": "user", "content": "Hello"}, user)) == "How many plums?"
    parts = [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "What is it?"}]
    assert question(asked({"role": "user", "content": parts})) == "What is it?"
    assert prompt_line(asked({"role": "user", "content": "x" * 500})) == "x" * PROMPT_LINE


def test_without_messages_what_was_decoded_else_what_the_function_was_given() -> None:
    assert prompt_line(asked(new_prompt_text="How many pears?\nNow.")) == "How many pears?"
    assert prompt_line(asked(inputs={"task": "count the plums"})) == "count the plums"
    assert prompt_line(asked()) is None


def test_the_text_of_a_message_describes_the_images_between_its_words() -> None:
    url = {"type": "image_url", "image_url": {"url": "<image/png 8x8, 90 bytes>"}}
    source = {"type": "image", "source": {"type": "base64", "data": "<image/jpeg 8x8, 1 kB>"}}
    spoken = {"type": "input_audio", "input_audio": {"data": "..."}}
    parts = [
        {"type": "text", "text": "what is this?"},
        url,
        source,
        {"type": "input_image", "image_url": "<image/gif 1x1, 9 bytes>"},
    ]
    words = "what is this?\n<image/png 8x8, 90 bytes>\n<image/jpeg 8x8, 1 kB>\n<image/gif 1x1, 9 bytes>"
    assert message_text({"role": "user", "content": parts}, named=False) == words
    # a part that no rule reads leaves the message as JSON, so nothing is lost
    assert '"input_audio"' in message_text({"role": "user", "content": [*parts, spoken]}, named=False)
