"""Decide whether a tokenizer of ``transformers`` decodes exactly like its Rust tokenizer; if so, store the Rust
tokenizer as a file, which is then the only file to load.

``python -m autotrace.ship.assembly.rust_tokenizer SOURCE BIND KEPT NEEDED`` decides in a process of its own: importing
``transformers`` takes ten seconds and 400 MB, which the delivering process would keep for the rest of the run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autotrace.config import environment as env
from autotrace.run import files
from autotrace.run.process import python

_log = logging.getLogger("autotrace.ship")

_PROBE = "a . b ? c ! d , e ' f n't g 'm h 's i 've j 're k"
"""Text that ``clean_up_tokenization_spaces`` changes."""
_SEQUENCE = 509
"""Number of ids in a sequence of the comparison."""


def only_hands_over(tokenizer: Any) -> bool:
    """Return whether ``tokenizer``, of ``transformers``, decodes exactly like ``tokenizer.backend_tokenizer``: the
    class has no decoding of its own, and the text is not changed afterwards."""
    if getattr(tokenizer, "is_fast", False) is not True:
        return False
    for name in ("decode", "_decode"):
        module = getattr(getattr(type(tokenizer), name, None), "__module__", "")
        if name in vars(tokenizer) or not module.startswith("transformers.tokenization_utils"):
            return False
    rust = tokenizer.backend_tokenizer
    if getattr(tokenizer, "clean_up_tokenization_spaces", False):  # transformers 5 ignores the flag for BPE
        probe = rust.encode(_PROBE, add_special_tokens=False).ids
        raw = rust.decode(probe, skip_special_tokens=False)
        if _PROBE not in raw or tokenizer.decode(probe, skip_special_tokens=False) != raw:
            return False
    return all(
        tokenizer.decode(ids, skip_special_tokens=False) == rust.decode(ids, skip_special_tokens=False)
        for ids in sequences(rust.get_vocab_size(with_added_tokens=True))
    )


def sequences(size: int) -> Iterator[list[int]]:
    """Yield sequences that contain every id below ``size`` once, with no two neighbours of the vocabulary in a row."""
    stride = max(1, -(-size // _SEQUENCE))
    for first in range(stride):
        yield list(range(first, size, stride))


def loaded(source: str, bind: Mapping[str, Any], kept: Path) -> tuple[Any, bool]:
    """Return the tokenizer at ``source`` as loaded by ``transformers``, and False; or, if both decode alike, the Rust
    tokenizer, written to ``kept``, and True. Raises any error of ``transformers``."""
    from transformers import AutoTokenizer

    local = os.path.isdir(source)
    options: dict[str, Any] = {"trust_remote_code": bind.get("trust_remote_code") is True, "local_files_only": local}
    if isinstance(bind.get("revision"), str) and not local:
        options["revision"] = bind["revision"]
    tokenizer = AutoTokenizer.from_pretrained(source, **options)
    with contextlib.suppress(Exception):  # code of the model's
        if only_hands_over(tokenizer):
            _keep(tokenizer.backend_tokenizer, kept)
            return tokenizer.backend_tokenizer, True
    return tokenizer, False


def _keep(tokenizer: Any, path: Path) -> None:
    """Write the Rust tokenizer to ``path``. Never raises."""
    try:
        if path.parent.is_dir():
            files.replace(path, tokenizer.to_str().encode())
    except Exception as error:  # a full disk
        _log.info("commands that read this run will load transformers: %s: %s", type(error).__name__, error)


def decide_apart(source: str, bind: Mapping[str, Any], kept: Path, needed: Path) -> None:
    """Run ``loaded`` in another process, once for all processes of a run, and wait: ``kept`` exists afterwards if the
    Rust tokenizer is enough. ``needed``: a file that records the opposite. Never raises."""
    words = python("autotrace.ship.assembly.rust_tokenizer", source, json.dumps(bind, default=str))
    with contextlib.suppress(OSError):
        if kept.parent.is_dir() and not (needed.exists() and needed.stat().st_size):
            quiet = subprocess.DEVNULL
            environ = {**os.environ, env.AUTOTRACE: "0"}
            subprocess.run([*words, str(kept), str(needed)], stdin=quiet, stdout=quiet, stderr=quiet, env=environ)


def main(source: str, bind: str, kept: str, needed: str) -> None:
    """Decide, unless another process has decided meanwhile."""
    lock = files.shared(needed)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not os.path.exists(kept) and not os.fstat(lock).st_size:
        tokenizer, rust = loaded(source, json.loads(bind), Path(kept))
        if not rust:
            os.write(lock, f"transformers is needed to decode with {type(tokenizer).__name__}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
