"""Chat templates of other models, over one vocabulary of bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Template:
    """How a conversation is written."""

    user: str
    assistant: str
    end: str
    """The token that ends an answer."""
    begin: str = ""

    def between(self, words: str) -> str:
        """What stands between an answer, end token and all, and the next one."""
        return f"{self.user.format(words=words)}{self.assistant}"

    @property
    def jinja(self) -> str:
        user = self.user.format(words="{{ message.content }}")
        return (
            f"{{{{ '{self.begin}' }}}}{{%- for message in messages %}}{{%- if message.role == 'assistant' %}}"
            f"{{{{ {self.assistant!r} }}}}{{{{ message.content }}}}{{{{ '{self.end}' }}}}{{%- else %}}{user}"
            f"{{%- endif %}}{{%- endfor %}}{{%- if add_generation_prompt %}}{{{{ {self.assistant!r} }}}}{{%- endif %}}"
        )


CHATML = Template("\n<|im_start|>user\n{words}<|im_end|>\n", "<|im_start|>assistant\n", "<|im_end|>")
BAR, LINE = "\uff5c", "\u2581"
ENDS = f"<{BAR}end{LINE}of{LINE}sentence{BAR}>"
BEGINS = f"<{BAR}begin{LINE}of{LINE}sentence{BAR}>"
HEADER = ("<|start_header_id|>", "<|end_header_id|>\n\n")
TEMPLATES = {
    "llama": Template(
        f"{HEADER[0]}user{HEADER[1]}{{words}}<|eot_id|>",
        "assistant".join(HEADER),
        "<|eot_id|>",
        "<|begin_of_text|>",
    ),
    "mistral": Template("[INST] {words} [/INST]", "", "</s>", "<s>"),
    "deepseek": Template(f"<{BAR}User{BAR}>{{words}}", f"<{BAR}Assistant{BAR}>", ENDS, BEGINS),
}
SPECIAL = [
    "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>", "[INST]", "[/INST]", "<s>", "</s>",
    f"<{BAR}User{BAR}>", f"<{BAR}Assistant{BAR}>", BEGINS, ENDS,
]  # fmt: skip


def write(folder: Path, tokenizer: Any, template: Template) -> Any:
    """A model directory as ``in_process.make_model`` makes it, that speaks so."""
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *SPECIAL]})
    tokenizer.eos_token, tokenizer.chat_template = template.end, template.jinja
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    (folder / "config.json").write_text(json.dumps(config))
    return tokenizer
