"""Read rollouts that other projects saved into the same tables as recorded rollouts.

``source`` finds the files for the reader; ``containers`` makes rows of a file in any container format; each other
module reads a single format: the module recognises the rows and builds trajectories.
"""
