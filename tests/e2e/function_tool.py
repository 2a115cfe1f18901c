"""The tool of the end-to-end test as a veRL function tool (``multi_turn.function_tool_path``)."""

from verl.tools.function_tool import function_tool


@function_tool
def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: a
        b: b
    """
    return str(int(a) + int(b))
