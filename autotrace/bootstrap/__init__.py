"""Start the agent in a process: ``autotrace-run``, the ``.pth`` and ``.start`` files, ``sitecustomize``, engine
plug-ins.

Everything that a traced process imports from here is cheap and uses only the standard library. Only the launcher and
``python -m autotrace.bootstrap.prepare`` import the expensive parts (the launcher's command line, making a run).
"""

from __future__ import annotations


def start() -> None:
    """Activate this process if ``AUTOTRACE`` is ``1`` and the process is not active; never raises, opens nothing.

    ``autotrace.start`` (PEP 829, Python 3.15+) names this function, and so do the entry points ``vllm.general_plugins``
    and ``sglang.srt.plugins``: vLLM and SGLang call plug-ins in each process before anything else. The plug-ins reach
    interpreters that run no ``.pth`` file (an embedded interpreter, ``-S``), and variables that were set after the
    start.

    Such an entry point is called in every interpreter of the environment. Therefore the gate in front of the ``.pth``
    line's import is here, too: the variable is set, and Python was not told to ignore the environment (``-E``, ``-I``).
    The environment names a plan, and a plan names code.
    """
    import os
    import sys

    if os.environ.get("AUTOTRACE", "").lower() not in ("1", "true", "yes", "on") or sys.flags.ignore_environment:
        return
    try:
        from autotrace.bootstrap import activate

        activate.main()
    except Exception:  # law 1: a broken agent must not keep the host from starting
        return
