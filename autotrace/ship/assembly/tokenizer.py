"""Load the run's tokenizer, so that its texts equal the texts of ``transformers``.

Importing ``transformers`` takes ten seconds of CPU. If a tokenizer of ``transformers`` only hands ids to its Rust
tokenizer, only the Rust tokenizer is loaded: from ``tokenizer.json`` where the files prove equality; otherwise another
process decides (``rust_tokenizer``) and stores the Rust tokenizer as a file in the run folder. The tokenizer is the
same object, so the text is the same. Special tokens are kept.

Byte-level BPE decodes to the letters of its tokens, so equal tokens are enough. A setting that is not known here to
leave tokens unchanged requires ``transformers``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from autotrace.run import files, layout
from autotrace.ship.assembly import byte_level
from autotrace.ship.assembly.rust_tokenizer import decide_apart, loaded, sequences
from autotrace.trajectory.jsonable import text

_NO_FLAG = frozenset({"TokenizersBackend"})
"""Classes of transformers 5 that change no text unless the configuration says otherwise."""
_QWEN = frozenset({"Qwen2Tokenizer", "Qwen2TokenizerFast"})
_CLASSES = frozenset({"PreTrainedTokenizerFast"}) | _NO_FLAG | _QWEN
"""Classes without a decoding of their own."""
_OF_QWEN = "<|endoftext|>"
"""Token that Qwen's classes add if missing."""
_SPECIAL = frozenset(
    {
        "bos_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token", "mask_token", "image_token",
        "video_token", "audio_token", "vision_bos_token", "vision_eos_token", "additional_special_tokens",
        "extra_special_tokens", "model_specific_special_tokens",
    }
)  # fmt: skip
"""Settings that name tokens, which are added if missing."""
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
    """Return whether the tokenizer in ``folder`` decodes like the Rust tokenizer in its ``tokenizer.json``, in every
    release of ``transformers``. Returns False if unknown, and never raises."""
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
    if config.get("backend") not in (None, "tokenizers"):
        return False
    if not config.keys() <= _SPECIAL | _WITHOUT_EFFECT | {"backend"}:
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
    """Yield the tokens in a setting: ``"<s>"``, ``{"content": "<s>", "lstrip": false}``, several tokens in a list or by
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
    """Return whether a file may bring a token that is missing in ``tokens``."""
    if not path.exists():
        return False
    content = json.loads(path.read_text("utf-8"))
    if path.name == "added_tokens.json":
        return any(tokens.get(token) != id for token, id in content.items())
    return path.name == "tekken.json" or not set(_named(content)) <= tokens.keys()


Decode = Callable[[Sequence[int]], str]


def load(source: str, bind: Mapping[str, Any], run_folder: Path, *, trusted: bool, much: bool = False) -> Decode:
    """Return the decoding function of the tokenizer at ``source`` (a folder, or a name on the hub), loaded as the run
    loaded the tokenizer according to ``bind``. Raises any error of its libraries. ``trusted``: code among its files may
    run, the hub may be asked, and files for quick loading are written into the run folder; otherwise only
    ``tokenizer.json`` is read. ``much``: much text will be decoded, so preparation may take a while."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    blobs = run_folder / layout.BLOBS
    key = _key(Path(source).name if Path(source).parent == blobs else source, bind)
    kept = blobs / f"decoding-{key}.json"
    if not trusted:
        written = _of_a_stranger(run_folder, kept.name, source, bind)
        if importlib.util.find_spec("tokenizers") is None:
            return byte_level.of_file(written, LONGEST)
        return _decode_with(_harmless(written), much)
    with contextlib.suppress(Exception):  # missing, or written by a later release of `tokenizers`
        return _decode_with(_from_file(kept), much)
    if is_plain(Path(source)):
        with contextlib.suppress(Exception):
            return _decode_with(_from_file(Path(source, "tokenizer.json")), much)
    if "transformers" not in sys.modules and importlib.util.find_spec("transformers") is not None:
        decide_apart(source, bind, kept, blobs / f"transformers-{key}")
        with contextlib.suppress(Exception):
            return _decode_with(_from_file(kept), much)
    try:
        importlib.import_module("transformers")
    except ImportError:
        if os.path.exists(os.path.join(source, "tokenizer.json")):
            return _decode_with(_from_file(Path(source, "tokenizer.json")), much)
        raise
    tokenizer, rust = loaded(source, bind, kept)
    return _decode_with(tokenizer, much) if rust else _asking(tokenizer)


LONGEST = 512
"""Maximum characters of a token: the longest tokens of today's vocabularies are rows of 128 spaces."""
_HARMLESS = frozenset({"ByteLevel", "Metaspace", "WordPiece", "BPEDecoder", "ByteFallback", "Fuse", "Strip", "CTC"})
"""Decoders that run no pattern and add next to nothing."""


def _of_a_stranger(run_folder: Path, kept: str, source: str, bind: Mapping[str, Any]) -> bytes:
    """Read ``tokenizer.json`` in the run folder, through no link, or of that name in the user's own cache of the
    hub."""
    parent, name = os.path.split(source)
    if parent == str(run_folder / layout.BLOBS):
        try:
            return files.read(run_folder, layout.BLOBS, kept)
        except FileNotFoundError:
            return files.read(run_folder, layout.BLOBS, name, "tokenizer.json")
    from huggingface_hub import try_to_load_from_cache

    revision = str(bind.get("revision"))
    path = try_to_load_from_cache(source, "tokenizer.json", revision=revision if revision.isalnum() else None)
    if not isinstance(path, str):
        raise FileNotFoundError("not in the cache of the hub; name another: autotrace ship RUN --tokenizer NAME")
    return Path(path).read_bytes()


def _harmless(written: bytes) -> Any:
    """Return the Rust tokenizer, of the parts alone that decode: a pattern that splits a text may compile for hours.
    Raises ``ValueError`` unless decoding takes time and memory in proportion to the ids."""
    from tokenizers import Tokenizer

    whole = msgspec.json.decode(written, type=dict[str, msgspec.Raw])
    decoder = msgspec.json.decode(whole.get("decoder", b"null"))
    for part in byte_level.parts(decoder):
        replaces = part.get("type") == "Replace" and "String" in part["pattern"] and len(part["content"]) <= 8
        if part.get("type") not in _HARMLESS and not replaces:
            raise ValueError(f"its decoder {part.get('type')} may take any time")
    decodes = {name: whole.get(name) for name in ("version", "added_tokens", "model")}
    tokenizer = Tokenizer.from_str(msgspec.json.encode({**decodes, "decoder": decoder}).decode())
    if max(map(len, tokenizer.get_vocab(with_added_tokens=True)), default=0) > LONGEST:
        raise ValueError(f"it has a token of more than {LONGEST} characters")
    return tokenizer


def _from_file(path: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def _decode_with(tokenizer: Any, much: bool) -> Decode:
    """Return the decoding function of a Rust tokenizer."""
    samples = sequences(tokenizer.get_vocab_size(with_added_tokens=True))
    return byte_level.decoder(tokenizer, samples, much=much) or _asking(tokenizer)


def _asking(tokenizer: Any) -> Decode:
    return lambda ids: text(str(tokenizer.decode(list(ids), skip_special_tokens=False)))


def _key(name: str, bind: Mapping[str, Any]) -> str:
    """Return a file key for each way of loading: the same files may be loaded with and without the code among them."""
    loaded_as = [name, bind.get("revision"), bind.get("trust_remote_code") is True]
    return hashlib.blake2b(json.dumps(loaded_as, default=str).encode(), digest_size=8).hexdigest()
