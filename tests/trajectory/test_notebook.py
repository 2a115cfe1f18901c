"""What a notebook shows of a trajectory."""

from __future__ import annotations

from html.parser import HTMLParser

from autotrace.cli import notebook as notebook
from autotrace.trajectory.model import Span, Trajectory

HOSTILE = "<script>alert(1)</script> \x1b[31m \u202egnp \ud83e \"' onload=x"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_it_is_what_show_prints_and_all_of_it_is_escaped() -> None:
    def span(number: int, role: str, **more: object) -> Span:
        return Span(f"{number:016x}", None, "f", role, "k", number, number + 1, "OK", **more)  # type: ignore[arg-type]

    turn = span(
        1, "llm", new_prompt_text=HOSTILE, response_text=HOSTILE, response_tokens=3, logprobs=[-0.5, -2.0, -0.5]
    )
    tool = span(2, "tool", inputs={"tool_call": {"name": HOSTILE, "arguments": HOSTILE}}, output=HOSTILE)
    facts = {"reward": 0.5, "advantage": HOSTILE}
    one = Trajectory(
        "a" * 32, "run", [span(0, "trajectory"), turn, tool], {"step": 3, "uid": HOSTILE}, facts, [HOSTILE]
    )

    page = Tags()
    page.feed(one._repr_html_())
    assert set(page.tags) <= {"pre", "span"} and set(page.attributes) <= {"style"}
    assert "\x1b" not in page.text and "\\x1b[31m" in page.text and "\\u202e" in page.text and "\\ud83e" in page.text
    assert "<script>alert(1)</script>" in page.text and "reward 0.5" in page.text


def test_a_very_long_text_is_cut_and_says_so() -> None:
    root = Span("0" * 16, None, "f", "trajectory", "k", 0)
    turn = Span("1" * 16, root.span_id, "g", "llm", "k", 1, 2, "OK", response_text="x" * 10_000_000)
    shown = Trajectory("a" * 32, "run", [root, turn])._repr_html_()
    assert len(shown) < 30_000 and "9,999,840 characters more" in shown
