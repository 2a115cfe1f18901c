"""The same source as two modules: one nobody watches, one in which a kind is a target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from autotrace.config.plan import Target

from .conftest import Host
from .kinds import Kind

SOURCE = (Path(__file__).parent / "subjects.py").read_text()
BARE, TRACED = "bare_subjects", "same_subjects"
"""Names of equal length, so that what is computed from them is equal too."""


class Pair:
    """``bare`` and ``traced``; ``same`` says that an observation cannot tell them apart."""

    def __init__(self, host: Host, *kinds: Kind) -> None:
        self.host = host
        self.bare = host.load(BARE, SOURCE)
        host.watch(
            *(
                Target(kind.target, (f"{TRACED}.{kind.target}",), subclasses=kind.subclasses)
                for kind in {kind.target: kind for kind in kinds}.values()
            )
        )
        self.traced = host.load(TRACED, SOURCE)

    def same(self, observe: Callable[[ModuleType], Any]) -> Any:
        """``observe`` both modules; what was seen, after it was the same."""
        bare, traced = plain(observe(self.bare)), plain(observe(self.traced))
        assert traced == bare
        return bare


def plain(value: Any) -> Any:
    """An observation with the name of the module it was made on left out."""
    if isinstance(value, str):
        return value.replace(TRACED, BARE)
    if isinstance(value, dict):
        return {plain(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
