"""Tokenizers whose files alone say that ``transformers`` decodes with the Rust tokenizer in ``tokenizer.json`` and
changes nothing: to ask it (``handing_over``) takes ten seconds of CPU, which a run of a minute should not wait for.

Byte-level BPE decodes to the letters of its tokens, so it is enough that both have the same tokens. Whatever is not
known here to be without effect on them makes a tokenizer one that ``transformers`` is asked about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_NO_FLAG = frozenset({"TokenizersBackend"})
"""Classes of transformers 5 that change no text where the configuration does not say so."""
_QWEN = frozenset({"Qwen2Tokenizer", "Qwen2TokenizerFast"})
_CLASSES = frozenset({"PreTrainedTokenizerFast"}) | _NO_FLAG | _QWEN
"""Classes without a decoding of their own."""
_OF_QWEN = "<|endoftext|>"
"""A token that these classes add where it is not there."""
_SPECIAL = frozenset(
    {
        "bos_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token", "mask_token", "image_token",
        "video_token", "audio_token", "vision_bos_token", "vision_eos_token", "additional_special_tokens",
        "extra_special_tokens", "model_specific_special_tokens",
    }
)  # fmt: skip
"""Settings that name tokens, which are added where they are not there."""
_WITHOUT_EFFECT = frozenset(
    {
        "tokenizer_class", "clean_up_tokenization_spaces", "added_tokens_decoder", "chat_template", "model_max_length",
        "padding_side", "truncation_side", "truncation", "max_length", "stride", "pad_to_multiple_of",
        "pad_token_type_id", "model_input_names", "add_bos_token", "add_eos_token", "add_prefix_space",
        "split_special_tokens", "errors", "is_local", "name_or_path", "special_tokens_map_file", "processor_class",
    }
)  # fmt: skip
_ADDING = ("added_tokens.json", "special_tokens_map.json", "tekken.json")
"""Other files that may bring tokens."""


def is_plain(folder: Path) -> bool:
    """Whether the tokenizer in ``folder`` decodes as the Rust tokenizer in its ``tokenizer.json`` does, in every
    release of ``transformers``. False where that is not known, and never an exception."""
    try:
        config, whole = (json.loads((folder / name).read_text("utf-8")) for name in _FILES)
        return _is_plain(config, whole) and not any(_adds(folder / name, _tokens(whole)) for name in _ADDING)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False


_FILES = ("tokenizer_config.json", "tokenizer.json")


def _is_plain(config: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    kind = config.get("tokenizer_class")
    if kind not in _CLASSES or whole["model"]["type"] != "BPE" or whole["decoder"]["type"] != "ByteLevel":
        return False
    if config.get("clean_up_tokenization_spaces", None if kind in _NO_FLAG else "not said") not in (False, None):
        return False
    if not config.keys() <= _SPECIAL | _WITHOUT_EFFECT | {"backend"} or config.get("backend") not in (
        None,
        "tokenizers",
    ):
        return False
    tokens = _tokens(whole)
    if any(tokens.get(token["content"]) != int(id) for id, token in config.get("added_tokens_decoder", {}).items()):
        return False
    named = {token for name in _SPECIAL for token in _named(config.get(name))}
    return named <= tokens.keys() and (kind not in _QWEN or _OF_QWEN in tokens)


def _tokens(whole: Mapping[str, Any]) -> dict[str, int]:
    vocabulary: dict[str, int] = whole["model"]["vocab"]
    return vocabulary | {token["content"]: token["id"] for token in whole.get("added_tokens") or []}


def _named(value: Any) -> Iterator[str]:
    """The tokens in a setting: ``"<s>"``, ``{"content": "<s>", "lstrip": false}``, several of them in a list or by
    name."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _named(each)
    elif isinstance(value, dict) and "content" in value:
        yield value["content"]
    elif isinstance(value, dict):
        for each in value.values():
            yield from _named(each)
    elif value is not None:
        raise TypeError(f"no token: {value!r}")


def _adds(path: Path, tokens: Mapping[str, int]) -> bool:
    """Whether a file may bring a token that is not among ``tokens``."""
    if not path.exists():
        return False
    content = json.loads(path.read_text("utf-8"))
    if path.name == "added_tokens.json":
        return any(tokens.get(token) != id for token, id in content.items())
    return path.name == "tekken.json" or not set(_named(content)) <= tokens.keys()
