"""autotrace shows RL engineers what their agents did.

The layout is the way of the data: ``bootstrap`` puts the agent into a process, ``spec`` compiles the YAML specs
into a plan, ``patch`` wraps what the plan names, ``record`` turns calls into spans, ``spool`` keeps them in files,
``ship`` (a process of its own) assembles trajectories, ``sinks`` deliver them. Importing this package imports nothing.

``autotrace.open("autotrace-runs")`` reads what was recorded (``autotrace.tables.runs``);
``autotrace.start("mine.yaml")`` and ``autotrace.stop()`` record a program that is up already
(``autotrace.bootstrap.door``).
"""

__version__ = "0.1.0"
__distribution__ = "autotrace-rl"
"""Tells this module from one of another package that was installed over it."""

_ELSEWHERE = {
    "open": "autotrace.cli.notebook",
    "start": "autotrace.bootstrap.door",
    "stop": "autotrace.bootstrap.door",
    "StartError": "autotrace.bootstrap.prepare",
}


def __getattr__(name: str) -> object:
    """What is imported once it is asked for: this package is imported in traced processes."""
    if name in _ELSEWHERE:
        import importlib

        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
