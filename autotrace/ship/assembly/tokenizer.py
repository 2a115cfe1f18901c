"""Loading the run's tokenizer, so that its texts are those of ``transformers``.

Importing ``transformers`` takes ten seconds. So where a tokenizer of it only hands ids to the Rust tokenizer within it,
that one is kept as a file in the run folder, and from then on is all that is loaded: it is the same object, so it gives
the same text. Special tokens are kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autotrace.run import files, layout
from autotrace.ship.assembly import byte_level
from autotrace.trajectory.jsonable import text

Decode = Callable[[list[int]], str]

_log = logging.getLogger("autotrace.ship")

_PROBE = "a . b ? c ! d , e ' f n't g 'm h 's i 've j 're k"
"""What ``clean_up_tokenization_spaces`` changes."""
_SEQUENCE = 509
"""Ids in one sequence of the comparison."""


def load(source: str, bind: Mapping[str, Any], run_folder: Path, *, keep: bool = True) -> Decode:
    """The decoding function of the tokenizer at ``source`` (a folder, or a name on the hub), loaded as ``bind`` says
    that the run loaded it. Raises whatever its libraries raise. ``keep``: what makes it quick next time is written into
    the run folder."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    blobs = run_folder / layout.BLOBS
    kept = blobs / f"decoding-{_key(Path(source).name if Path(source).parent == blobs else source, bind)}.json"
    with contextlib.suppress(Exception):  # none, or written by a later release of `tokenizers`
        return _decode_with(_from_file(kept))
    local = os.path.isdir(source)
    try:
        from transformers import AutoTokenizer
    except ImportError:
        if local and os.path.exists(os.path.join(source, "tokenizer.json")):
            return _decode_with(_from_file(Path(source, "tokenizer.json")))
        raise
    options: dict[str, Any] = {"trust_remote_code": bind.get("trust_remote_code") is True, "local_files_only": local}
    if isinstance(bind.get("revision"), str) and not local:
        options["revision"] = bind["revision"]
    tokenizer = AutoTokenizer.from_pretrained(source, **options)
    with contextlib.suppress(Exception):  # code of the model's
        if only_hands_over(tokenizer):
            tokenizer = tokenizer.backend_tokenizer
            if keep:
                _keep(tokenizer, kept)
            return _decode_with(tokenizer)
    return lambda ids: text(str(tokenizer.decode(ids, skip_special_tokens=False)))


def only_hands_over(tokenizer: Any) -> bool:
    """Whether decoding with ``tokenizer``, of ``transformers``, is decoding with ``tokenizer.backend_tokenizer``: its
    class has no decoding of its own, and it does not change the text afterwards."""
    if getattr(tokenizer, "is_fast", False) is not True:
        return False
    for name in ("decode", "_decode"):
        module = getattr(getattr(type(tokenizer), name, None), "__module__", "")
        if name in vars(tokenizer) or not module.startswith("transformers.tokenization_utils"):
            return False
    rust = tokenizer.backend_tokenizer
    if getattr(tokenizer, "clean_up_tokenization_spaces", False):  # transformers 5 does not do it for BPE all the same
        probe = rust.encode(_PROBE, add_special_tokens=False).ids
        raw = rust.decode(probe, skip_special_tokens=False)
        if _PROBE not in raw or tokenizer.decode(probe, skip_special_tokens=False) != raw:
            return False
    return all(
        tokenizer.decode(ids, skip_special_tokens=False) == rust.decode(ids, skip_special_tokens=False)
        for ids in _sequences(rust.get_vocab_size(with_added_tokens=True))
    )


def _sequences(size: int) -> Iterator[list[int]]:
    """Sequences that have every id below ``size`` once; neighbours in them are none in the vocabulary."""
    stride = max(1, -(-size // _SEQUENCE))
    for first in range(stride):
        yield list(range(first, size, stride))


def _keep(tokenizer: Any, path: Path) -> None:
    """Write the Rust tokenizer to ``path``. Never raises."""
    try:
        if path.parent.is_dir():
            files.replace(path, tokenizer.to_str().encode())
    except Exception as error:  # a full disk
        _log.info("commands that read this run will load transformers: %s: %s", type(error).__name__, error)


def _from_file(path: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def _decode_with(tokenizer: Any) -> Decode:
    """Of a Rust tokenizer."""
    quick = byte_level.decoder(tokenizer, _sequences(tokenizer.get_vocab_size(with_added_tokens=True)))
    return quick or (lambda ids: text(str(tokenizer.decode(ids, skip_special_tokens=False))))


def _key(name: str, bind: Mapping[str, Any]) -> str:
    """One file for each way of loading: the same files may be loaded with and without the code that is among them."""
    loaded_as = [name, bind.get("revision"), bind.get("trust_remote_code") is True]
    return hashlib.blake2b(json.dumps(loaded_as, default=str).encode(), digest_size=8).hexdigest()
