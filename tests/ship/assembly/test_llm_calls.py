"""Chats out of what clients are given and return; one turn for a call that is made of others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autotrace.ship.assembly import chat
from autotrace.ship.assembly.llm_calls import read_llm_calls
from autotrace.spool.records import OF
from autotrace.trajectory.model import Span, Trajectory, own_calls

HELLO = {"role": "user", "content": "Hello"}
HI = {"role": "assistant", "content": "Hi"}


def call(
    inputs: dict[str, Any], output: Any = None, id: str = "1", parent: str | None = None, role: str = "llm"
) -> Span:
    return Span(id, parent, "ask", role, "agents.ask", 0, status="OK", inputs=inputs, output=output)


@pytest.mark.parametrize(
    ("status", "details", "shown"),
    [
        ("incomplete", {"reason": "max_output_tokens"}, "length"),
        ("incomplete", {"reason": "content_filter"}, "content_filter"),
        ("incomplete", None, None),
        ("incomplete", {"reason": ["max_output_tokens"]}, None),
        ("completed", {"reason": "max_output_tokens"}, None),
    ],
)
def test_why_a_response_ended_early(status: str, details: Any, shown: str | None) -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
    span = call({"input": "Hello"}, {"status": status, "incomplete_details": details, "output": [message]})
    chat.read(span)
    assert span.messages == [HELLO, HI]
    assert span.attributes.get("finish_reason") == shown


def test_a_response_that_was_cut_while_it_reasoned_has_no_answer_and_says_so() -> None:
    output = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [{"type": "reasoning", "summary": []}],
        "usage": {"input_tokens": 9, "output_tokens": 64},
    }
    span = call({"input": "Hello"}, output)
    chat.read(span)
    assert (span.messages, span.output) == ([HELLO], output)
    assert (span.prompt_tokens, span.response_tokens, span.attributes["finish_reason"]) == (9, 64, "length")


def test_content_blocks_with_tools() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "cats"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "nine lives"}]}
    span = call(
        {
            "system": "Be brief.",
            "messages": [
                HELLO,
                {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, use]},
                {"role": "user", "content": [result]},
            ],
        },
        {
            "type": "Message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "TextBlock", "text": "Nine."}, {"type": "thinking", "thinking": "hm"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 4},
        },
    )
    chat.read(span)
    function = {"name": "search", "arguments": json.dumps({"q": "cats"})}
    assert span.messages == [
        {"role": "system", "content": "Be brief."},
        HELLO,
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [{"id": "t1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "nine lives"},
        {"role": "assistant", "content": "Nine.", "reasoning_content": "hm"},
    ]
    assert (span.prompt_tokens, span.response_tokens) == (13, 2), "with what the cache had"
    assert span.attributes == {"cached_tokens": 4, "model": "m", "finish_reason": "end_turn"}
    assert span.inputs == {} and span.output == {"model": "m", "stop_reason": "end_turn"}


def test_an_image_stays_an_image() -> None:
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "image 64x64"}}]
    span = call({"messages": [{"role": "user", "content": content}]}, HI)
    chat.read(span)
    assert span.messages == [{"role": "user", "content": content}, HI]


@pytest.mark.parametrize(
    ("inputs", "output"),
    [
        ({"sampling_params": {"n": 1}}, {"stop_reason": "stop"}),
        ({"input": {"x": 1}}, {"choices": []}),
        ({"messages": [1, "two"]}, None),
        ({"messages": "not yet"}, {"choices": [{"message": None}]}),
        ({"prompt": [1, 2, 3]}, [4, 5]),
    ],
)
def test_what_is_no_chat_stays_where_it_is(inputs: dict[str, Any], output: Any) -> None:
    span = call(dict(inputs), output)
    chat.read(span)
    assert (span.messages, span.inputs, span.output) == (None, inputs, output)


@pytest.mark.parametrize(
    "output",
    [
        {"choices": [{"message": {"role": "assistant", "content": {"…": "cut"}, "tool_calls": {"…": "3 items"}}}]},
        {"choices": [{"message": {"tool_calls": [{"function": "add"}, 3, {"function": {"name": None}}]}}]},
        {"output": [{"type": "function_call"}, {"type": "reasoning"}, 5]},
        {"content": [{"type": "tool_use"}, 7], "role": "assistant", "usage": {"input_tokens": "many"}},
        {"usage": [], "choices": {"0": 1}},
    ],
)
def test_what_was_cut_or_made_up_costs_nothing(output: Any) -> None:
    span = call({"messages": [HELLO]}, output)
    read_llm_calls([span])
    assert span.messages is not None and span.messages[0] == HELLO


def test_more_than_one_choice_is_not_thrown_away() -> None:
    choices = [{"message": HI}, {"message": {"role": "assistant", "content": "Hey"}}]
    span = call({"messages": [HELLO]}, {"choices": choices})
    chat.read(span)
    assert span.messages == [HELLO, HI] and span.output == {"choices": choices}


def test_tokens_that_have_fields_of_their_own_are_not_in_the_output_as_well() -> None:
    output = {"prompt_token_ids": [1], "choices": [{"message": HI, "token_ids": [2, 3]}]}
    kept, gone = call({"messages": [HELLO]}, output), call({"messages": [HELLO]}, output)
    gone.prompt_ids, gone.response_ids = [1], [2, 3]
    read_llm_calls([kept])
    read_llm_calls([gone])
    assert (kept.output, gone.output) == ({"prompt_token_ids": [1], "token_ids": [2, 3]}, None)


def test_a_call_made_of_calls_is_one_turn() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 5}
    root = call({}, None, "root", role="trajectory")
    outer = call({"question": "Hello"}, "Hi", "outer", "root")
    inner = call({"messages": [HELLO]}, {"choices": [{"message": HI}], "usage": usage, "model": "m"}, "inner", "outer")
    judge = call({"messages": [HELLO]}, {"choices": [{"message": HI}]}, "judge", "tool")
    tool = call({}, None, "tool", "outer", role="tool")
    spans = [root, outer, inner, tool, judge]
    read_llm_calls(spans)
    assert [span.role for span in spans] == ["trajectory", "llm", "engine", "tool", "llm"]
    assert Trajectory("t", "r", spans).llm_spans == [outer]
    assert (outer.messages, outer.prompt_tokens, outer.response_tokens) == ([HELLO, HI], 7, 5)
    assert outer.attributes["model"] == "m"


def test_the_call_that_has_the_tokens_is_the_turn() -> None:
    outer, inner = call({"question": "Hello"}, "Hi", "outer"), call({}, None, "inner", "outer")
    inner.prompt_ids, inner.response_ids = [1, 2], [3]
    read_llm_calls([outer, inner])
    assert (outer.role, inner.role) == ("span", "llm")


@pytest.mark.parametrize("beside", [(2, 5, "engine"), (12, 15, "llm")], ids=["during it", "after it"])
def test_a_client_beside_the_call_that_has_the_tokens_is_no_turn_of_its_own(beside: tuple[int, int, str]) -> None:
    """A server's report of a request, which begins when that does, and the client by which the server passed it on."""
    start, end, role = beside
    outer, report, client = (
        call({}, None, "outer"),
        call({}, None, "report", "outer"),
        call({}, None, "client", "outer"),
    )
    outer.start_ns, outer.end_ns = 0, 20
    report.start_ns, report.end_ns, report.prompt_ids, report.response_ids = 1, 10, [1, 2], [3]
    client.start_ns, client.end_ns = start, end
    read_llm_calls([outer, report, client])
    assert (outer.role, report.role, client.role) == ("span", "llm", role)


def test_a_servers_side_is_joined_by_the_question_that_a_call_inside_of_it_tells() -> None:
    asked = call({"messages": [HELLO]}, HI, "asked", "root")
    other = call({"messages": [{"role": "user", "content": "Bye"}]}, HI, "other", "root")
    served, report = call({}, None, "served", "root"), call({"messages": [HELLO]}, HI, "report", "served")
    served.attributes[OF] = "session"
    report.prompt_ids, report.response_ids = [1, 2], [3]
    for span, start in (asked, 0), (other, 0), (served, 1), (report, 2):
        span.start_ns, span.end_ns = start, 10 - start
    read_llm_calls([other, asked, served, report])
    assert served.parent_id == "asked"
    assert [span.role for span in (other, asked, served, report)] == ["llm", "span", "engine", "llm"]


def asking(id: str, parent: str, start: int, end: int, question: str = "", answer: str = "", **more: Any) -> Span:
    """A call with these times; ``of``: joined by its id; ``ids``: it has these tokens."""
    inputs = {"messages": [{"role": "user", "content": question}]} if question else {}
    span = call(
        inputs, {"role": "assistant", "content": answer} if answer else None, id, parent, more.get("role", "llm")
    )
    span.start_ns, span.end_ns, span.status = start, end or None, "OK" if end else "OPEN"
    if ids := more.get("ids"):
        span.prompt_ids, span.response_ids = [1, 2], ids
    if more.get("of"):
        span.attributes[OF] = "session"
    return span


def turns(*spans: Span) -> list[tuple[str, list[int] | None]]:
    root = asking("root", "", -1, 1_000, role="trajectory")
    read_llm_calls([root, *spans])
    return [(span.span_id, span.response_ids) for span in own_calls([root, *spans])]


@pytest.mark.parametrize(
    ("below", "expected"),
    [
        ([asking("tool", "outer", 5, 9, role="tool"), asking("judge", "tool", 6, 8, "Good?", "Yes.")], []),
        ([asking("score", "outer", 5, 9, role="reward"), asking("judge", "score", 6, 8, "Good?", "Yes.")], []),
        ([asking("other", "outer", 2, 8, "Bye", "Bye!")], [("other", None)]),
        ([asking("again", "outer", 2, 8, "Hello", "Hi")], []),
    ],
    ids=["a tool's", "a reward's", "another question", "the same"],
)
def test_what_asks_something_else_during_a_request_stays_what_it_is(below: list[Span], expected: list[Any]) -> None:
    outer, report = asking("outer", "root", 0, 20), asking("report", "outer", 1, 19, "Hello", "Hi", ids=[3])
    assert turns(outer, report, *below) == [("report", [3]), *expected]
    assert report.messages == [HELLO, HI]
    assert below[-1].role == ("engine" if below[-1].span_id == "again" else "llm")


def test_a_call_inside_of_a_servers_side_is_not_the_client_that_asked_it() -> None:
    for start, end in ((5, 0), (5, 9)):  # another machine's clock is behind; the server's side was not ended
        served = asking("served", "root", start, end, of=True)
        assert turns(served, asking("report", "served", 4, 9, "Hello", "Hi", ids=[3])) == [("report", [3])]
        assert served.parent_id == "root"


def test_a_client_that_tries_again_is_one_turn() -> None:
    client, failed = asking("client", "root", 0, 20, "Hello", "Hi"), asking("failed", "root", 1, 5, "Hello", of=True)
    failed.status = "ERROR"
    assert turns(client, failed, asking("served", "root", 8, 18, "Hello", "Hi", ids=[3], of=True)) == [("served", [3])]


@pytest.mark.parametrize(("first", "second"), [(12, 10), (20, 19)], ids=["crossed", "nested"])
def test_of_clients_that_ask_the_same_at_once_each_has_its_answer(first: int, second: int) -> None:
    a, b = asking("a", "root", 0, first, "Hello", "A"), asking("b", "root", 1, second, "Hello", "B")
    of_b = asking("of b", "root", 2, 9, "Hello", "B", ids=[22], of=True)
    of_a = asking("of a", "root", 3, 11, "Hello", "A", ids=[11], of=True)
    assert turns(a, b, of_b, of_a) == [("of b", [22]), ("of a", [11])]
    assert (of_a.parent_id, of_b.parent_id) == ("a", "b")


def test_a_request_that_is_open_is_not_of_a_client_that_gave_up() -> None:
    gave_up, open_one = asking("1", "root", 0, 5, "Hello"), asking("2", "root", 6, 0, "Hello")
    assert turns(gave_up, open_one, asking("3", "root", 7, 0, "Hello", ids=[3], of=True)) == [("1", None), ("3", [3])]


def test_an_answer_without_usage_is_counted_by_the_engine_that_served_it() -> None:
    def served(tokens: int, id: str, parent: str) -> Span:
        span = call({}, None, id, parent, "engine")
        span.prompt_tokens, span.response_tokens = tokens, 2
        return span

    told = call({"messages": [HELLO]}, {"choices": [{"message": HI}], "usage": {"prompt_tokens": 7}}, "1")
    silent, samples = call({"messages": [HELLO]}, None, "2"), call({"messages": [HELLO]}, None, "3")
    handlers = [call({}, None, f"{number}h", str(number), "engine") for number in (1, 2, 3)]
    requests = [served(5, "1e", "1h"), served(6, "2e", "2h"), served(8, "3e", "3h"), served(8, "3f", "3h")]
    read_llm_calls([told, silent, samples, *handlers, *requests])
    assert [span.prompt_tokens for span in (told, silent, samples)] == [7, 6, None], (
        "of several samples nothing is known"
    )
    assert silent.response_tokens == 2


@pytest.mark.parametrize(
    ("again", "once"),
    [
        ([HELLO, {"role": "user", "content": "Are you there?"}], True),
        ([{"role": "user", "content": "Hello\nAre you there?"}], True),
        ([{"role": "system", "content": "Be brief."}, HELLO, {"role": "user", "content": "Are you there?"}], False),
    ],
)
def test_what_a_framework_and_its_client_are_both_given_stands_once(again: list[Any], once: bool) -> None:
    asked = [HELLO, {"role": "human", "content": "Are you there?"}]
    framework, client = call({"messages": asked}, HI), call({"messages": again}, HI, "2", "1")
    read_llm_calls([framework, client])
    assert (framework.role, client.role) == ("llm", "engine") and framework.messages == [*asked, HI]
    assert (client.messages is None) == once
