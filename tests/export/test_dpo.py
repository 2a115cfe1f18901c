"""Pairs for preference training: the best and the worst of each group, as TRL's trainer reads them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.export import chatml
from tests.export.chatml import TOOLS, said
from tests.ship.spools import Process, new_run


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def answered(topic: str, answer: str) -> list[dict[str, Any]]:
    """Of the same prompt, with another end."""
    return [*said(topic)[:-1], {"role": "assistant", "content": answer}]


@pytest.fixture
def groups(runs: Path, model: Path) -> Path:
    """One group with three rewards, one with one reward, one whose prompts differ, and a rollout alone."""
    folder = new_run(runs, "groups")
    process = Process(folder)
    process.bind("tokenizer", path=str(model), trust_remote_code=False)
    for number, (answer, reward) in enumerate((("In Bavaria.", 0.0), ("On the Rhine.", 1.0), ("In Europe.", 0.5))):
        chatml.rollout(process, model, answered("Köln", answer), reward, uid="a", rollout=number)
    for number in range(2):
        chatml.rollout(process, model, said("Bonn"), 1.0, uid="b", rollout=number)
    for number, topic in enumerate(("Ulm", "Trier")):
        chatml.rollout(process, model, said(topic), float(number), uid="c", rollout=number)
    chatml.rollout(process, model, said("Mainz"), 1.0, uid="d", rollout=0)
    process.exit()
    return folder


def test_a_group_is_its_best_and_its_worst_rollout(call: Call, groups: Path, tmp_path: Path) -> None:
    done = call("export", groups, "--format", "dpo", "--out", tmp_path / "pairs.jsonl")

    assert done.exit_code == 0, done.output
    (row,) = rows(tmp_path / "pairs.jsonl")
    assert row["prompt"] == said("Köln")[:2] and row["tools"] == TOOLS
    assert row["prompt"] + row["chosen"] == answered("Köln", "On the Rhine.")
    assert row["prompt"] + row["rejected"] == answered("Köln", "In Bavaria.")
    assert (row["reward_chosen"], row["reward_rejected"], row["label_chosen"]) == (1.0, 0.0, None)
    assert "1 trajectory left out: they are neither the best nor the worst of their group" in done.stderr
    assert "3 trajectories left out: all rollouts of their group have the same reward" in done.stderr
    assert "2 trajectories left out: the best and the worst of their group have different prompts" in done.stderr
    assert "wrote 2 trajectories" in done.stdout


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), "good"])
def test_a_reward_that_is_no_number_pairs_nothing(
    call: Call, runs: Path, model: Path, tmp_path: Path, reward: Any
) -> None:
    folder = new_run(runs, "groups")
    process = Process(folder)
    process.bind("tokenizer", path=str(model), trust_remote_code=False)
    for number, given in enumerate((reward, 0.5, 1.0)):
        chatml.rollout(process, model, answered("Köln", f"{number}"), given, uid="a", rollout=number)
    process.exit()
    done = call("export", folder, "--format", "dpo", "--out", tmp_path / "pairs.jsonl")
    (row,) = rows(tmp_path / "pairs.jsonl")
    assert (row["reward_chosen"], row["reward_rejected"]) == (1.0, 0.5)
    assert "1 trajectory left out: they have no reward" in done.stderr


def test_trls_trainer_takes_the_pairs_as_they_are(call: Call, groups: Path, model: Path) -> None:
    import datasets
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from trl import DPOConfig, DPOTrainer

    call("export", groups, "--format", "dpo", "--out", "pairs.jsonl")
    tokenizer = AutoTokenizer.from_pretrained(model)
    tiny = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
    ))  # fmt: skip
    loaded = datasets.load_dataset("json", data_files="pairs.jsonl", split="train", cache_dir="cache")
    config = DPOConfig("out", max_length=None, use_cpu=True, bf16=False, report_to=[], max_steps=1)
    trainer = DPOTrainer(
        tiny, ref_model=copy.deepcopy(tiny), args=config, train_dataset=loaded, processing_class=tokenizer
    )

    (prepared,) = trainer.train_dataset
    prompt = tokenizer.apply_chat_template(said("Köln")[:2], tools=TOOLS, add_generation_prompt=True, tokenize=False)
    assert tokenizer.decode(prepared["prompt_ids"]) == prompt
    for side, answer in (("chosen", "On the Rhine."), ("rejected", "In Bavaria.")):
        whole = tokenizer.apply_chat_template(answered("Köln", answer), tools=TOOLS, tokenize=False)
        assert (prompt + tokenizer.decode(prepared[f"{side}_ids"])).startswith(whole)
    assert trainer.train().global_step == 1
