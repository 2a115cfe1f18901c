"""The tokenizer of a run is kept, its weights are not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from autotrace.config import environment as env
from autotrace.ship.assembly.decoding import Decoder
from autotrace.spool.blobs import claim_tokenizer, keep_tokenizer
from autotrace.trajectory.model import Span, Trajectory
from tests.answers.letters import saved


@pytest.fixture(autouse=True)
def own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are the run's own shipper; ``tests/security`` has what a stranger's folder may do."""
    monkeypatch.setenv(env.OWN_RUN, str(tmp_path / "run"))


def model(folder: Path) -> Path:
    folder.mkdir()
    (folder / "tokenizer.json").write_text('{"model": 1}')
    (folder / "tekken.json").write_text("{}")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"\0" * 1000)
    return folder


def test_a_copy_is_made_once_by_content(tmp_path: Path) -> None:
    first = keep_tokenizer(tmp_path / "run", model(tmp_path / "a"))
    second = keep_tokenizer(tmp_path / "run", model(tmp_path / "b"))
    assert first is not None and first == second
    kept = tmp_path / "run" / "blobs" / first
    assert sorted(file.name for file in kept.iterdir()) == ["config.json", "tekken.json", "tokenizer.json"]
    assert (kept / "tokenizer.json").stat().st_mode & 0o777 == 0o600
    assert keep_tokenizer(tmp_path / "run", tmp_path / "nowhere") is None


def test_one_process_of_a_run_copies(tmp_path: Path) -> None:
    (tmp_path / "run" / "blobs").mkdir(parents=True)
    folder = model(tmp_path / "a")
    first = claim_tokenizer(tmp_path / "run", folder)
    assert first is not None and (tmp_path / "run" / "blobs" / first / "tokenizer.json").exists()
    assert claim_tokenizer(tmp_path / "run", folder) is None


def test_the_copy_is_used_when_the_original_is_gone(tmp_path: Path) -> None:
    folder = saved(tmp_path / "a")
    decoder = Decoder(tmp_path / "run")
    decoder.bind({"path": str(folder)})
    shutil.rmtree(folder)
    decoder.bind({"path": str(folder)})
    assert decoder.decode([72, 105]) == "Hi"


def test_what_only_tokens_spelled_is_redacted_and_its_ids_are_left_out(tmp_path: Path) -> None:
    decoder = Decoder(tmp_path / "run")
    decoder.bind({"path": str(saved(tmp_path / "model"))})
    secret = [ord(char) for char in "the key is sk-abcdefghijklmnopqrstuvwx."]
    span = Span("0" * 16, None, "generate", "llm", "key", 1, prompt_ids=[104, 105], new_prompt_ids=[104, 105])
    span.response_ids = secret
    trajectory = Trajectory("0" * 32, "run", [span])
    decoder.add_texts(trajectory)
    assert span.response_text == "the key is <redacted>." and span.response_ids is None
    assert span.new_prompt_ids == [104, 105] and "sk-abc" not in str(span.messages)
    assert any("redacted" in note for note in trajectory.notes)
