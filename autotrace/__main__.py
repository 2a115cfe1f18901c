"""``python -m autotrace``: the command ``autotrace``, for an interpreter whose scripts are not on ``PATH``."""

from __future__ import annotations

from autotrace.cli.main import main

if __name__ == "__main__":
    main()
