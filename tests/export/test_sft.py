"""Rows for fine-tuning: what was said and which tools there were, as the trainers themselves read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.export.chatml import TOOLS, said
from tests.ship.spools import Process, attributes, new_run, trajectory


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_was_said_comes_back(call: Call, run: Path) -> None:
    done = call("export", "--format", "sft", "--where", "reward < 0.5")
    assert done.exit_code == 0, done.output
    (row,) = rows(run / "export" / "sft" / "train.jsonl")
    assert row["messages"] == said("Köln")
    assert row["tools"] == TOOLS
    assert (row["reward"], row["step"], row["sample_index"]) == (0.0, 1, "7")


def test_filters_and_duplicates(call: Call, run: Path, tmp_path: Path) -> None:
    done = call("export", "--format", "sft", "--min-reward", "0.5", "--status", "ok", "--dedup", "--out", "mine.jsonl")
    assert "1 trajectory left out: the same conversation was exported already (--dedup)" in done.stderr
    (row,) = rows(tmp_path / "mine.jsonl")
    assert row["messages"] == said("Bonn")
    for words in (["--status", "error"], ["--min-reward", "nan"], ["--min-reward", "inf"]):
        assert "no trajectory matches" in call("export", "--format", "sft", *words).output


def test_standard_output_has_rows_alone(call: Call, run: Path) -> None:
    done = call("export", "--format", "sft", "--out", "-")
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == 3
    assert "3 trajectories to standard output" in done.stderr


def test_datasets_and_the_chat_template_give_the_text_that_the_model_saw(call: Call, run: Path, model: Path) -> None:
    """As TRL prepares it: the template is applied to the row's messages and tools."""
    import datasets
    from transformers import AutoTokenizer

    call("export", "--format", "sft", "--out", "all.jsonl")
    call("export", "--out", "raw.jsonl")
    tokenizer = AutoTokenizer.from_pretrained(model)
    loaded = datasets.load_dataset("json", data_files="all.jsonl", split="train", cache_dir="cache")
    for row, raw in zip(loaded, rows(Path("raw.jsonl")), strict=True):
        agent = next(span for span in raw["spans"] if span["role"] == "agent")
        text = tokenizer.apply_chat_template(row["messages"], tools=row["tools"], tokenize=False)
        assert text == agent["prompt_text"] + agent["response_text"] + "\n"


def test_trls_trainer_takes_the_rows_as_they_are(call: Call, run: Path, model: Path) -> None:
    import datasets
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from trl import SFTConfig, SFTTrainer

    call("export", "--format", "sft", "--out", "all.jsonl", "--where", "reward = 0")
    tokenizer = AutoTokenizer.from_pretrained(model)
    tiny = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
    ))  # fmt: skip
    rows = datasets.load_dataset("json", data_files="all.jsonl", split="train", cache_dir="cache")
    config = SFTConfig("out", max_length=None, use_cpu=True, bf16=False, report_to=[])
    trainer = SFTTrainer(tiny, config, train_dataset=rows, processing_class=tokenizer)
    expected = tokenizer.apply_chat_template(said("Köln"), tools=TOOLS, tokenize=False)
    assert tokenizer.decode(trainer.train_dataset[0]["input_ids"]).startswith(expected)


def test_verls_own_dataset_trains_on_the_models_words(call: Call, run: Path, model: Path) -> None:
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

    assert call("export", "--format", "sft", "--out", "train.parquet", "--where", "reward = 0").exit_code == 0
    tokenizer = AutoTokenizer.from_pretrained(model)
    config = OmegaConf.create({"max_length": 4096, "pad_mode": "no_padding", "truncation": "error"})
    (row,) = MultiTurnSFTDataset("train.parquet", tokenizer, config)
    whole, mask = row["input_ids"].tolist(), row["loss_mask"].tolist()
    learned = tokenizer.decode([token for token, counts in zip(whole, mask, strict=True) if counts])
    written = [
        'Let me see.\n<tool_call>\n{"name": "search", "arguments": {"query": "Köln ü"}}\n</tool_call>',
        '<tool_call>\n{"name": "read", "arguments": {"url": "http://x/1"}}\n</tool_call>',
        "Köln is on the Rhine.",
    ]
    assert learned == "".join(f"{text}<|im_end|>\n" for text in written)
    expected = tokenizer.apply_chat_template(said("Köln"), tools=TOOLS, tokenize=False)
    assert tokenizer.decode(whole) == expected


def test_messages_that_an_agent_sent_itself(call: Call, runs: Path) -> None:
    process = Process(new_run(runs))
    trace = b"t" * 16
    root = process.open(trace, "trajectory", attributes=attributes())
    asked = [{"role": "user", "content": "2+2?", "name": None}]
    llm = process.open(trace, "llm", root, inputs={"model": "gpt", "messages": asked, "tools": TOOLS})
    called = {"id": "call_9", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    completion = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [called]}}]}
    process.close(trace, llm, output=completion)
    asked = [*asked, completion["choices"][0]["message"], {"role": "tool", "content": "4", "tool_call_id": "call_9"}]
    llm = process.open(trace, "llm", root, inputs={"model": "gpt", "messages": asked, "tools": TOOLS})
    process.close(trace, llm, output={"choices": [{"message": {"role": "assistant", "content": "It is 4."}}]})
    process.close(trace, root)
    process.exit()
    assert call("export", "--format", "sft", "--out", "mine.jsonl").exit_code == 0
    (row,) = rows(Path("mine.jsonl"))
    assert row["messages"] == [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "call_9", "type": "function", "function": {"name": "add", "arguments": {"a": 2}}}]},
        {"role": "tool", "content": "4", "tool_call_id": "call_9"},
        {"role": "assistant", "content": "It is 4."},
    ]  # fmt: skip
    assert row["tools"] == TOOLS


@pytest.mark.parametrize("where", ["turn", "client", "earlier turn"])
def test_tools_are_those_that_the_model_was_offered(call: Call, runs: Path, where: str) -> None:
    """The turn may be a method of the agent's own around the client's call, and the last one may offer no tools."""
    process = Process(new_run(runs))
    trace = b"t" * 16
    root = process.open(trace, "trajectory", attributes=attributes())
    called = {"id": "call_9", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "2+2?"}]
    replies = [
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "assistant", "content": "It is 4."},
    ]
    for number, reply in enumerate(replies):
        sent = {"tools": TOOLS} if where != "earlier turn" or number == 0 else {}
        turn = process.open(trace, "llm", root, inputs={"messages": messages, **({} if where == "client" else sent)})
        if where == "client":
            inner = process.open(trace, "llm", turn, inputs={"messages": messages, **sent})
            process.close(trace, inner, output={"choices": [{"message": reply}]})
        process.close(trace, turn, output={"choices": [{"message": reply}]})
        messages = [*messages, reply, {"role": "tool", "content": "4", "tool_call_id": "call_9"}]
    process.close(trace, root)
    process.exit()
    assert call("export", "--format", "sft", "--out", "mine.jsonl").exit_code == 0
    (row,) = rows(Path("mine.jsonl"))
    assert row["tools"] == TOOLS
    (_, asks, result, _) = row["messages"]
    assert asks["tool_calls"][0]["id"] == result["tool_call_id"] == "call_9"
    assert call("export", "--format", "atif", "--out", "atif").exit_code == 0
    (file,) = Path("atif").rglob("*.json")
    assert json.loads(file.read_text())["agent"]["tool_definitions"] == TOOLS


def test_who_a_prompt_is_has_one_type_everywhere(call: Call, runs: Path) -> None:
    """veRL's index of a prompt is a number or a uuid."""
    process = Process(new_run(runs))
    trace = b"t" * 16
    root = process.open(trace, "trajectory", attributes=attributes(0, uid=5, sample_index=17, data_source="gsm8k"))
    llm = process.open(trace, "llm", root, inputs={"messages": [{"role": "user", "content": "2+2?"}]})
    process.close(trace, llm, output={"choices": [{"message": {"role": "assistant", "content": "4"}}]})
    process.close(trace, root)
    process.exit()
    for layout in ("jsonl", "sft"):
        assert call("export", "--format", layout, "--out", f"{layout}.jsonl").exit_code == 0
    (whole,), (row,) = rows(Path("jsonl.jsonl")), rows(Path("sft.jsonl"))
    shown = json.loads(call("ls", "--json").output)
    selected = call("sql", "SELECT sample_index, uid FROM trajectories", "--json").output
    found = [whole["attributes"], whole["spans"][0]["attributes"], shown, json.loads(selected)]
    assert {(one["sample_index"], one["uid"]) for one in found} == {("17", "5")}
    assert row["sample_index"] == "17"
    assert json.loads(call("ls", "--json", "--where", "sample_index > 16").output)["sample_index"] == "17"
    assert json.loads(call("ls", "--json", "--sample", "17").output)["sample_index"] == "17"


@pytest.mark.parametrize("name", ["there.jsonl", "there.parquet"])
def test_what_has_no_conversation_is_left_out_and_said(call: Call, runs: Path, name: str) -> None:
    process = Process(new_run(runs))
    trajectory(process)  # token ids, and no tokenizer
    process.close(b"n" * 16, process.open(b"n" * 16, "trajectory", attributes=attributes(uid="n")))
    process.exit()
    done = call("export", "--format", "sft", "--out", name)
    assert done.exit_code == 2 and not Path(name).exists()
    assert "1 trajectory left out: no LLM call was recorded" in done.stderr
    assert "1 trajectory left out: their token ids could not be decoded" in done.stderr
