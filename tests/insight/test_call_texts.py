"""Tool calls in texts: what is one in some format, and what is none."""

from __future__ import annotations

import pytest

from autotrace.insight.evidence import bare, marked

CALL = '{"name": "search", "arguments": {"query": "q"}}'


@pytest.mark.parametrize(
    "said",
    [
        f"<TOOLCALL>[{CALL}]</TOOLCALL>",
        f"<tool_calls>[{CALL}]</tool_calls>",
        f"<toolcall>{CALL}</toolcall>",
        f"&lt;tool_call&gt;{CALL}&lt;/tool_call&gt;",
        f"<|action_start|><|plugin|>\n{CALL}<|action_end|>",
        '<steptml:invoke name="search"><steptml:parameter name="query">q</steptml:parameter></steptml:invoke>',
        f"functools[{CALL}]",
        '\u273fFUNCTION\u273f: search\n\u273fARGS\u273f: {"query": "q"}',
        '{"tool_calls": [{"type": "function", "function": {"name": "search"}}]}',
        "<search> q </search>",
    ],
)
def test_a_call_in_another_format_is_one(said: str) -> None:
    asked = marked(f"Let me look.\n{said}", 0, {"search"})
    assert asked is not None and asked[:10] in said


@pytest.mark.parametrize(
    "said",
    [
        "A tool call is written with a tag and an object.",
        "<answer>4</answer>",
        '{"name": "Ada", "born": 1815}',
        "Use <button onclick=\"search('q')\">Search</button>.",
        "List<ToolCall> calls = new ArrayList<>();",
    ],
)
def test_what_is_no_call(said: str) -> None:
    assert marked(said, 0, {"search"}) is None
    assert bare(said) is None


def test_what_was_parsed_is_not_missed() -> None:
    assert marked(f"<tool_call>{CALL}</tool_call>", 1) is None
    assert marked(f"<tool_call>{CALL}</tool_call>", 0) is not None
