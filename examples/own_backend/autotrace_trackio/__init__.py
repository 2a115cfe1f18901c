"""Trajectories as traces in trackio."""
