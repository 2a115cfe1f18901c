"""A tokenizer with a token for each letter, as a model folder has it."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models


def saved(folder: Path, shift: int = 0) -> Path:
    """Token ``n`` is the letter of that number; ``shift``: a letter that many after it."""
    folder.mkdir()
    tokenizer = Tokenizer(models.WordLevel({chr(n + shift): n for n in range(128)}, unk_token=chr(shift)))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder
