"""autotrace shows RL engineers what their agents did.

The layout is the way of the data: ``bootstrap`` puts the agent into a process, ``spec`` compiles the YAML lists
into a plan, ``patch`` wraps what the plan names, ``record`` turns calls into spans, ``spool`` keeps them in files,
``ship`` (a process of its own) assembles trajectories, ``sinks`` deliver them. Importing this package imports nothing.
"""

__version__ = "0.1.0"
