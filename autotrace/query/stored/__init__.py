"""Trajectories that stand in files without their run folder: the lines and the tables that autotrace writes."""
