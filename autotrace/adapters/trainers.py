"""Share code between the adapters of trainers: open runs of loggers, observers of calls, numbers of batches.

Only tensors on the CPU are read: nothing here waits for a GPU.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from autotrace.adapters.hooks import showing
from autotrace.patch import adapting
from autotrace.record import faults, statements
from autotrace.redact.masking import without_password


def publish_runs(loggers: Collection[str], project: Any, experiment: Any) -> None:
    """Report ``Bind("mlflow")`` and ``Bind("wandb")`` for the runs that are open in this process. Asks no server."""
    mlflow = sys.modules.get("mlflow")
    run = mlflow.active_run() if mlflow is not None and "mlflow" in loggers else None
    if mlflow is not None and run is not None:
        statements.bind(
            "mlflow",
            {
                "run_id": run.info.run_id,
                "experiment_id": run.info.experiment_id,
                "experiment_name": project,
                "run_name": run.info.run_name or experiment,
                "tracking_uri": without_password(mlflow.get_tracking_uri()),
            },
        )
    run = getattr(sys.modules.get("wandb"), "run", None) if "wandb" in loggers else None
    if run is not None:
        statements.bind("wandb", {"entity": run.entity, "project": run.project, "run_id": run.id})


_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>")
"""Tokens of chat templates that end a turn, in tokenizers that have such tokens."""


def end_tokens(tokenizer: Any) -> list[int]:
    """Return the token that ends an answer, and a different token that ends a turn of the chat template."""
    ends = {getattr(tokenizer, "eos_token_id", None)}
    known = getattr(tokenizer, "added_tokens_encoder", None)
    if isinstance(known, dict):
        ends |= {known.get(name) for name in _TURN_ENDS}
    return sorted(end for end in ends if type(end) is int)


Given = Mapping[str, Any]
Observer = Callable[[Any, Given], None]
"""Receives the result (None before the call) and the arguments by name."""


def observe(owner: Any, name: str, *, before: Observer | None = None, after: Observer | None = None) -> None:
    """Call ``before`` or ``after`` with every call of ``owner.name``; callers notice nothing. Only functions written in
    Python are observed."""
    original = vars(owner).get(name) if owner is not None else None
    if not inspect.isfunction(original):
        return
    signature = inspect.signature(original)

    def named(observer: Observer | None, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if observer is not None:
            observer(result, signature.bind(*args, **kwargs).arguments)

    made = showing(
        original,
        f"{original.__module__.partition('.')[0]}:{name}",
        before=lambda *args, **kwargs: named(before, None, args, kwargs),
        after=lambda result, *args, **kwargs: named(after, result, args, kwargs),
    )
    adapting.put(owner, name, made)


def watch(module: str, name: str, *, before: Observer | None = None, after: Observer | None = None) -> None:
    """Observe ``name``, a function or ``Class.method`` of ``module``, once ``module`` is imported."""
    cls, _, function = name.rpartition(".")
    adapting.when_imported(
        module, lambda made: observe(getattr(made, cls, None) if cls else made, function, before=before, after=after)
    )


SKIPPED = "drop:fact on a device"
"""Counts rows whose facts were not recorded because the values were on an accelerator."""
_ROWS = 256
"""Number of rows that are processed together, which bounds the copies of tensors."""


def is_here(tensor: Any) -> bool:
    """Tell whether the tensor's numbers lie in the CPU's memory, row by row."""
    return str(getattr(tensor, "device", "")) == "cpu" and not getattr(tensor, "is_nested", False)


def response_values(values: Any, mask: Any) -> list[float]:
    """Return a number per row of ``values``: the common value at the tokens that ``mask`` keeps, or the mean.

    Empty, and counted, if the tensors are not on the CPU.
    """
    if not (is_here(values) and is_here(mask)):
        faults.count(SKIPPED, len(values))
        return []
    numbers: list[float] = []
    for start in range(0, len(values), _ROWS):
        part, kept = values[start : start + _ROWS].detach().double(), mask[start : start + _ROWS].bool()
        first = part.gather(1, kept.int().argmax(dim=1, keepdim=True)).squeeze(1)
        differs = ((part != first.unsqueeze(1)) & kept).any(dim=1)
        mean = (part * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)
        numbers += (mean.where(differs, first) * kept.any(dim=1)).tolist()
    return numbers


def digests(tokens: Any, lengths: Sequence[int]) -> list[bytes]:
    """Compute ``spool.records.Tokens.digest`` for the first ``lengths[i]`` tokens of each row."""
    rows = tokens.numpy().astype("<i4")
    return [
        hashlib.blake2b(row[:length].tobytes(), digest_size=16).digest()[:8]
        for row, length in zip(rows, lengths, strict=True)
    ]
