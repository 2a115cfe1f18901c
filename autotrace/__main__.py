"""``python -m autotrace``: the command ``autotrace``, for an interpreter whose scripts are not on ``PATH``."""

from __future__ import annotations

import os
import sys

_HERE = os.getcwd()
if sys.path[0] == _HERE != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
    del sys.path[0]  # `-m` put the current directory there: anybody may have written the modules in it

from autotrace.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
