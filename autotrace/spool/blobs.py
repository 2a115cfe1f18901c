"""Keep by digest in the run folder: the files of the run's tokenizer, and images of its texts (``--images``)."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from pathlib import Path

from autotrace.run import files, layout

PATTERNS = (
    "tokenizer*", "vocab*", "tekken*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "chat_template*",
    "config.json", "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json",
    "*.model", "*.tiktoken", "*.spm", "*.py",
)  # fmt: skip
"""Patterns for the files of a model folder that load a tokenizer or processor; never the weights."""
MAX_BYTES = 256 << 20


def keep_image(run_folder: str | Path, image: bytes, media_type: str) -> str | None:
    """Copy ``image`` into the run folder once; return the path of the copy below the run folder.

    None if the file system took no copy.
    """
    ending = media_type.rpartition("/")[2]
    name = f"image-{hashlib.blake2b(image, digest_size=16).hexdigest()}.{ending}"
    path = os.path.join(run_folder, layout.BLOBS, name)
    try:
        if not os.path.lexists(path):
            files.folder(os.path.dirname(path))
            files.replace(path, image)
    except OSError:
        return None
    return f"{layout.BLOBS}/{name}"


def claim_tokenizer(run_folder: str | Path, folder: str | Path) -> str | None:
    """Keep a tokenizer in the first process of a run that calls the function; return None in every other process.

    A single copy is enough. A run may delete the (temporary) folder before the shipper, which gets little CPU time,
    comes to the folder. Raises ``OSError``.
    """
    if not os.path.isdir(folder):
        return None
    digest = hashlib.blake2b(os.path.abspath(folder).encode(), digest_size=16).hexdigest()
    blobs = os.path.join(run_folder, layout.BLOBS)
    files.folder(blobs)
    claim = os.path.join(blobs, f"claim-{digest}")
    try:
        os.close(files.new(claim))
    except FileExistsError:
        return None
    return keep_tokenizer(run_folder, folder)


def keep_tokenizer(run_folder: str | Path, folder: str | Path) -> str | None:
    """Copy the tokenizer in ``folder`` into the run folder; return the copy's name below ``blobs``.

    Equal content has an equal name. None if ``folder`` is not a local folder with a tokenizer, or too large. Raises
    ``OSError``.
    """
    if not os.path.isdir(folder):
        return None
    # a model folder of the hub's cache links into the cache's blobs: the linked files are copied
    sources = sorted({file for pattern in PATTERNS for file in Path(folder).glob(pattern) if file.is_file()})
    if not sources or sum(file.stat().st_size for file in sources) > MAX_BYTES:
        return None
    digest = hashlib.blake2b(digest_size=16)
    for file in sources:
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    name = f"tokenizer-{digest.hexdigest()}"
    kept = Path(run_folder, layout.BLOBS, name)
    if kept.parent.is_symlink():
        raise OSError(errno.ELOOP, "is a link, which is not followed", str(kept.parent))
    if kept.is_dir():
        return name
    part = kept.with_name(f"{name}.{os.getpid()}.part")
    files.folder(part)
    for file in sources:
        with file.open("rb") as source, os.fdopen(files.overwrite(part / file.name), "wb") as copy:
            shutil.copyfileobj(source, copy)
    try:
        os.replace(part, kept)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)
        if not kept.is_dir():  # another process made the folder meanwhile
            raise
    return name
