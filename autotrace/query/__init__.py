"""Runs as objects and tables, for notebooks and SQL."""
