"""Which tokens end an answer, as a tokenizer of ``transformers`` tells."""

from __future__ import annotations

from typing import Any

_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>")
"""Tokens of chat templates that end a turn, where a tokenizer has them."""


def end_tokens(tokenizer: Any) -> list[int]:
    """The token that ends an answer, and the one that ends a turn of the chat template where it is another."""
    ends = {getattr(tokenizer, "eos_token_id", None)}
    known = getattr(tokenizer, "added_tokens_encoder", None)
    if isinstance(known, dict):
        ends |= {known.get(name) for name in _TURN_ENDS}
    return sorted(end for end in ends if type(end) is int)
