"""How the agent comes into a process: ``autotrace-run``, the ``.pth`` and ``.start`` files, ``sitecustomize``,
plug-ins of engines.

Everything that a traced process imports from here is standard library only and cheap; what is not (the launcher's
command line, making a run) is imported by the launcher and by ``python -m autotrace.bootstrap.prepare`` alone.
"""

from __future__ import annotations


def start() -> None:
    """Activate this process if ``AUTOTRACE`` is ``1`` and it is not active; never raises, opens nothing.

    Named by ``autotrace.start`` (PEP 829, Python 3.15+), and by the entry points ``vllm.general_plugins`` and
    ``sglang.srt.plugins``: vLLM and SGLang call those in each of their processes before anything else. That reaches
    interpreters that run no ``.pth`` file (an embedded one, ``-S``), and variables that were set after the start.

    Such an entry point is called in every interpreter of the environment, so the gate that the ``.pth`` line has in
    front of its import stands here: the variable, and that Python was not told to ignore its environment (``-E``,
    ``-I``), from which a plan would come, which names code.
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
