"""autotrace shows RL engineers what their agents did.

The layout is the way of the data: ``bootstrap`` puts the agent into a process, ``spec`` compiles the YAML specs
into a plan, ``patch`` wraps the plan's targets, ``record`` turns calls into spans, ``spool`` keeps spans in files,
``ship`` (a separate process) assembles trajectories, ``sinks`` deliver trajectories. Importing this package imports
nothing.

``autotrace.open("autotrace-runs")`` reads recorded runs (``autotrace.tables.runs``);
``autotrace.start("mine.yaml")`` and ``autotrace.stop()`` record a running program
(``autotrace.bootstrap.door``).
"""

__version__ = "0.1.0"
__distribution__ = "autotrace-rl"
"""Tells this module from another package's module at the same place."""

_ELSEWHERE = {
    "open": "autotrace.cli.notebook",
    "start": "autotrace.bootstrap.door",
    "stop": "autotrace.bootstrap.door",
    "StartError": "autotrace.bootstrap.prepare",
}


def __getattr__(name: str) -> object:
    """Import a name of ``_ELSEWHERE`` at the first use: traced processes import this package."""
    if name in _ELSEWHERE:
        import importlib

        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
