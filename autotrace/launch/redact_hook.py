"""Whether ``--redact-hook MODULE:FUNCTION`` exists, checked before the run starts.

In the traced process it would be too late: what a hook that cannot be imported should have cleaned is not written, so
that everything recorded would be gone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from autotrace.spec.resolve import Resolver
from autotrace.spec.sources import Installed


def missing(hook: str, command: Sequence[str]) -> str | None:
    """Why ``hook`` cannot be used by ``command``, in one sentence; None when it can. Imports nothing of the user's."""
    scripts = [os.path.dirname(os.path.abspath(word)) for word in command if word.endswith(".py")]
    resolver = Resolver(Installed(beside=scripts))
    name = hook.partition(":")[0]
    module = resolver.module(name)
    if module is None:
        return f"there is no module {name} beside the program or in this environment; put its folder on PYTHONPATH"
    if resolver.find(hook) is None:
        return f"{module.file.path} has no {hook.partition(':')[2]}"
    return None
