"""Functions that are never wrapped: entry points of processes and endless loops, whose span would never end."""

from __future__ import annotations

import re

_ENDLESS = frozenset(
    {
        "run_scheduler_process",
        "run_detokenizer_process",
        "run_data_parallel_controller_process",
        "run_engine_core",
        "worker_main",
        "worker_busy_loop",
        "run_busy_loop",
    }
)
_ENGINES = ("vllm", "sglang")


def is_endless(module: str, function: str) -> bool:
    """Whether ``function`` of ``module`` is such an entry point or loop."""
    library = re.split(r"[.:]", module, maxsplit=1)[0]
    return library in _ENGINES and (function in _ENDLESS or function.startswith("event_loop_"))
