"""How trajectories end, what their tools and rewards do: what fires, and what resembles it."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.insight.examine import examine
from autotrace.trajectory.model import Span
from tests.insight.made import TrainerSettings, llm, marks, span, trajectory

END = 2
LIMITS = {"end_tokens": frozenset({END})}
SENTENCE = list(range(10, 40))


def ending(response: list[int], settings: dict[str, Any], **given: Any) -> list[tuple[str, int | None, int | None]]:
    """One turn with a prompt of 100 tokens."""
    agent = span("agent", None)
    return marks(
        trajectory(agent, llm(agent.span_id, 1, range(100), response, **given)),
        TrainerSettings(**{**LIMITS, **settings}),
    )


@pytest.mark.parametrize(
    ("settings", "response", "given", "expected"),
    [
        ({"max_model_len": 130}, SENTENCE, {}, "AT-TRUNCATED-CONTEXT"),
        ({"max_model_len": 131}, SENTENCE, {}, "AT-TRUNCATED-CONTEXT"),
        ({"response_length": 30}, SENTENCE, {}, "AT-TRUNCATED-RESPONSE"),
        ({"prompt_length": 100, "response_length": 500}, SENTENCE, {}, None),
        ({"max_model_len": 500}, SENTENCE, {"attributes": {"finish_reason": "length"}}, "AT-TRUNCATED"),
        ({"max_model_len": 130}, [*SENTENCE[:-1], END], {}, None),
        ({"response_length": 30}, SENTENCE, {"inputs": {"sampling_params": {"max_tokens": 30}}}, None),
        ({"max_model_len": 500}, SENTENCE, {"attributes": {"stop_reason": "aborted"}}, "AT-ABORTED"),
        ({}, [], {}, "AT-EMPTY-ANSWER"),
        ({}, [END], {}, "AT-EMPTY-ANSWER"),
        ({}, [5, END], {}, None),
    ],
)
def test_an_ending(settings: dict[str, Any], response: list[int], given: dict[str, Any], expected: str | None) -> None:
    assert [code for code, _, _ in ending(response, settings, **given)] == ([expected] if expected else [])


def test_of_a_cut_answer_its_length_is_the_token() -> None:
    assert ending(SENTENCE, {"max_model_len": 130}) == [("AT-TRUNCATED-CONTEXT", 1, 30)]


def test_a_cut_answer_says_which_limit_it_reached() -> None:
    for settings, limit in (
        ({"max_model_len": 130}, 130),
        ({"response_length": 30}, 30),
        ({"max_model_len": 4096, "prompt_length": 80, "response_length": 50}, 130),
    ):
        agent = span("agent", None)
        one = trajectory(agent, llm(agent.span_id, 1, range(100), SENTENCE))
        (mark,) = examine(one, TrainerSettings(**{**LIMITS, **settings})).marks
        assert mark.note == f"prompt 100 and answer 30 tokens, the limit is {limit}"


def test_an_answer_of_unknown_length_is_cut_where_the_server_says_so() -> None:
    asked = span("llm", None, 1, attributes={"finish_reason": "length"})
    (mark,) = examine(trajectory(asked), TrainerSettings()).marks
    assert (mark.code, mark.token, mark.note) == ("AT-TRUNCATED", None, "prompt ? and answer ? tokens")
    assert not marks(trajectory(span("llm", None, 1)))


def test_an_empty_first_answer_whose_prompt_is_returned() -> None:
    agent = span("agent", None)
    agent.response_ids, agent.response_mask = list(range(100)), []
    found = marks(trajectory(agent, llm(agent.span_id, 1, range(100), [])), TrainerSettings())
    assert {code for code, _, _ in found} == {"AT-EMPTY-ANSWER", "AT-PROMPT-TRAINED"}


def tool_codes(**given: Any) -> list[str]:
    """Of a trajectory whose tool does that."""
    agent = span("agent", None)
    call = span("tool", agent.span_id, 3, **{"inputs": {"tool_call": {"name": "search"}}, **given})
    return [code for code, _, _ in marks(trajectory(agent, llm(agent.span_id, 1, [1], [3, END]), call))]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"status": "ERROR", "error": ("RuntimeError", "no index", "")}, "AT-TOOL-RAISES"),
        ({"status": "ERROR", "error": ("asyncio.TimeoutError", "", "")}, "AT-TOOL-TIMEOUT"),
        (
            {"status": "ERROR", "error": ("TypeError", "f() missing 1 required positional argument: 'q'", "")},
            "AT-TOOL-ARGUMENTS",
        ),
        ({"output": [{"text": "Unknown function: 'treble'"}, 0.0, {}]}, "AT-TOOL-UNKNOWN"),
        ({"output": "Error: connection refused"}, "AT-TOOL-ERROR-TEXT"),
        ({"output": "HTTP 503 from upstream"}, "AT-TOOL-ERROR-TEXT"),
        ({"output": '{"result": null, "error": {"code": -32000}}'}, "AT-TOOL-ERROR-TEXT"),
        ({"output": "1 validation error for Flight\ndate"}, "AT-TOOL-ARGUMENTS"),
        ({"status": "ERROR", "error": ("grpc.DeadlineExceeded", "504", "")}, "AT-TOOL-TIMEOUT"),
        ({"output": '{"result": 4, "error": null}'}, None),
        ({"output": "The word error occurs in this page."}, None),
        ({"output": "The search timed out. " * 20}, None),  # a page that tells of one
        ({"output": "4"}, None),
        ({"output": "Error: x", "inputs": {"tool_call": {"name": "python_interpreter"}}}, None),
        ({"status": "CANCELLED", "error": ("CancelledError", "", "")}, None),
    ],
)
def test_what_a_tool_does(given: dict[str, Any], code: str | None) -> None:
    assert tool_codes(**given) == ([code] if code else [])


def test_the_tools_own_call_below_the_agents_says_what_it_raised() -> None:
    agent = span("agent", None)
    outer = span("tool", agent.span_id, 3, inputs={"tool_call": {"name": "search"}}, output="Error executing tool")
    inner = span("tool", outer.span_id, 3, status="ERROR", error=("KeyError", "'x'", ""), name="Search.call")
    profile = examine(trajectory(agent, outer, inner), TrainerSettings())
    assert [(mark.code, mark.kind) for mark in profile.marks] == [("AT-TOOL-RAISES", "search: KeyError: '…'")]
    assert [(tool.name, tool.calls, tool.failed) for tool in profile.tools] == [("search", 1, 1)]


def test_the_same_call_again_and_one_whose_answer_changes() -> None:
    def made(answers: list[str]) -> list[str]:
        agent = span("agent", None)
        calls = [
            span("tool", agent.span_id, n, inputs={"tool_call": {"name": "s"}}, output=a) for n, a in enumerate(answers)
        ]
        return [code for code, _, _ in marks(trajectory(agent, *calls))]

    assert made(["no", "no", "no"]) == ["AT-CALL-REPEATED"]
    assert made(["wait", "wait", "done"]) == []


def test_the_same_call_in_the_next_turn() -> None:
    def made(*asked: tuple[str, str], **given: Any) -> list[str]:
        agent = span("agent", None)
        spans, prompt = [], [1]
        for n, (query, answer) in enumerate(asked):
            spans.append(llm(agent.span_id, 2 * n, prompt, [3, END]))
            prompt = [*prompt, 3, END, 1]
            tool = {"inputs": {"tool_call": {"name": "s", "arguments": {"q": query}}}, "output": answer, **given}
            spans.append(span("tool", agent.span_id, 2 * n + 1, **tool))
        return [code for code, _, _ in marks(trajectory(agent, *spans)) if code == "AT-CALL-REPEATED"]

    assert made(("a", "no"), ("a", "no")) == ["AT-CALL-REPEATED"]
    assert made(("a", "no"), ("b", "no"), ("a", "no")) == made(("a", "no"), ("a", "yes")) == []


def test_the_same_call_in_another_order() -> None:
    agent = span("agent", None)
    written = ['{"from": 1, "to": 2}', '{"to": 2, "from": 1}', '{"to":2,"from":1}']
    calls = [
        span("tool", agent.span_id, n, inputs={"tool_call": {"name": "s", "arguments": arguments}}, output="no")
        for n, arguments in enumerate(written)
    ]
    assert [code for code, _, _ in marks(trajectory(agent, *calls))] == ["AT-CALL-REPEATED"]


@pytest.mark.parametrize(
    ("said", "unread"),
    [
        ('I ask.\n```json\n{"name": "s", "arguments": {}}\n```', True),
        ("[s(q=1)]", True),
        ("Action: s\nAction Input: {}", True),
        ("<\uff5ctool\u2581call\u2581begin\uff5c>s", True),
        ('It is {"name": "s", "arguments": {}} that I asked.', False),
        ("The answer is 4.", False),
    ],
)
def test_a_call_that_is_not_read_after_one_that_was(said: str, unread: bool) -> None:
    agent = span("agent", None)
    first, second = llm(agent.span_id, 1, [1], [3, END]), llm(agent.span_id, 6, [1, 3, END, 4], [5, END])
    second.prompt_base, second.prompt_keep = first.span_id, 3
    read = span("parser", agent.span_id, 2, output=["", [{"name": "s"}]])
    call = span("tool", agent.span_id, 3, inputs={"tool_call": {"name": "s"}}, output="4")
    last = span("parser", agent.span_id, 7, output=[said, []])
    reward = span("reward", None, 9, inputs={"solution_str": f"<tool_call>s</tool_call>4{said}"})
    found = marks(trajectory(agent, first, read, call, second, last, reward))
    assert found == ([("AT-CALL-NOT-PARSED", 2, None)] if unread else [])


def test_garble_stands_in_its_turn() -> None:
    agent = span("agent", None)
    first = llm(agent.span_id, 1, [1], [3] * 40)
    second = llm(agent.span_id, 3, [1] + [3] * 40, [5] * 40, first)
    for text, turn in (("\ufffd" * 9 + "x" * 200, 1), ("x" * 200 + "\ufffd" * 9, 2)):
        reward = span("reward", None, 5, inputs={"solution_str": text})
        assert ("AT-GARBLED", turn, None) in marks(trajectory(agent, first, second, reward))


def judged(*spans: Span, **facts: Any) -> list[str]:
    root = span("trajectory", None, inputs={"reward_model": {"ground_truth": "42"}})
    return [code for code, _, _ in marks(trajectory(*spans, root=root, **facts))]


@pytest.mark.parametrize(
    ("given", "facts", "code"),
    [
        ({"output": {"score": 1.0}, "inputs": {"ground_truth": "42"}}, {"reward": 1.0}, None),
        ({"inputs": {"ground_truth": "7"}}, {}, "AT-REWARD-MISMATCHED"),
        ({"output": "nan"}, {}, "AT-REWARD-NAN"),
        ({}, {"reward": "nan"}, "AT-REWARD-NAN"),
        ({"status": "ERROR", "error": ("ValueError", "no answer", "")}, {}, "AT-REWARD-RAISES"),
        ({"status": "ERROR", "error": ("TimeoutError", "", "")}, {}, "AT-REWARD-TIMEOUT"),
        ({}, {"reward": 0.0, "reward_extra_info": {"timeout": True, "acc": 0.0}}, "AT-REWARD-TIMEOUT"),
        ({}, {"reward": 0.0, "reward_extra_info": {"error": "judge is gone"}}, "AT-REWARD-RAISES"),
    ],
)
def test_what_a_reward_does(given: dict[str, Any], facts: dict[str, Any], code: str | None) -> None:
    assert judged(span("reward", None, 5, **given), **facts) == ([code] if code else [])


@pytest.mark.parametrize(
    ("judged_text", "other"),
    [
        ("The number of apples is twelve, so with the pears it is #### 42", False),
        ("so with the pears it is #### 42", False),  # cut by the reward manager
        ("Nobody knows how many plums there were before the harvest #### 7", True),
        ("#### 7", False),  # too short to tell
    ],
)
def test_a_reward_judges_what_the_rollout_said(judged_text: str, other: bool) -> None:
    agent = span("agent", None)
    text = "The number of apples is twelve, so with the pears it is #### 42<|im_end|>"
    turn = llm(agent.span_id, 1, [1], [3, END], new_prompt_text="How many?", response_text=text)
    reward = span("reward", None, 5, inputs={"solution_str": judged_text})
    assert [code for code, _, _ in marks(trajectory(agent, turn, reward))] == ["AT-REWARD-MISMATCHED"] * other


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([*range(20), *[3, 4, 5] * 100], "AT-REPETITION"),
        ([*[3, 4, 5] * 60, END], None),  # ends by itself
        ([*range(20), *[3, 4, 5, 6] * 90, END], "AT-REPETITION"),  # too, but says nothing else for 90 times
        ([*range(20, 500), *[3, 4, 5, 6] * 90, END], "AT-REPETITION"),  # the same at the end of a long answer
        ([*[n for row in range(12) for n in (*range(24), 7)], END], None),  # a list of equal lines
        ([*range(400)], None),
        ([*range(20), *[*range(100, 200)] * 9], "AT-REPETITION"),  # a paragraph
        (
            [word for n in range(200) for word in (*range(9 * (n * n % 7 % 3), 9 * (n * n % 7 % 3) + 9),)],
            "AT-REPETITION",
        ),
        ([*map(int, f"{7**320:b}")], None),  # digits
        ([value for row in range(60) for value in (9, row % 10, 8, 7, row % 7)], None),
    ],
)
def test_loops(ids: list[int], code: str | None) -> None:
    assert [found for found, _, _ in ending(ids, {"response_length": 10_000})] == ([code] if code else [])


def test_sampling_parameters_of_a_call_against_those_of_the_rollout() -> None:
    root = span("trajectory", None, inputs={"sampling_params": {"temperature": 1.0, "top_k": -1}})

    def found(settings: TrainerSettings = TrainerSettings(adv_estimator="grpo"), **used: Any) -> list[str]:  # noqa: B008
        call = llm(root.span_id, 1, [1], [3, END], inputs={"sampling_params": used})
        return [code for code, _, _ in marks(trajectory(call, root=root), settings)]

    assert found(temperature=1.0, top_k=0, max_tokens=5) == []
    assert found(temperature=0.2) == ["AT-SAMPLING-DIFFERS"]
    assert found(temperature=1.0, top_p=0.8) == ["AT-SAMPLING-DIFFERS", "AT-SAMPLING-BIASED"]
    assert found(TrainerSettings(), temperature=1.0, top_p=0.8) == ["AT-SAMPLING-DIFFERS"], "no trainer is known"


def test_recorded_values_may_have_any_shape() -> None:
    agent = span("agent", None, inputs={"sampling_params": 5}, output=[[[[]]]])
    odd = llm(agent.span_id, 1, [1], [3], attributes={"finish_reason": 5, "cached_tokens": "x", "weight_version": -3})
    odd.prompt_tokens = "many"  # type: ignore[assignment]
    tool = span("tool", agent.span_id, 2, inputs={"tool_call": None, 5: 6}, output={"text": {"text": {"text": {}}}})
    reward = span(
        "reward", None, 3, inputs={"extra_info": [], "solution_str": 5, "ground_truth": {}}, output={"score": []}
    )
    profile = examine(trajectory(agent, odd, tool, reward, reward_extra_info=[1]), TrainerSettings(max_model_len=3))
    assert profile.stamp


def test_a_rollout_that_was_given_up_or_whose_process_died() -> None:
    root = span("trajectory", None, status="TIMEOUT", error=("TimeoutError", "", ""))
    turn = llm(root.span_id, 0, [1, 2], [3, 2])
    assert marks(trajectory(turn, root=root)) == [("AT-TIMEOUT", 1, None)]
    died = span("trajectory", None, status="INTERRUPTED", end_ns=None)
    tool = span("tool", died.span_id, 2, status="INTERRUPTED", end_ns=None, name="search")
    (mark,) = examine(trajectory(llm(died.span_id, 0, [1, 2], [3, 2]), tool, root=died), TrainerSettings()).marks
    assert (mark.code, mark.note) == ("AT-INTERRUPTED", "in search")


def test_nothing_that_a_keyboard_interrupt_did_is_found() -> None:
    ended = {"status": "INTERRUPTED", "error": ("KeyboardInterrupt", "", "")}
    root = span("trajectory", None, **ended)
    below = [span(role, root.span_id, 2, **ended) for role in ("tool", "reward")]
    assert not marks(trajectory(llm(root.span_id, 0, [1, 2], [3, 2]), *below, root=root))


def test_a_rollout_that_says_that_it_failed_is_told_with_what_a_call_below_it_raised() -> None:
    root = span("trajectory", None, status="ERROR")
    attempt = span("span", root.span_id, 1, status="ERROR", error=("RuntimeError", "no sandbox", ""))
    (mark,) = examine(trajectory(attempt, root=root), TrainerSettings()).marks
    assert (mark.code, mark.note) == ("AT-ROLLOUT-FAILED", "RuntimeError: no sandbox")
