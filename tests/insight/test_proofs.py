"""Faults that one conversation, or one step, proves by itself, each beside a clean twin."""

from __future__ import annotations

from typing import Any

import pytest

from autotrace.insight.diagnose import hits
from autotrace.insight.examine import examine
from autotrace.insight.profile import Profile, Trait, TurnProfile
from autotrace.trajectory.model import Trajectory
from autotrace.trajectory.tool_calls import entitle
from tests.insight.made import History, TrainerSettings, record, span, step, trajectory

ASKED = [{"role": "user", "content": "How many people live in Jena and in Gera?"}]
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"required": ["q"]}}}]


def calls(*cities: str) -> dict[str, Any]:
    made = [
        {"id": f"c{city}", "type": "function", "function": {"name": "search", "arguments": f'{{"q": "{city}"}}'}}
        for city in cities
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(of: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{of}", "content": content}


def codes(*turns: list[dict[str, Any]], ran: tuple[str, ...] = (), method: str = "", **given: Any) -> list[str]:
    """The codes of a rollout: the messages of each turn; ``ran``: the arguments with which search was executed;
    ``method``: search is a method, whose caller adds an argument."""
    return sorted({mark.code for mark in profile(*turns, ran=ran, method=method, **given).marks})


def profile(*turns: list[dict[str, Any]], ran: tuple[str, ...] = (), method: str = "", **given: Any) -> Profile:
    root = span("trajectory", None)
    spans = []
    for number, messages in enumerate(turns):
        made = span("llm", root.span_id, 10 * number, attributes={"finish_reason": "stop"}, **given)
        made.messages = messages
        spans.append(made)
    for number, city in enumerate(ran, 1):
        arguments = {"q": city} if city else {}
        inputs = {"name": "search", "arguments": arguments}
        output = f"{city} has {len(city)}000 inhabitants"
        if method:
            inputs = {**arguments, "step": "3"}
        spans.append(span("tool", root.span_id, number, inputs=inputs, output=output, name=method or "tool.call"))
    spans.sort(key=lambda one: one.start_ns)
    entitle(spans)
    return examine(trajectory(*spans, root=root), TrainerSettings())


JENA, GERA = "Jena has 4000 inhabitants", "Gera, has 5000 inhabitants"
BOTH = [*ASKED, calls("Jena", "Gera,")]
END = {"role": "assistant", "content": "Nine thousand."}


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([result("Jena", JENA), result("Gera,", GERA)], []),
        ([result("Gera,", GERA), result("Jena", JENA)], []),  # as they arrived
        ([result("Jena", GERA), result("Gera,", JENA)], ["AT-RESULT-SWAPPED"]),
        ([result("Jena", JENA), result("Jena", GERA)], ["AT-RESULT-SWAPPED"]),
        ([result("Jena", JENA), result("Bonn", GERA)], ["AT-RESULT-SWAPPED"]),
        ([result("Jena", JENA[:9]), result("Gera,", GERA[:9])], []),  # cut by the agent
    ],
)
def test_results_stand_under_the_ids_of_their_calls(results: list[dict[str, Any]], code: list[str]) -> None:
    assert codes(BOTH, [*BOTH, *results, END], ran=("Jena", "Gera,")) == code
    assert codes(BOTH, [*BOTH, *results, END], ran=("Jena", "Gera,"), method="Archive.search") == code


def test_a_tool_that_the_agent_itself_tries_again_in_the_same_turn() -> None:
    def tried(*errors: str) -> set[str]:
        root = span("trajectory", None)
        turn = span("llm", root.span_id, 1)
        turn.messages = [*ASKED, calls("Jena")]
        failed = [("ConnectionError", one, "") if one else None for one in errors]
        tries = [
            span("tool", root.span_id, 2 + n, inputs={"q": "Jena"}, output=None if error else JENA,
                 status="ERROR" if error else "OK", error=error)
            for n, error in enumerate(failed)
        ]  # fmt: skip
        return {mark.code for mark in examine(trajectory(turn, *tries, root=root), TrainerSettings()).marks}

    assert tried("reset by peer", "reset by peer", "reset by peer", "") == set()
    assert tried("reset by peer") == tried("", "reset by peer") == {"AT-TOOL-RAISES"}


def test_answers_of_an_environment_are_traits_and_no_findings() -> None:
    def played(number: int, said: str) -> Any:
        root = span("trajectory", None)
        turn = span("llm", root.span_id, 1, attributes={"finish_reason": "stop"})
        turn.messages = [*ASKED, END]
        acted = span("env", root.span_id, 2, name="Game.step", inputs={"action": "go north"}, output=(said, 0.0, True))
        made = examine(trajectory(turn, acted, root=root), TrainerSettings())
        return record(number, f"1/{number // 2}", marks=made.marks, traits=made.traits, reward=float(number % 2))

    step_of = [played(n, "Nothing happens." if n < 8 else f"A {chr(65 + n)}-shaped room.") for n in range(16)]
    texts = {one.text for each in step_of for one in each.profile.traits}
    assert 'Game.step answers "Nothing happens."' in texts and "the tools called are none" in texts
    assert found(step_of) == []


def test_a_history_that_keeps_only_the_last_call_is_a_trait() -> None:
    first, second = [calls("Jena"), result("Jena", JENA)], [calls("Gera"), result("Gera", GERA)]
    whole = profile([*ASKED, first[0]], [*ASKED, *first, second[0]], [*ASKED, *first, *second, END])
    last = profile([*ASKED, first[0]], [*ASKED, *first, second[0]], [*ASKED, *second, END])
    lacking = "a later prompt lacks earlier turns (rewrite)"
    assert [lacking in [one.text for one in each.traits] for each in (whole, last)] == [False, True]


@pytest.mark.parametrize(
    ("kept", "code"),
    [
        ({"role": "assistant", "content": "First I look at Jena."}, []),
        ({"role": "assistant", "content": "  First I look\nat Jena. "}, []),  # spaces
        ({"role": "assistant", "content": "Bonn has 300,000."}, ["AT-ANSWER-FOREIGN"]),
    ],
)
def test_an_answer_in_a_later_prompt_is_one_of_the_rollouts_own(kept: dict[str, Any], code: list[str]) -> None:
    first = [*ASKED, {"role": "assistant", "content": "First I look at Jena."}]
    assert codes(first, [*ASKED, kept, {"role": "user", "content": "Go on."}, END]) == code


@pytest.mark.parametrize(
    ("prompt", "said", "code"),
    [
        ("Hello", "Nine.\nUser: thanks\nAssistant: You are welcome.", ["AT-ROLE-PLAYED"]),
        ("Sum up:\nUser: hi\nAssistant: hello", "It begins so:\nUser: hi", []),  # it quotes
        ("Hello", "Nine.<|im_end|>\n<|im_start|>user\nthanks", ["AT-ROLE-PLAYED"]),
        ("Hello", "Action: search\nAction Input: Jena\nObservation: Jena has nine.", ["AT-ROLE-PLAYED"]),
        ("Hello", "The user: a person. Observation: none was made.", []),
    ],
)
def test_an_answer_plays_its_own_role(prompt: str, said: str, code: list[str]) -> None:
    assert codes([{"role": "user", "content": prompt}, {"role": "assistant", "content": said}]) == code


@pytest.mark.parametrize(
    ("asked", "ran", "tools", "code"),
    [
        ("Jena", ("Jena",), None, []),
        ("Jena", ("",), None, ["AT-TOOL-ARGUMENTS"]),
        ("", ("",), None, []),  # a tool without arguments
        ("", ("",), TOOLS, ["AT-TOOL-ARGUMENTS"]),
    ],
)
def test_arguments_that_are_cut(asked: str, ran: tuple[str, ...], tools: Any, code: list[str]) -> None:
    call = calls(asked)
    if not asked:
        call["tool_calls"][0]["function"]["arguments"] = "{}"
    inputs = {"tools": tools} if tools else {}
    turn = [*ASKED, call]
    assert codes(turn, [*turn, result(asked, "x"), END], ran=ran, inputs=inputs) == code


START, STOP = "<|im_start|>", "<|im_end|>\n"


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        (f"{START}system\n{STOP}{START}user\nhi{STOP}{START}assistant\n", []),
        (f"{START}user\n{START}user\nhi{STOP}{START}assistant\n", ["AT-PROMPT-HEADER"]),
        (f"{START}user\nhi{STOP}", ["AT-PROMPT-HEADER"]),
        (f"{START}user\nhi{STOP}{START}assistant\n<think>\n", []),
        ("Once upon a time", []),
    ],
)
def test_headers_of_a_prompt(prompt: str, code: list[str]) -> None:
    root = span("trajectory", None)
    turn = span("llm", root.span_id, 1)
    turn.prompt_text, turn.response_text = prompt, "Nine."
    one: Trajectory = trajectory(turn, root=root)
    assert [mark.code for mark in examine(one, TrainerSettings()).marks] == code


def found(records: list[Any]) -> list[str]:
    """The codes of a step, those about rewards and groups left out."""
    return [hit.code for hit in hits(step(records), History()) if "SIGNAL" not in hit.code]


def test_two_bos_tokens() -> None:
    doubled = [record(number, f"1/{number // 2}", head=[1, 1, 7, number]) for number in range(4)]
    usual = [record(number, f"1/{number // 2}", head=[1, 7, 7, number]) for number in range(4, 16)]
    padded = [record(number, f"1/{number // 2}", head=[1, 1, 1, 1]) for number in range(4)]
    assert found(doubled + usual) == ["AT-PROMPT-HEADER"] * 4
    assert found(padded + usual) == []


def test_requests_without_the_tools_of_the_others() -> None:
    def offering(number: int, words: str, source: str = "web") -> Any:
        traits = [Trait("tools_offered", f"the request offers {words}")]
        return record(number, f"1/{number // 2}", traits=traits, data_source=source)

    usual = [offering(number, "the tools search") for number in range(12)]
    assert found([*usual, *(offering(number, "no tools") for number in (12, 13))]) == ["AT-TOOLS-MISSING"] * 2
    assert found([*usual, *(offering(number, "no tools", "maths") for number in (12, 13))]) == []


def test_requests_without_tools_in_half_of_the_groups_rollouts() -> None:
    def offering(number: int, words: str, group: int) -> Any:
        return record(number, f"1/{group}", traits=[Trait("tools_offered", f"the request offers {words}")])

    half = [offering(n, "no tools" if n % 2 else "the tools search", n // 4) for n in range(12)]
    assert found(half) == ["AT-TOOLS-MISSING"] * 6
    by_prompt = [offering(n, "no tools" if n // 4 % 2 else "the tools search", n // 4) for n in range(16)]
    assert found(by_prompt) == []


def test_answers_of_others_in_the_first_prompt() -> None:
    def asked(roles: list[str]) -> list[Any]:
        return [
            record(n, "1/g", traits=[Trait("prompt", f"the first prompt has the roles {one}")], reward=float(n))
            for n, one in enumerate(roles)
        ]

    few_shot, plain = "user, assistant, user", "system, user"
    assert found(asked([plain, few_shot, few_shot])) == ["AT-ANSWER-FOREIGN"] * 2
    assert found(asked([few_shot] * 3)) == []


@pytest.mark.parametrize(("prompts", "count"), [(4, 16), (16, 0)])
def test_a_group_id_for_each_rollout(prompts: int, count: int) -> None:
    records = [record(n, f"1/g{n}", asked=f"p{n % prompts}", reward=float(n % 2)) for n in range(16)]
    assert found(records) == ["AT-GROUP-OF-ONE"] * count
    numbered = [record(n, f"1/g{n}", rollout_n=n // prompts, reward=float(n % 2)) for n in range(16)]
    assert found(numbered) == ["AT-GROUP-OF-ONE"] * count
    grouped = [record(n, f"1/g{n % 4}", asked=f"p{n % 4}", reward=float(n // 4)) for n in range(16)]
    assert found(grouped) == []


@pytest.mark.parametrize(("usual", "count"), [(19, 1), (12, 0)])
def test_an_end_token_that_nobody_names(usual: int, count: int) -> None:
    """Nearly all answers that stopped end with it; if fewer do, nothing says which token ends an answer."""
    lasts = [7] * usual + [900 + n for n in range(20 - usual)]
    records = [record(n, f"1/g{n // 2}", turns=[TurnProfile(4, 10, "stop", last)]) for n, last in enumerate(lasts)]
    assert found(records).count("AT-NO-EOS") == count
