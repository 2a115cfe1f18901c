"""What is loaded instead of ``transformers`` gives its text, for every kind of tokenizer; else it is not used."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from autotrace.run import layout
from autotrace.ship.assembly import tokenizer as tokenizers_of_runs
from autotrace.ship.assembly.tokenizer import is_plain

CORPUS = [
    "It is 4 . Isn't it ? Yes , it 's .", "def f(x):\n    return x + 1\n", "Äpfel und Öl; naïve café",
    "你好世界 🎉👩‍👩‍👧",
    "they 've been , and I 'm not ! ' a ' b n't",
] * 4  # fmt: skip
SPECIAL = ["<|im_start|>", "<|im_end|>", "<tool_call>"]


def byte_level(folder: Path) -> dict[str, Any]:
    """Qwen, Llama 3, GPT: bytes as letters."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    made.add_special_tokens(SPECIAL[:2])
    made.add_tokens([AddedToken(SPECIAL[2], normalized=False), AddedToken(" added ", lstrip=True)])
    made.save(str(folder / "tokenizer.json"))
    return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}


def byte_level_cleaned_up(folder: Path) -> dict[str, Any]:
    """As Llama 3's says: transformers 4 did it, 5 does not."""
    return {**byte_level(folder), "clean_up_tokenization_spaces": True}


def qwen(folder: Path) -> dict[str, Any]:
    """As Qwen's files are, which say each added token twice."""
    byte_level(folder)
    whole = json.loads((folder / "tokenizer.json").read_text())
    whole["model"]["vocab"]["<|endoftext|>"] = len(whole["model"]["vocab"]) + 20
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    added = {str(token["id"]): {**token, "id": None} for token in whole["added_tokens"]}
    return {
        "tokenizer_class": "Qwen2Tokenizer", "clean_up_tokenization_spaces": False, "added_tokens_decoder": added,
        "eos_token": SPECIAL[1], "additional_special_tokens": SPECIAL[:1], "bos_token": None, "errors": "replace",
    }  # fmt: skip


def token_in_the_settings(folder: Path) -> dict[str, Any]:
    """A token that only the configuration has gets an id of its own."""
    return {**byte_level(folder), "pad_token": "<|pad|>"}


def token_in_another_file(folder: Path) -> dict[str, Any]:
    """As models were saved years ago."""
    config = byte_level(folder)
    size = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    (folder / "added_tokens.json").write_text(json.dumps({"<|late|>": size}))
    return config


def byte_fallback(folder: Path) -> dict[str, Any]:
    """Llama 2, Mistral, Gemma: pieces, and bytes for what has none."""
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    letters = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.train_from_iterator(CORPUS[:2], trainers.BpeTrainer(vocab_size=340, special_tokens=letters))
    made.save(str(folder / "tokenizer.json"))
    return {"tokenizer_class": "PreTrainedTokenizerFast"}


def metaspace(folder: Path) -> dict[str, Any]:
    """T5 and its kin."""
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.train_from_iterator(
        CORPUS, trainers.UnigramTrainer(vocab_size=150, special_tokens=["<unk>"], unk_token="<unk>")
    )
    made.save(str(folder / "tokenizer.json"))
    return {"tokenizer_class": "PreTrainedTokenizerFast"}


def word_piece_cleaned_up(folder: Path) -> dict[str, Any]:
    """BERT: transformers takes the space before a full stop out of the text."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(cleanup=False)
    made.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"]))
    made.save(str(folder / "tokenizer.json"))
    return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": True}


OWN_DECODING = """
from transformers import PreTrainedTokenizerFast


class Mine(PreTrainedTokenizerFast):
    def {method}(self, *words, **named):
        return super().{method}(*words, **named).upper()
"""


def _own(folder: Path, method: str) -> dict[str, Any]:
    (folder / "tokenization_mine.py").write_text(OWN_DECODING.format(method=method))
    config = byte_level(folder)
    return {**config, "tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": [None, "tokenization_mine.Mine"]}}


def own_decode(folder: Path) -> dict[str, Any]:
    """A model's code that decodes as it likes."""
    return _own(folder, "decode")


def own_inner_decode(folder: Path) -> dict[str, Any]:
    """The same, one level below."""
    return _own(folder, "_decode")


def made(tmp_path: Path, kind: Callable[[Path], dict[str, Any]]) -> tuple[Path, Path]:
    """A tokenizer's folder, and a run folder that has it as its blob."""
    source = tmp_path / "run" / layout.BLOBS / "tokenizer-1"
    source.mkdir(parents=True)
    (source / "tokenizer_config.json").write_text(json.dumps(kind(source)))
    return source, tmp_path / "run"


def kept(run: Path) -> list[Path]:
    return list((run / layout.BLOBS).glob("decoding-*"))


def sequences(size: int) -> list[list[int]]:
    """Random ones, some ids out of the vocabulary, broken characters."""
    rolled = random.Random(5)
    return [[rolled.randrange(size + 3) for _ in range(rolled.randrange(40))] for _ in range(200)]


KINDS = {
    byte_level: False, qwen: False, byte_level_cleaned_up: None, token_in_the_settings: True,
    token_in_another_file: True, byte_fallback: True, metaspace: True, word_piece_cleaned_up: False, own_decode: False,
    own_inner_decode: False,
}  # fmt: skip
"""Kind -> whether a copy of the Rust tokenizer is kept; None: it depends on the release of transformers."""
PLAIN = (byte_level, qwen)
"""Kinds whose files tell all."""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_second_reader_of_a_run_gets_the_text_of_transformers(
    tmp_path: Path, kind: Callable[[Path], dict[str, Any]]
) -> None:
    from transformers import AutoTokenizer

    source, run = made(tmp_path, kind)
    bind = {"trust_remote_code": True}
    theirs = AutoTokenizer.from_pretrained(source, trust_remote_code=True)
    decodes = [tokenizers_of_runs.load(str(source), bind, run, trusted=True) for _ in range(2)]
    encoded = [theirs(text, add_special_tokens=False).input_ids for text in CORPUS]
    for ids in [*encoded, *sequences(len(theirs)), []]:
        expected = theirs.decode(ids, skip_special_tokens=False)
        assert [decode(ids) for decode in decodes] == [expected, expected]
    if KINDS[kind] is not None:
        assert bool(kept(run)) is KINDS[kind]
    assert is_plain(source) is (kind in PLAIN)


@pytest.mark.parametrize(
    ("kind", "imported"), [(metaspace, False), pytest.param(own_decode, True, marks=pytest.mark.long)]
)
def test_transformers_is_imported_only_where_it_has_to_decode(
    tmp_path: Path, kind: Callable[[Path], dict[str, Any]], imported: bool
) -> None:
    """The process that finds out is another one, once for both readers."""
    source, run = made(tmp_path, kind)
    program = (
        "import sys; from pathlib import Path; from autotrace.ship.assembly.tokenizer import load\n"
        "text = load(sys.argv[1], {'trust_remote_code': True}, Path(sys.argv[2]), trusted=True)([20])\n"
        "print('transformers' in sys.modules, text != '')"
    )
    said = [
        subprocess.run([sys.executable, "-c", program, source, run], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert said == [f"{imported} True\n"] * 2
    (decision,) = (run / layout.BLOBS).glob("transformers-*")
    assert decision.read_text() == ("transformers is needed to decode with Mine\n" if imported else "")
    assert bool(kept(run)) is not imported


def test_code_of_a_model_that_was_not_allowed_does_not_decide_for_the_run_that_allows_it(tmp_path: Path) -> None:
    source, run = made(tmp_path, own_decode)
    config = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps({**config, "tokenizer_class": "PreTrainedTokenizerFast"}))
    ids = [256, 257, 258]
    without = tokenizers_of_runs.load(str(source), {"trust_remote_code": False}, run, trusted=True)(ids)
    allowed = tokenizers_of_runs.load(str(source), {"trust_remote_code": True}, run, trusted=True)(ids)
    assert allowed == without.upper()


@pytest.mark.parametrize("kind", PLAIN)
def test_files_that_tell_all_are_all_that_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[Path], dict[str, Any]]
) -> None:
    """No other process, and nothing is written."""
    source, run = made(tmp_path, kind)
    monkeypatch.setattr(tokenizers_of_runs, "decide_apart", lambda *_: pytest.fail("another process was started"))
    before = sorted(run.rglob("*"))
    assert tokenizers_of_runs.load(str(source), {"trust_remote_code": True}, run, trusted=True)([70, 71])
    assert sorted(run.rglob("*")) == before


@pytest.mark.parametrize(
    "changed",
    [
        {"auto_map": {"AutoTokenizer": ["a.B", None]}},
        {"tokenizer_class": "LlamaTokenizerFast"},
        {"clean_up_tokenization_spaces": True},
        {"tokenizer_file": "other.json"},
        {"eos_token": "</s>"},
        {"extra_special_tokens": {"image_token": "<image>"}},
        {"added_tokens_decoder": {"1": {"content": "<|im_start|>"}}},
        {"added_tokens_decoder": 5},
        {"bos_token": 7},
    ],
    ids=str,
)
def test_what_is_not_known_to_be_without_effect_is_left_to_transformers(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    source, _ = made(tmp_path, byte_level)
    config = json.loads((source / "tokenizer_config.json").read_text())
    assert is_plain(source)
    (source / "tokenizer_config.json").write_text(json.dumps({**config, **changed}))
    assert not is_plain(source)


def test_a_damaged_copy_is_not_used(tmp_path: Path) -> None:
    source, run = made(tmp_path, byte_fallback)
    before = tokenizers_of_runs.load(str(source), {}, run, trusted=True)([260, 261])
    (copy,) = kept(run)
    assert copy.stat().st_mode & 0o777 == 0o600
    copy.write_bytes(copy.read_bytes()[:100])
    assert tokenizers_of_runs.load(str(source), {}, run, trusted=True)([260, 261]) == before


def test_a_moved_run_folder_keeps_its_copy(tmp_path: Path) -> None:
    source, run = made(tmp_path, byte_fallback)
    tokenizers_of_runs.load(str(source), {}, run, trusted=True)
    moved = run.rename(tmp_path / "moved")
    tokenizers_of_runs.load(str(moved / layout.BLOBS / source.name), {}, moved, trusted=True)
    assert len(kept(moved)) == 1
