"""autotrace shows RL engineers what their agents did.

The layout is the way of the data: ``bootstrap`` puts the agent into a process, ``spec`` compiles the YAML lists
into a plan, ``patch`` wraps what the plan names, ``record`` turns calls into spans, ``spool`` keeps them in files,
``ship`` (a process of its own) assembles trajectories, ``sinks`` deliver them. Importing this package imports nothing.

``autotrace.open("autotrace-runs")`` reads what was recorded (``autotrace.query.runs``).
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """``open``, once it is asked for: this package is imported in traced processes."""
    if name == "open":
        import importlib

        return importlib.import_module("autotrace.query.runs").open
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
