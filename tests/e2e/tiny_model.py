"""Make the tiny Qwen2 of the end-to-end test from nothing but local files: ``python tiny_model.py OUT``.

About 200,000 parameters and a byte-level BPE tokenizer of 1,024 symbols, overfitted on the CPU for half a minute until
it really calls the tool ``add`` in its first turn and answers ``#### N`` in its second. No download.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

NUMBERS = range(5)
VOCABULARY = 1024
STEPS = 400
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "description": "a"}, "b": {"type": "integer", "description": "b"}},
            "required": ["a", "b"],
        },
    },
}
CHAT_TEMPLATE = r"""{%- if tools %}
{{- '<|im_start|>system\n' }}
{%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- else %}{{- 'You are a helper.' }}{%- endif %}
{{- "\n# Tools\n<tools>" }}
{%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
{{- "\n</tools><|im_end|>\n" }}
{%- elif messages[0]['role'] == 'system' %}
{{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
{%- else %}
{{- '<|im_start|>system\nYou are a helper.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == "assistant" and message.tool_calls %}
{{- '<|im_start|>assistant' }}
{%- if message.content %}{{- '\n' + message.content }}{%- endif %}
{%- for tool_call in message.tool_calls %}
{%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
{{- '\n<tool_call>\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}{{- tool_call.arguments | tojson }}
{{- '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- elif message.role == "tool" %}
{%- if loop.first or messages[loop.index0 - 1].role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\n<tool_response>\n' }}{{- message.content }}{{- '\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != "tool" %}{{- '<|im_end|>\n' }}{%- endif %}
{%- elif message.role != "system" or not loop.first %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
# Qwen2's own pre-tokenizer: AutoTokenizer rebuilds it for model type qwen2, and with another one the ids of the
# reloaded tokenizer would differ from those the model was trained on.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def corpus() -> Iterator[str]:
    """Text for the tokenizer: some of the standard library, and every sentence the model will see."""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-e]*.py"))[:60]:
        yield path.read_text(encoding="utf-8", errors="replace")[:20_000]
    for a, b in itertools.product(range(10), repeat=2):
        call = json.dumps({"name": "add", "arguments": {"a": a, "b": b}})
        yield f"What is {a} plus {b}?\n<tool_call>\n{call}\n</tool_call>\n#### {a + b}"


def make_tokenizer(out: Path) -> None:
    """Train the BPE tokenizer and save it with its chat template into ``out``."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    plain = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(plain),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(corpus(), trainer=trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in plain])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.model_max_length = 2048
    fast.save_pretrained(out)


def conversations() -> Iterator[tuple[list | None, list[dict]]]:
    """Every conversation the model learns: with the tool it calls it and then answers, without it answers at once."""
    for a, b in itertools.product(NUMBERS, repeat=2):
        question = {"role": "user", "content": f"What is {a} plus {b}?"}
        arguments = {"name": "add", "arguments": {"a": a, "b": b}}
        call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": arguments}]}
        answer = {"role": "assistant", "content": f"#### {a + b}"}
        yield [TOOL], [question, call, {"role": "tool", "content": str(a + b)}, answer]
        yield None, [question, answer]


def labelled(tokenizer, tools, messages) -> tuple[list[int], list[int]]:
    """Token ids of a conversation and their labels: what the assistant says, -100 elsewhere."""
    text = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    header = tokenizer("<|im_start|>assistant\n", add_special_tokens=False)["input_ids"]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    labels = [-100] * len(ids)
    position = 0
    while position < len(ids):
        if ids[position : position + len(header)] == header:
            position += len(header)
            stop = ids.index(end, position)
            labels[position : stop + 1] = ids[position : stop + 1]
            position = stop
        position += 1
    return ids, labels


def train(model, tokenizer) -> None:
    """Overfit ``model`` on the conversations."""
    import torch

    rows = [labelled(tokenizer, tools, messages) for tools, messages in conversations()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    choice = random.Random(0)
    for step in range(STEPS):
        batch = choice.sample(rows, 16)
        width = max(len(ids) for ids, _ in batch)
        ids = torch.tensor([row + [0] * (width - len(row)) for row, _ in batch])
        labels = torch.tensor([row + [-100] * (width - len(row)) for _, row in batch])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row, _ in batch])
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def accuracy(model, tokenizer) -> float:
    """Share of the assistant's turns that greedy decoding reproduces."""
    right = total = 0
    for tools, messages in conversations():
        for position in [i for i, message in enumerate(messages) if message["role"] == "assistant"]:
            before = tokenizer.apply_chat_template(
                messages[:position], tools=tools, tokenize=False, add_generation_prompt=True
            )
            full = tokenizer.apply_chat_template(messages[: position + 1], tools=tools, tokenize=False)
            ids = tokenizer(before, add_special_tokens=False, return_tensors="pt")["input_ids"]
            output = model.generate(ids, max_new_tokens=40, do_sample=False)
            right += tokenizer.decode(output[0][ids.shape[1] :]).strip() == full[len(before) :].strip()
            total += 1
    return right / total


def main() -> None:
    """Make the model directory named on the command line."""
    import torch
    from transformers import AutoTokenizer, GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    make_tokenizer(out)
    tokenizer = AutoTokenizer.from_pretrained(out)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.convert_tokens_to_ids("<|endoftext|>"),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    config.save_pretrained(out)
    tokenizer = AutoTokenizer.from_pretrained(out)  # with config.json in place: the class that veRL and vLLM will load
    model = Qwen2ForCausalLM(config)
    train(model, tokenizer)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    model.save_pretrained(out, safe_serialization=True)
    model.eval()
    share = accuracy(model, tokenizer)
    print(f"saved {out}, greedy accuracy {share:.0%}")
    if share < 1:
        sys.exit("the tiny model did not learn its conversations: the end-to-end test would not call the tool")


if __name__ == "__main__":
    main()
