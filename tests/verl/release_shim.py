"""veRL up to 0.7.0 was written for transformers 4: two things of it that transformers 5 has changed."""

from __future__ import annotations

from typing import Any


def install() -> None:
    """Put them back, in this process."""
    import transformers

    lazy = type(transformers).__getattr__
    template = transformers.PreTrainedTokenizerBase.apply_chat_template

    def _getattr(self: Any, name: str) -> Any:
        """A class was renamed."""
        return lazy(self, "AutoModelForImageTextToText" if name == "AutoModelForVision2Seq" else name)

    def apply_chat_template(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Token ids came as a list."""
        return template(self, *args, **{"return_dict": False, **kwargs})

    type(transformers).__getattr__ = _getattr
    transformers.PreTrainedTokenizerBase.apply_chat_template = apply_chat_template
