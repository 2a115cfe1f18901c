"""Loading the run's tokenizer, so that its texts are those of ``transformers``.

Importing ``transformers`` takes ten seconds. So where a tokenizer of it only hands ids to the Rust tokenizer within it,
that one is all that is loaded: as it stands in ``tokenizer.json`` where the files tell (``plain_tokenizer``); else
another process finds out (``handing_over``) and keeps it as a file in the run folder. It is the same object, so it
gives the same text. Special tokens are kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotrace.run import layout
from autotrace.ship.assembly import byte_level
from autotrace.ship.assembly.handing_over import decide_apart, loaded, sequences
from autotrace.ship.assembly.plain_tokenizer import is_plain
from autotrace.trajectory.jsonable import text

Decode = Callable[[Sequence[int]], str]


def load(source: str, bind: Mapping[str, Any], run_folder: Path, *, trusted: bool, much: bool = False) -> Decode:
    """The decoding function of the tokenizer at ``source`` (a folder, or a name on the hub), loaded as ``bind`` says
    that the run loaded it. Raises whatever its libraries raise. ``trusted``: code that is among its files may run, the
    hub may be asked, and what makes it quick next time is written into the run folder. ``much``: so much will be
    decoded that what makes it quick may take a while."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    blobs = run_folder / layout.BLOBS
    key = _key(Path(source).name if Path(source).parent == blobs else source, bind)
    kept = blobs / f"decoding-{key}.json"
    with contextlib.suppress(Exception):  # none, or written by a later release of `tokenizers`
        return _decode_with(_from_file(kept), much)
    if is_plain(Path(source)):
        with contextlib.suppress(Exception):
            return _decode_with(_from_file(Path(source, "tokenizer.json")), much)
    if trusted and "transformers" not in sys.modules and importlib.util.find_spec("transformers") is not None:
        decide_apart(source, bind, kept, blobs / f"transformers-{key}")
        with contextlib.suppress(Exception):
            return _decode_with(_from_file(kept), much)
    try:
        importlib.import_module("transformers")
    except ImportError:
        if os.path.exists(os.path.join(source, "tokenizer.json")):
            return _decode_with(_from_file(Path(source, "tokenizer.json")), much)
        raise
    tokenizer, rust = loaded(source, bind, kept if trusted else None, trusted)
    return _decode_with(tokenizer, much) if rust else _asking(tokenizer)


def _from_file(path: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def _decode_with(tokenizer: Any, much: bool) -> Decode:
    """Of a Rust tokenizer."""
    samples = sequences(tokenizer.get_vocab_size(with_added_tokens=True))
    quick = byte_level.decoder(tokenizer, samples, much=much)
    return quick or _asking(tokenizer)


def _asking(tokenizer: Any) -> Decode:
    return lambda ids: text(str(tokenizer.decode(list(ids), skip_special_tokens=False)))


def _key(name: str, bind: Mapping[str, Any]) -> str:
    """One file for each way of loading: the same files may be loaded with and without the code that is among them."""
    loaded_as = [name, bind.get("revision"), bind.get("trust_remote_code") is True]
    return hashlib.blake2b(json.dumps(loaded_as, default=str).encode(), digest_size=8).hexdigest()
