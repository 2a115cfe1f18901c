"""A tokenizer with a token for each letter and a model that answers by rule, for trainers whose engines need an
accelerator: nothing is downloaded. Imported by the programs, which have ``transformers``."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import Any

MARKS = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LOGPROB = -0.25


def tokenizer(marks: Sequence[str] = MARKS, tags: Sequence[str] = ()) -> Any:
    """A fast tokenizer of ``transformers``: each of ``marks`` is a special token, the last one ends a turn, each of
    ``tags`` one that is not special."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = {letter: number for number, letter in enumerate(string.printable)}
    inner = Tokenizer(models.WordLevel(letters, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens([AddedToken(mark, normalized=False, special=True) for mark in marks])
    inner.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in tags])
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=marks[-1], pad_token=marks[-1], unk_token="?")
    made.chat_template = TEMPLATE
    return made


def answer(conversation: str, right: bool) -> str:
    """What the model says next: a call of ``add``, and once there is its result, the sum (or not, unless ``right``)."""
    a, b = re.findall(r"What is (\d+) plus (\d+)\?", conversation)[-1]
    result = re.search(r"result: (\d+)", conversation)
    if result is None:
        return f"add({a}, {b})"
    return f"It is {result[1] if right else 99}."


def called(said: str) -> tuple[int, int] | None:
    """The arguments of a call of ``add`` in what the model said."""
    match = re.match(r"add\((\d+), (\d+)\)", said)
    return None if match is None else (int(match[1]), int(match[2]))
