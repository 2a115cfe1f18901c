"""Findings: what is wrong with a run, in which trajectory, at which turn and token.

``profile`` is what is kept of each trajectory, ``examine`` makes it, and ``diagnose`` finds out of many of them what is
wrong. The detectors stand in ``families``, one file each. Nothing here knows a trainer or a store.
"""
