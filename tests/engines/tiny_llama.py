"""A two-layer Llama (its weights are random: ``load_format=dummy``) and a tokenizer of 512 words, in a folder."""

from __future__ import annotations

from pathlib import Path

TEMPLATE = "{% for m in messages %}<|im_start|> {{ m['role'] }} {{ m['content'] }} <|im_end|> {% endfor %}"


def make(folder: Path) -> Path:
    """Write the model, unless it is there."""
    if (folder / "tokenizer.json").exists():
        return folder
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    config = LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    words = {"<pad>": 0, "<s>": 1, "</s>": 2} | {f"w{number}": number for number in range(3, 512)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<pad>"
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return folder
