"""Find what is wrong with a run, in which trajectory, at which turn and token.

``examine`` makes a ``profile`` of each trajectory, and ``diagnose`` finds faults in many profiles. ``families`` has the
detectors, one file per family. Nothing here knows a trainer or a store.
"""
