"""The second way into the processes of an engine: vLLM and SGLang run plugins in each of them before anything else.

For interpreters that run no ``.pth`` file (an embedded one, ``-S``), and environment variables that were set after the
start. Where the ``.pth`` file came first this does nothing. Entry points ``vllm.general_plugins`` and
``sglang.srt.plugins``.
"""

from __future__ import annotations

import os
import sys


def register() -> None:
    """Activate this process if ``AUTOTRACE`` says so (see ``bootstrap.start``) and it is not active. Never raises,
    opens nothing."""
    if os.environ.get("AUTOTRACE", "").lower() not in ("1", "true", "yes", "on") or sys.flags.ignore_environment:
        return
    try:
        from autotrace.bootstrap import activate

        activate.main()
    except Exception:
        import logging

        logging.getLogger("autotrace").warning("autotrace could not start; this process runs untraced")
