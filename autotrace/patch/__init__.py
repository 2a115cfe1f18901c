"""Find targets, wrap the targets, and report the bound targets. Start at ``engine``; ``adapting`` has the functions for
adapters."""
