"""``make screenshots``: each page, light and dark, of the demo's run, into ``docs/screenshots``."""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from autotrace.run.info import find_runs
from tests.browser.conftest import NAMES, ROOT, started

FOLDER = ROOT / "docs" / "screenshots"
ROWS = ".scroller .row:not([hidden])"


def take(page: Page, base: str, run: str, theme: str) -> None:
    """All pages in one theme."""
    page.goto(f"{base}#/run/{run}/table")
    page.wait_for_selector(ROWS)
    worst = page.locator(ROWS).nth(3).get_attribute("href") or ""
    best = (page.locator(ROWS).first.get_attribute("href") or "").rsplit("/", 1)[1]
    pages = {
        "overview": (f"#/run/{run}", ".found-list li"),
        "tools": (f"#/run/{run}/tools", ".curve canvas"),
        "trajectories": (f"#/run/{run}/table", ROWS),
        "group": (f"#/run/{run}/group/{best}", ".fork"),
        "conversation": (f"#/run/{run}/trace/{best}", ".item"),
        "tokens": (f"#/run/{run}/trace/{best}?view=tokens", ".block span"),
        "timeline": (f"#/run/{run}/trace/{best}?view=timeline", ".timeline-canvas"),
        "steps": (f"#/run/{run}/steps?step=1", ".lanes-canvas"),
        "least": (worst + "?view=tokens", ".block span"),
    }
    for name, (address, wait) in pages.items():
        page.goto(base + address)
        page.wait_for_selector(wait)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        with Image.open(io.BytesIO(page.screenshot())) as shot:  # 256 colours are enough, at a third of the size
            shot.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
                FOLDER / f"{name}-{theme}.png", optimize=True
            )


def main() -> None:
    """Of the newest run in ``autotrace-runs``, or of the folder that is given."""
    runs = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("AUTOTRACE_RUN_DIR", "autotrace-runs"))
    run = find_runs(runs)[0][-1]
    FOLDER.mkdir(exist_ok=True)
    server = started(run)
    try:
        with sync_playwright() as playwright:
            path = next(filter(None, map(shutil.which, NAMES)), None)
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            for theme in ("light", "dark"):
                page = browser.new_page(viewport={"width": 1440, "height": 810}, color_scheme=theme)  # type: ignore[arg-type]
                page.set_default_timeout(120_000)
                page.goto(server.link)
                take(page, server.base, run.name, theme)
            browser.close()
    finally:
        server.stop()
    print(*sorted(FOLDER.glob("*.png")), sep="\n")


if __name__ == "__main__":
    main()
