"""What was said: loops of answers that were cut soon after they began, and text that is none."""

from __future__ import annotations

import pytest

from tests.insight.made import TrainerSettings, llm, marks, span, trajectory

END = 9
SETTINGS = TrainerSettings.of([("tokenizer", {"end_tokens": [END]})])


def said(ids: list[int], text: str = "") -> list[tuple[str, int | None, int | None]]:
    agent = span("agent", None)
    judge = span("reward", agent.span_id, 3, inputs={"solution_str": text})
    return marks(trajectory(agent, llm(agent.span_id, 1, [1, 2], ids), judge), SETTINGS)


def test_a_loop_that_was_cut_soon_is_found_where_it_begins() -> None:
    assert said([*range(100, 700), *[3, 4, 5] * 40]) == [("AT-REPETITION", 1, 600)]


def test_a_piece_that_happens_to_be_said_before_is_not_its_beginning() -> None:
    before = [*range(100, 400), 3, 70, 3, 71, 3]
    assert said([*before, *[3, 4, 5, 6] * 100]) in ([("AT-REPETITION", 1, 305)], [("AT-REPETITION", 1, 304)])


def test_a_short_loop_that_ends_is_none() -> None:
    assert said([*range(100, 700), *[3, 4, 5] * 40, END]) == []


@pytest.mark.parametrize(
    "text",
    [
        "".join("\u0436\u03c0\u3042\uc774\u0e01\u0639\u05d0q"[number * 5 % 8] for number in range(120)),
        "".join(chr(1 + number % 7) for number in range(60)) + "and so on",
        "\ue000\ue001\ue002\ue003" * 20,
        "caf\u00c3\u0083\u00c2\u0081 " * 20,
    ],
)
def test_text_that_is_none(text: str) -> None:
    assert [code for code, _, _ in said([5, 6, END], text)] == ["AT-GARBLED"]


@pytest.mark.parametrize(
    "text",
    [
        "Water: agua, \u6c34, \u0432\u043e\u0434\u0430, \u03bd\u03b5\u03c1\u03cc, \ubb3c, \u0645\u0627\u0621.",
        "\u1f08\u03c1\u03c7\u1f74 \u1f25\u03bc\u03b9\u03c3\u03c5 \u1f61\u03c2 \u03bb\u03ad\u03b3\u03bf.",
        "API\ub97c \ud638\ucd9c\ud558\uace0 JSON\uc744 \uc77d\ub294\ub2e4.",
        "\x1b[31mred\x1b[0m " * 20,
    ],
)
def test_text_of_many_languages_is_text(text: str) -> None:
    assert said([5, 6, END], text) == []
