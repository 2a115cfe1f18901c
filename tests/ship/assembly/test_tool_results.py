"""What tools returned, as text where it is nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.ship.assembly.message_parts import read_tool_results
from autotrace.trajectory.model import Span

TEXTS = [{"type": "text", "text": "4", "annotations": None}, {"type": "text", "text": "degrees"}]
IMAGE = {"type": "image", "data": "…"}
MESSAGE = {"type": "tool", "content": "4", "tool_call_id": "call_1", "name": "add"}


@pytest.mark.parametrize(
    ("output", "role", "shown"),
    [
        ({"content": TEXTS, "isError": False}, "tool", "4\ndegrees"),
        (MESSAGE, "tool", "4"),
        ({**MESSAGE, "artifact": [1]}, "tool", None),
        ({"content": [*TEXTS, IMAGE]}, "tool", None),
        ({"content": []}, "tool", None),
        ({"content": "4"}, "tool", None),
        ({"content": TEXTS}, "span", None),
        ("4", "tool", "4"),
    ],
)
def test_a_result_that_is_text_is_shown_as_text(output: Any, role: str, shown: str | None) -> None:
    span = Span("1", None, "add", role, "tools.add", 0, output=output)
    read_tool_results([span])
    assert span.output == (output if shown is None else shown)
