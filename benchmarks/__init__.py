"""What tracing costs the process it watches, beside the peers in the same run: ``make bench``."""
