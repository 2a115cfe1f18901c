"""Fields of a span that are made when they are asked for."""

from __future__ import annotations

from array import array

from autotrace.trajectory.deferred import Packed
from autotrace.trajectory.model import Span


def span(**fields: object) -> Span:
    return Span("1" * 16, None, "generate", "llm", "generate", 1, **fields)  # type: ignore[arg-type]


def test_token_ids_are_a_list_however_they_are_held() -> None:
    ids = [1, -2, 2**31 - 1]
    packed, given = array("i", ids).tobytes(), span(new_prompt_ids=ids, response_ids=[])
    held = span(new_prompt_ids=Packed("i", packed + b"12"), response_ids=Packed("i", b""))
    assert held == given and (held.new_prompt_ids, held.response_ids) == (ids, [])
    assert held.packed_prompt == given.packed_prompt == packed
    assert held.packed_response == given.packed_response == b""
    assert span().packed_response is None and span(response_ids=[2**40]).packed_response is None


def test_log_probabilities_have_a_packed_form_only_while_they_are_in_it() -> None:
    packed = array("f", [-0.5, -1.25]).tobytes()
    assert span(logprobs=Packed("f", packed)).packed_logprobs == packed
    assert span(logprobs=Packed("f", packed)).logprobs == [-0.5, -1.25]
    assert span(logprobs=[-0.5]).packed_logprobs is None
