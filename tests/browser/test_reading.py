"""Columns to choose, where a trajectory belongs, words that differ, pictures, and a telephone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

from playwright.sync_api import Browser, Page, expect

from autotrace.redact.images import without_images
from autotrace.ship.readers import of_run
from autotrace.spool.blobs import keep_image
from tests.browser.conftest import Visit
from tests.run_folder import recorded
from tests.ship.spools import Process, attributes, new_run
from tests.view.test_pictures import address, png

Open = Callable[..., Visit]
ROWS = ".scroller .row:not([hidden])"


def heads(page: Page) -> list[str]:
    return [str(each.get_attribute("data-column")) for each in page.locator("[data-column]").all()]


def test_columns_are_chosen_and_kept_in_the_address(demo: Path, visit: Open) -> None:
    page = visit(demo).page
    page.wait_for_selector("[data-column=findings]")
    shown = heads(page)
    assert "advantage" not in shown and "label" not in shown, "a column without a value is hidden"
    page.click(".chooser summary")
    page.uncheck(".chooser input[value=duration]")
    expect(page.locator("[data-column=duration]")).to_have_count(0)
    page.check(".chooser input[value='facts.reward_extra_info.right']")
    expect(page.locator("[data-column='facts.reward_extra_info.right']")).to_be_visible()
    page.check(".chooser input[value=label]")
    expect(page.locator("[data-column=label]")).to_be_visible()
    now = heads(page)
    asked = parse_qs(page.url.partition("?")[2])["cols"][0].split(",")
    assert set(asked) == set(now) == {*shown, "facts.reward_extra_info.right", "label"} - {"duration"}
    other = visit(demo).page
    other.wait_for_selector(ROWS)
    other.goto(page.url)
    expect(other.locator("[data-column='facts.reward_extra_info.right']")).to_be_visible()
    expect(other.locator(f"{ROWS} .cell").first).to_be_visible()
    assert heads(other) == now
    other.click(".chooser summary")
    other.click(".chooser button")
    expect(other.locator("[data-column=duration]")).to_be_visible()
    assert heads(other) == shown
    rows = (other.locator(".row.head"), other.locator(ROWS).first)
    lefts = [[cell.bounding_box() for cell in row.locator(".cell:not(.hit-line)").all()] for row in rows]
    heads_, cells_ = ([round(box["x"]) for box in boxes if box] for boxes in lefts)
    assert heads_ == cells_, "a heading stands above its column"


def test_a_rollout_says_where_it_belongs_and_leads_there(demo: Path, visit: Open) -> None:
    page = visit(demo, at="table?sort=reward").page
    page.wait_for_selector("[data-column=findings]")
    traces = [str(each.get_attribute("href")).rsplit("/", 1)[1] for each in page.locator(ROWS).all()]
    page.locator(ROWS).nth(1).click()
    crumbs = page.locator(".crumbs")
    row = next(row for row in of_run(demo).select() if row.trace_id == traces[1])
    expect(crumbs).to_contain_text(f"step {row.step}")
    expect(crumbs).to_contain_text(f"prompt {row.sample_index}")
    expect(crumbs).to_contain_text(f"rollout {row.rollout_n}")
    expect(page.locator("#top .run")).to_have_text(demo.name)
    crumbs.get_by_label("next").click()
    expect(page.locator("h1")).to_have_text(traces[2][:12])
    crumbs.get_by_label("previous").click()
    expect(page.locator("h1")).to_have_text(traces[1][:12])
    crumbs.locator("a", has_text="prompt").click()
    expect(page.locator("h1")).to_contain_text("rollouts of one prompt")
    page.go_back()
    crumbs.locator("a", has_text="step").click()
    expect(page.locator(".lanes h2")).to_contain_text(f"Step {row.step}")


def said(process: Process, number: int, text: str, reward: float) -> None:
    """A rollout of a prompt with one answer."""
    trace = bytes([number + 1]) * 16
    root = process.open(trace, "trajectory", attributes=attributes(rollout=number, uid="u"))
    llm = process.open(trace, "llm", root, inputs={"messages": [{"role": "user", "content": "How many?"}]})
    process.close(trace, llm, output={"choices": [{"message": {"role": "assistant", "content": text}}]})
    process.fact("reward", reward, trace)
    process.close(trace, root)


def test_every_word_that_differs_is_marked(tmp_path: Path, visit: Open) -> None:
    folder = new_run(tmp_path, "words")
    process = Process(folder)
    said(process, 0, "There are twelve apples in the small box and two pears.", 1.0)
    said(process, 1, "There are eleven apples in the large box and two plums.", 0.0)
    process.exit()
    page = visit(folder, at=f"group/{'01' * 16}").page
    page.wait_for_selector(".card")
    cells = page.locator(".beside .cell")
    assert cells.nth(0).locator("ins").all_inner_texts() == []
    assert cells.nth(1).locator("ins").all_inner_texts() == ["eleven", "large", "plums"]
    page.keyboard.press("w")
    expect(page.locator(".beside .cell").nth(0).locator("ins")).to_have_text(["twelve", "small", "pears"])


def test_pictures_are_shown_or_say_why_they_are_not(tmp_path: Path, visit: Open, browser: Browser) -> None:
    folder = new_run(tmp_path, "pictures")
    process, data = Process(folder), png(24, 16)
    kept = without_images(address(data), lambda image, kind: keep_image(folder, image, kind))
    urls = [kept, without_images(address(png(240, 160)))]
    root = process.open(b"\1" * 16, "trajectory", attributes=attributes())
    content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    llm = process.open(b"\1" * 16, "llm", root, inputs={"messages": [{"role": "user", "content": content}]})
    process.close(b"\1" * 16, llm, output={"choices": [{"message": {"role": "assistant", "content": "Noise."}}]})
    process.close(b"\1" * 16, root)
    process.exit()
    item = visit(folder, at=f"trace/{'01' * 16}").page.locator(".item.user")
    expect(item.locator("img")).to_have_count(1)
    expect(item).to_contain_text("[a picture: image/png 240x160, 115 kB, not kept: start with --images]")
    assert item.locator("img").evaluate_all("all => all.map(each => each.naturalWidth)") == [24]
    command = [sys.executable, "-m", "autotrace", "view", str(folder), "--export", str(tmp_path / "page.html")]
    subprocess.run(command, check=True, timeout=300)
    exported = browser.new_page()
    exported.goto(f"{(tmp_path / 'page.html').as_uri()}#/trace/{'01' * 16}")
    expect(exported.locator(".item.user img")).to_have_js_property("naturalWidth", 24)
    exported.close()


def test_a_telephone_reads_a_rollout_and_finds_its_way(tmp_path: Path, visit: Open) -> None:
    folder = recorded(tmp_path)
    page = visit(folder, at="overview", is_mobile=True, has_touch=True).page
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_selector(".found-list li")
    tile = page.locator(".tile").first.bounding_box()
    assert tile and tile["x"] >= 0 and tile["x"] + tile["width"] <= 390
    page.locator(".found-list summary").first.tap()
    page.locator('.found-list li[data-code="AT-TRUNCATED"] summary').tap()
    page.locator('.found-list li[data-code="AT-TRUNCATED"] .place a').first.tap()
    page.wait_for_selector(".item, .tokens-view")
    expect(page).to_have_url(re.compile("/trace/"))
    page.locator('[data-view="conversation"]').tap()
    for item in page.locator(".item").all():
        box = item.bounding_box()
        assert box and box["width"] > 250 and box["x"] + box["width"] <= 390
    for name in ("Trajectories", "Steps", "Tools", "Overview"):
        page.locator("nav a", has_text=name).tap()
        expect(page.locator("nav a[aria-current]")).to_have_text(name)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
