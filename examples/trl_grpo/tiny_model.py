"""A Qwen2 of 0.2 million parameters that has learnt to ask for sums: made in half a minute on a CPU, of nothing but
what is installed, so that the example needs no download.

    python examples/trl_grpo/tiny_model.py FOLDER
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.utils import get_json_schema
from trl import chat_template_utils

from tools import add, subtract

SIZE = 1024
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TOOLS = [get_json_schema(add), get_json_schema(subtract)]


def conversations() -> Iterator[list[dict[str, Any]]]:
    """All sums of two numbers below five: a question, a tool call, its result, an answer."""
    for a in range(5):
        for b in range(5):
            call = {"type": "function", "function": {"name": "add", "arguments": {"a": a, "b": b}}}
            yield [
                {"role": "user", "content": f"What is {a} plus {b}?"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "name": "add", "content": str(a + b)},
                {"role": "assistant", "content": f"#### {a + b}"},
            ]


def make_tokenizer(folder: Path) -> None:
    """As Qwen2's, of what such conversations are made of."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    pieces = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pieces, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    marks = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
    texts = [chat_template_utils.qwen2_5_chat_template, *map(str, TOOLS), *map(str, conversations())] * 3
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE - len(marks),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in marks])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = chat_template_utils.qwen2_5_chat_template
    fast.model_max_length = 2048
    fast.save_pretrained(folder)


def fit(model: Any, tokenizer: Any, steps: int) -> None:
    """Fit what the assistant says, and nothing else."""
    template = chat_template_utils.qwen2_5_training_chat_template
    rows = []
    for messages in conversations():
        ids, labels = [], []
        text = tokenizer.apply_chat_template(messages, tools=TOOLS, tokenize=False, chat_template=template)
        for number, part in enumerate(text.split("<|im_start|>assistant\n")):
            said, _, rest = part.partition("<|im_end|>") if number else ("", "", part)
            spoken = tokenizer(said + "<|im_end|>", add_special_tokens=False)["input_ids"] if number else []
            header = "<|im_start|>assistant\n" if number < text.count("<|im_start|>assistant\n") else ""
            other = tokenizer(rest + header, add_special_tokens=False)["input_ids"]
            ids += spoken + other
            labels += spoken + [-100] * len(other)
        rows.append((ids, labels))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    chosen = random.Random(0)
    for _ in range(steps):
        batch = chosen.sample(rows, 8)
        longest = max(len(ids) for ids, _ in batch)
        tensors = [
            torch.tensor([list(row[part]) + [fill] * (longest - len(row[part])) for row in batch])
            for part, fill in ((0, 0), (1, -100))
        ]
        model(input_ids=tensors[0], attention_mask=(tensors[0] != 0).long(), labels=tensors[1]).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def make(folder: Path, steps: int = 200) -> None:
    """Write model and tokenizer to ``folder``."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make_tokenizer(folder)
    config = Qwen2Config(
        vocab_size=SIZE, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=False,
    )  # fmt: skip
    config.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    model = Qwen2ForCausalLM(config)
    fit(model, tokenizer, steps)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    model.save_pretrained(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
