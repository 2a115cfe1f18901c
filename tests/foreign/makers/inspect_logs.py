"""Inspect 0.3.285: an evaluation of two samples in two epochs with its model for tests, in both forms of its logs."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace
from typing import Any

import tiktoken
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import Tool, ToolError, tool

tiktoken.get_encoding = lambda name: SimpleNamespace(encode=lambda text, **named: text.split())  # else it is downloaded


@tool
def add() -> Tool:
    async def execute(a: int, b: int) -> str:
        """Add two numbers.

        Args:
            a: First.
            b: Second.
        """
        if a == 13:
            raise ToolError("thirteen is refused")
        return str(a + b)

    return execute


def answers() -> Any:
    for a, b in itertools.cycle([(1, 2), (13, 2), (3, 1), (1, 1)]):
        yield ModelOutput.for_tool_call("mockllm/model", "add", {"a": a, "b": b})
        yield ModelOutput.from_content(
            "mockllm/model", f"It is {a + b}.", stop_reason="max_tokens" if a == 3 else "stop"
        )


def main(folder: str) -> None:
    for form in ("eval", "json"):
        samples = [
            Sample(input="What is 1 plus 2?", target="3", id="a"),
            Sample(input="What is 2 plus 2?", target="15"),
        ]
        task = Task(dataset=samples, name="sums", solver=[system_message("You add."), use_tools(add()), generate()],
                    scorer=includes(), epochs=2)  # fmt: skip
        model = get_model("mockllm/model", custom_outputs=answers())
        eval(task, model=model, log_dir=f"{folder}/{form}", log_format=form, display="none", max_samples=1)


if __name__ == "__main__":
    main(sys.argv[1])
