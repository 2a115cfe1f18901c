"""Write JSON lines in the run folder; nothing to install."""
