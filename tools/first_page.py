"""A hook of MkDocs: the site's first page is README, then the table of ``docs/index.md``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """README's links are from the folder above; what they name outside of ``docs`` is not on the site."""
    if page.file.src_uri != "index.md":
        return markdown
    text = README.read_text(encoding="utf-8").replace("](docs/", "](").partition("\n## Read on")[0]
    text = re.sub(r"\[([^]]*)\]\(benchmarks/[^)]*\)", r"\1", text)
    return f"{text}\n## All pages\n\n{markdown[markdown.index('| you want to') :]}"
