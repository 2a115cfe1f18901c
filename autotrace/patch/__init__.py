"""Find targets, wrap, report what bound. Start at ``engine``; what adapters may use is in ``adapting``."""
