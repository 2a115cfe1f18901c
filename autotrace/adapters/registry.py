"""List the libraries with an adapter, and functions that are never wrapped. A new adapter is added only here.

An adapter is one module or folder of this package with a function ``install()``, for behaviour that a spec cannot
express.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotrace.config.plan import Plan
    from autotrace.patch.engine import Engine

ADAPTERS = {
    "ray": "autotrace.adapters.ray.cluster",
    "verl": "autotrace.adapters.verl.agent_loop",
    "threading": "autotrace.adapters.threads",
    "greenlet": "autotrace.adapters.greenlets",
    "gevent": "autotrace.adapters.greenlets",
    "os": "autotrace.adapters.processes",
    "torch": "autotrace.adapters.torch",
    "vllm": "autotrace.adapters.vllm",
    "sglang": "autotrace.adapters.sglang",
    "openai": "autotrace.adapters.raw_responses",
    "langchain_core": "autotrace.adapters.langchain",
    "trl": "autotrace.adapters.trl",
    "openrlhf": "autotrace.adapters.openrlhf",
    "anthropic": "autotrace.adapters.raw_responses",
    "pydantic_ai": "autotrace.adapters.pydantic_ai",
    "httpx": "autotrace.adapters.httpx",
    "httpx2": "autotrace.adapters.httpx",
    "IPython.core.interactiveshell": "autotrace.adapters.ipython",
    "numba": "autotrace.adapters.compilers",
    "triton": "autotrace.adapters.compilers",
    "jaxlib": "autotrace.adapters.compilers",
    "datasets.utils._dill": "autotrace.adapters.code_keys",
    "dask.tokenize": "autotrace.adapters.code_keys",
}
"""Maps a module to the adapter whose ``install()`` runs right after the module's import."""

ENDLESS = {
    "vllm": ("run_engine_core", "run_busy_loop", "worker_main", "worker_busy_loop", "event_loop_*"),
    "sglang": (
        "run_scheduler_process",
        "run_detokenizer_process",
        "run_data_parallel_controller_process",
        "event_loop_*",
    ),
}
"""Maps a library to process entry points and endless loops (``*``: any characters), whose span would never end."""


def is_endless(module: str, function: str) -> bool:
    """Tell whether ``function`` of ``module`` (or of a class inside) is such an entry point or loop."""
    library = re.split(r"[.:]", module, maxsplit=1)[0]
    return any(fnmatch.fnmatchcase(function, pattern) for pattern in ENDLESS.get(library, ()))


def start(plan: Plan | None = None, run_folder: str | None = None, run_id: str | None = None) -> Engine | None:
    """Start the patch engine of this process with every adapter; see ``patch.engine.start``."""
    from autotrace.patch import adapting, engine

    adapting.add(refusal=_endless)
    return engine.start(plan, run_folder, run_id, adapters=ADAPTERS)


def _endless(value: Any, owner: Any, attribute: str) -> str | None:
    from autotrace.patch.adapting import module_of

    if is_endless(module_of(value, owner), attribute):
        return "it is the entry point of a process or an endless loop: its span would never end"
    return None
