"""Rollouts that other projects saved, read into the same tables as those that autotrace recorded.

``source`` finds the files and is what the one reader reads; ``containers`` makes rows of a file, whatever its format;
each other module is one format: which rows are its own, and the trajectories in them.
"""
