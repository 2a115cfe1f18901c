"""The tokenizer that somebody names: a folder, or a name on the Hugging Face hub."""

from __future__ import annotations

import os
import re

FILES = re.compile(r"tokenizer|vocab|tekken|.*\.(?:model|tiktoken|spm)\Z")
"""How the names of the files begin that a tokenizer is loaded from."""
_ON_HUB = re.compile(r"[\w-][\w.-]*(?:/[\w-][\w.-]*)?\Z")
EXAMPLE = "Qwen/Qwen3-8B"


def located(name: str, beside: str) -> str:
    """``name`` as every process finds it: the absolute path of a folder, which may be given relative to the folder
    ``beside``, else the name on the hub as it is. Raises ``ValueError`` with what is wrong and what to write."""
    path = os.path.abspath(os.path.join(beside, os.path.expanduser(name)))
    if os.path.isdir(path):
        if not any(map(FILES.match, os.listdir(path))):
            raise ValueError(f"the folder {path} holds no tokenizer: name the one with tokenizer.json")
        return path
    if os.path.isfile(path):
        raise ValueError(f"{path} is a file: name the folder that it is in")
    if name.startswith((".", "~", "/")) or not _ON_HUB.match(name):
        raise ValueError(f"there is no folder {path}; name a folder, or a tokenizer on the hub such as {EXAMPLE}")
    return name
