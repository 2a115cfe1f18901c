"""A run whose tokens are text: a tokenizer of bytes with the marks and the chat template of Qwen and Hermes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.ship.spools import Process, attributes

TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- "# Tools\\n\\nYou may call these functions:\\n<tools>" }}
{%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
{{- "\\n</tools>\\n\\nAnswer with <tool_call>\\n{\\"name\\": <name>, \\"arguments\\": <object>}\\n</tool_call><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{%- if message.content %}{{- '\\n' }}{%- endif %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""  # noqa: E501
TOOLS = [
    {"type": "function", "function": {"name": name, "description": what, "parameters": {
        "type": "object", "properties": {argument: {"type": "string"}}, "required": [argument],
    }}}
    for name, what, argument in (("search", "Search the web.", "query"), ("read", "Read a page.", "url"))
]  # fmt: skip


def model(folder: Path) -> Path:
    """A model folder that has nothing but its tokenizer."""
    folder.mkdir()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE, "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>", "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def call(name: str, **arguments: str) -> dict[str, Any]:
    """A tool call as a template takes it."""
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def said(topic: str) -> list[dict[str, Any]]:
    """A conversation with two tools that take different arguments."""
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f"Where is {topic}?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call("search", query=f"{topic} ü")]},
        {"role": "tool", "content": f"a page about {topic}"},
        {"role": "assistant", "content": "", "tool_calls": [call("read", url="http://x/1")]},
        {"role": "tool", "content": "On the Rhine."},
        {"role": "assistant", "content": f"{topic} is on the Rhine."},
    ]


def rollout(process: Process, folder: Path, messages: list[dict[str, Any]], reward: float, **who: Any) -> str:
    """One trajectory: each assistant's message is what the model wrote, token by token; its id."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    trace = os.urandom(16)
    root = process.open(trace, "trajectory", attributes=attributes(**who))
    agent = process.open(trace, "agent", root)
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        options = {"tools": TOOLS, "tokenize": False}
        prompt = tokenizer.apply_chat_template(messages[:number], add_generation_prompt=True, **options)
        after = tokenizer.apply_chat_template(messages[: number + 1], **options)
        ids = [tokenizer.encode(text, add_special_tokens=False) for text in (prompt, after[len(prompt) : -1])]
        llm = process.open(trace, "llm", agent, ids[0])
        process.close(trace, llm, ids[1])
    process.close(trace, agent)
    process.fact("reward", reward, trace)
    process.close(trace, root)
    return trace.hex()
