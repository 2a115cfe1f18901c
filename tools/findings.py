"""The pages of ``docs/findings``, from the codes, and the table of ``docs/findings.md``, which is printed.

python tools/findings.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from autotrace.insight import pages

FOLDER = Path(__file__).parents[1] / "docs" / "findings"


if __name__ == "__main__":
    for name, text in pages.pages().items():
        (FOLDER / name).write_text(text)
    sys.stdout.write(pages.index())
