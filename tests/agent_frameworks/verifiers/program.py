"""The episodes of ``examples/verifiers_sums``, with the model server of the tests."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "verifiers_sums"))

import episodes

if __name__ == "__main__":
    asyncio.run(episodes.run(sys.argv[1]))
