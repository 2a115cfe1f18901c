"""A trainer's batch as tensors of rows x tokens: one number for each row, and by which digest a row is found again.

Only tensors that are on the CPU are looked at: nothing here waits for a GPU.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from autotrace.record import faults

SKIPPED = "drop:fact on a device"
"""Counter: rows whose facts were not recorded because they were on an accelerator."""
_ROWS = 256
"""Looked at together: what bounds the copies of tensors made here."""


def is_here(tensor: Any) -> bool:
    """Whether its numbers lie in the CPU's memory, row by row."""
    return str(getattr(tensor, "device", "")) == "cpu" and not getattr(tensor, "is_nested", False)


def response_values(values: Any, mask: Any) -> list[float]:
    """One number per row of ``values``: what stands at the tokens that ``mask`` keeps, or their mean. Empty, and
    counted, where they are not on the CPU."""
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
    """As ``spool.records.Tokens.digest`` has it, of the first ``lengths[i]`` tokens of each row."""
    rows = tokens.numpy().astype("<i4")
    return [
        hashlib.blake2b(row[:length].tobytes(), digest_size=16).digest()[:8]
        for row, length in zip(rows, lengths, strict=True)
    ]
