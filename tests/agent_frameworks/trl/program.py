"""The example of ``examples/trl_grpo``, as its users start it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "trl_grpo"

if __name__ == "__main__":
    sys.path.insert(0, str(EXAMPLE))
    sys.argv = [str(EXAMPLE / "train.py")]
    runpy.run_path(sys.argv[0], run_name="__main__")
