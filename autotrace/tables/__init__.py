"""Trajectories as tables: one schema, and the rows of it."""
