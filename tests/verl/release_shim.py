"""What old releases of veRL need: two things of transformers 4 (up to 0.7.0), and an answer of another type (0.5)."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any


def answers() -> None:
    """Where veRL has no ``TokenOutput`` yet, the engine answers with the token ids alone."""
    name = "verl.workers.rollout.replica"
    if importlib.util.find_spec(name) is None:
        module: Any = types.ModuleType(name)
        module.TokenOutput = lambda token_ids, **_: token_ids
        sys.modules[name] = module


def install() -> None:
    """Put back in this process what transformers 5 has changed."""
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
