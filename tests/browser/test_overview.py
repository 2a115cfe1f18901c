"""What a run opens on, several runs over each other, and what the table shows beside its rows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Page, expect

from autotrace.ship.readers import of_run
from autotrace.ship.shipper import ship
from tests.browser.conftest import Visit
from tests.browser.drop import CHANGED, dropped
from tests.run_folder import recorded, rollout
from tests.ship.spools import Process, new_run, trajectory

Open = Callable[..., Visit]
ROWS = ".scroller .row:not([hidden])"


def test_a_run_opens_on_what_diagnose_says(tmp_path: Path, visit: Open) -> None:
    folder = recorded(tmp_path)
    command = [sys.executable, "-m", "autotrace", "diagnose", str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    codes = re.findall(r"^(?:\d+\.|   causes) +(AT-\S+)", said, re.M)
    page = visit(folder, at="").page
    expect(page.locator("nav a[aria-current]")).to_have_text("Overview")
    expect(page.locator("#page .big")).to_have_text(f"{len(codes)} findings in 8 trajectories, most costly first")
    assert [each.get_attribute("data-code") for each in page.locator(".found-list li").all()] == codes
    amounts = re.findall(r"^   affects +(.*); costs", said, re.M)
    assert amounts
    for amount in amounts:
        expect(page.locator(".found-list")).to_contain_text(amount)
    assert all(1 <= box.locator(".place a").count() <= 3 for box in page.locator(".found-list li").all())
    expect(page.locator(".begins")).to_contain_text("step 1: ")
    assert page.locator(".overview-page .curve figcaption").all_inner_texts() == ["reward, mean", "acc", "format"]
    page.locator(".curve .u-over").first.hover(position={"x": 3, "y": 40})
    expect(page.locator(".curve figcaption").first).to_have_text(re.compile(r"mean\s+step 1: 0.375\s+▲ AT-.* begin"))
    expect(page.locator(".run-facts")).to_contain_text("nothing")


def test_places_and_links_lead_there(tmp_path: Path, visit: Open) -> None:
    folder = recorded(tmp_path)
    tab = visit(folder, at="overview")
    page = tab.page
    box = page.locator('.found-list li[data-code="AT-TRUNCATED"]')
    box.locator("summary").click()
    place = box.locator(".place a").first
    expect(place).to_contain_text("step 1, turn 2")
    place.click()
    page.wait_for_selector(".tokens-view, .item")
    assert "turn=2" in page.url or "token=" in page.url
    page.keyboard.press("o")
    box.locator("summary").click()
    box.locator("a", has_text="all of them").click()
    expect(page.locator(".count")).to_contain_text("2 of 8")
    page.keyboard.press("o")
    page.locator(".overview-page nav a", has_text="Lowest rewards first").click()
    page.wait_for_selector(ROWS)
    assert page.locator(f"{ROWS} .c-reward").first.inner_text() == "0"


def test_nothing_found_and_nothing_there(tmp_path: Path, visit: Open) -> None:
    folder = new_run(tmp_path, "clean")
    process = Process(folder)
    trajectory(process)
    process.exit()
    expect(visit(folder, at="overview").page.locator("#page .big")).to_have_text("1 trajectory: no problems found")
    (tmp_path / "more").mkdir()
    empty = new_run(tmp_path / "more", "empty")
    expect(visit(empty, at="overview").page.locator("#page .big")).to_contain_text("has no trajectory yet")


def test_what_was_dropped_is_said(tmp_path: Path, visit: Open) -> None:
    folder = new_run(tmp_path, "dropped")
    process = Process(folder)
    trajectory(process)
    process.count({"demo.step": 1}, {"drop:stuck": 3})
    process.exit()
    ship(folder, once=True)
    facts = visit(folder, at="overview").page.locator(".run-facts")
    expect(facts.locator("dd.loss")).to_contain_text("3 records not written")


def test_several_runs_lie_over_each_other(tmp_path: Path, visit: Open) -> None:
    """Steps, rewards and findings of each; chosen on the list of runs, or on the page of one."""
    one = recorded(tmp_path, "one")
    for name, reward in (("better", 1.0), ("worse", 0.5)):
        process = Process(new_run(tmp_path, name), run_id=name)
        for step in (1, 2, 3):
            rollout(process, step=step, rollout=0, uid=f"u{step}", reward=reward)
            rollout(process, step=step, rollout=1, uid=f"u{step}", reward=reward / 2)
        process.exit()
    page = visit(tmp_path).page
    over = page.locator("button", has_text="over each other")
    expect(over).to_be_disabled()
    for name in ("one", "better"):
        page.check(f".runs input[value={name}]")
    over.click()
    page.wait_for_selector(".overview-page .curve canvas")
    first = page.url.split("/run/")[1].split("/")[0]
    assert {first, *re.findall(r"with=(\w+)", page.url)} == {"one", "better"}
    page.goto(page.url.partition("#")[0] + "#/run/one/overview?with=better")
    truncated = page.locator('.found-list li[data-code="AT-TRUNCATED"] .amount')
    expect(truncated).to_contain_text("25.0% of the trajectories (2 of 8), since step 1, in 2 steps · better: 0 %")
    page.check(".with input[value=worse]")
    page.wait_for_selector(".overview-page .curve canvas")
    expect(truncated).to_contain_text("better: 0 %, worse: 0 %")

    def told(place: float) -> str:
        box = page.locator(".curve .u-over").first.bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] * place, box["y"] + 50)
        expect(page.locator(".curve figcaption").first).to_contain_text("step")
        return page.locator(".curve figcaption").first.inner_text()

    assert re.search(r"step 1: 0.375 / 0.75 / 0.375", told(0.01))
    assert re.search(r"step 3: 0.75 / 0.375", told(0.99)), "a step that only the others have"
    page.goto(page.url.partition("#")[0] + "#/run/better/overview?with=one")
    expect(page.locator(".overview-page")).to_contain_text(re.compile(r"only in one: .*AT-TRUNCATED \(25 %\)"))
    page.goto(page.url.partition("#")[0] + "#/run/one/steps?with=better,worse")
    page.wait_for_selector(".steps-page .curve canvas")
    assert re.search(r"reward step 1: 0.375 / 0.75 / 0.375", told(0.01))
    assert one.exists()


def described(page: Page) -> str:
    expect(page.locator(".tip")).to_be_visible()
    return page.locator(".tip").inner_text()


def test_prompts_ties_and_the_rewards_of_the_table(demo: Path, visit: Open) -> None:
    page = visit(demo).page
    expect(page.locator(f"{ROWS} .c-prompt").first).to_have_text("How many apples and pears are in stock?")
    page.fill(".where", "prompt contains 'cherries' and step = 1")
    expect(page.locator(".count")).to_contain_text("4 of 27")
    rewards, ties = (page.locator(f"{ROWS} .c-{name}").all_inner_texts() for name in ("reward", "ties"))
    assert sorted(zip(ties, rewards, strict=True)) == [("", "0"), ("", "0.1"), ("2 of 4", "1.1"), ("2 of 4", "1.1")]
    page.fill(".where", "")
    expect(page.locator(".count")).to_have_text("27 trajectories")
    bars = page.locator(".histogram-bar")
    titles = [bar.get_attribute("title") or "" for bar in bars.all()]
    assert len(titles) == 20 and sum(int(title.split(": ")[1].split()[0]) for title in titles) == 27
    bars.last.click()
    right = int(titles[-1].split(": ")[1].split()[0])
    expect(page.locator(".count")).to_contain_text(f"{right} of 27")
    assert {*page.locator(f"{ROWS} .c-reward").all_inner_texts()} == {"1.1"}


def test_a_group_with_equal_rewards_is_marked(tmp_path: Path, visit: Open) -> None:
    folder = recorded(tmp_path)
    tab = visit(folder)
    tab.page.fill(".where", "reward = 0.25")
    expect(tab.page.locator(".count")).to_contain_text("4 of 8")
    expect(tab.page.locator(f"{ROWS} .c-ties").first).to_have_text("all 2")
    expect(tab.page.locator(f"{ROWS} .c-ties").first).to_have_class(re.compile("flat"))
    tab.page.keyboard.press("Escape")
    expect(tab.page.locator(".where")).not_to_be_focused()
    assert tab.page.locator(".where").input_value() == "reward = 0.25", "the field is left, not emptied"
    tab.page.locator(ROWS).first.click()
    tab.page.wait_for_selector(".item")
    tab.page.keyboard.press("g")
    expect(tab.page.locator(".card .badge", has_text="tie")).to_have_count(2)


def test_points_say_what_they_are(demo: Path, visit: Open) -> None:
    """Under the pointer, and from the keyboard."""
    page = visit(demo).page
    expect(page.locator(f"{ROWS} .c-prompt").first).not_to_be_empty()
    page.locator(".where").focus()
    page.locator(".scatter-canvas").focus()
    page.keyboard.press("ArrowRight")
    before = described(page)
    assert re.match(r"[0-9a-f]{8} · step \d · sample \d+ · n \d · reward [\d.]+ · output \d+ · How many", before)
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tip")).not_to_have_text(before)
    trace = described(page)[:8]
    tip, canvas = page.locator(".tip").bounding_box(), page.locator(".scatter-canvas").bounding_box()
    assert tip and canvas and canvas["x"] <= tip["x"] and tip["x"] + tip["width"] <= canvas["x"] + canvas["width"]
    page.keyboard.press("Enter")
    expect(page).to_have_title(re.compile(trace))


def test_points_of_few_values_stand_apart(tmp_path: Path, visit: Open) -> None:
    """Sixteen rollouts of a step have two rewards: more than two points are seen, and a rectangle selects a strip."""
    page = visit(dropped(tmp_path)).page
    page.locator(".axes select").nth(1).select_option("step")
    expect(page.locator(".count")).to_have_text("256 trajectories")
    canvas = page.locator(".scatter-canvas").bounding_box()
    assert canvas
    left, told = canvas["x"] + 56 + 0.03 / 1.06 * (canvas["width"] - 64), set()  # above the first step
    for down in range(2, int(canvas["height"]) - 22, 2):
        page.mouse.move(left, canvas["y"] + down)
        if page.locator(".tip").is_visible():
            told.add(described(page)[:8])
    assert len(told) > 6
    page.mouse.move(left - 8, canvas["y"] + 12)
    page.mouse.down()
    page.mouse.move(left + 8, canvas["y"] + 20, steps=4)
    page.mouse.up()
    solved = sum(row.reward == 1 for row in of_run(tmp_path / "dropped").select() if row.step == 1)
    expect(page.locator(".count")).to_have_text(f"{solved} of 256 trajectories")


def test_a_click_on_a_point_opens_it(demo: Path, visit: Open) -> None:
    page = visit(demo).page
    reader = of_run(demo)
    rows = [row for row in reader.select() if row.response_tokens is not None]
    longest = max(rows, key=lambda row: row.response_tokens)
    expect(page.locator(f"{ROWS} .c-prompt").first).not_to_be_empty()
    canvas = page.locator(".scatter-canvas").bounding_box()
    assert canvas
    for down in range(2, int(canvas["height"]) - 22, 4):  # somewhere above its place on the axis
        page.mouse.move(canvas["x"] + canvas["width"] - 8 - 0.03 / 1.06 * (canvas["width"] - 64), canvas["y"] + down)
        if page.locator(".tip").is_visible():
            break
    assert f"output {longest.response_tokens}" in described(page)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector(".item")


def test_what_carries_a_drop_stands_beside_the_curve_and_causes_above_consequences(tmp_path: Path, visit: Open) -> None:
    folder = dropped(tmp_path)
    command = [sys.executable, "-m", "autotrace", "why", str(folder), "--json"]
    why = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0])
    (cause,) = why["causes"]
    page = visit(folder, at="overview").page
    panel = page.locator(".curves .curve").nth(1)
    expect(panel.locator("figcaption")).to_contain_text(f"mean reward fell from 0.7578 to 0.1875 at step {CHANGED}")
    assert why["step"] == CHANGED
    expect(panel.locator("li")).to_have_count(1)
    expect(panel.locator("li")).to_contain_text(f"{cause['words']} · explains ")
    expect(panel.locator(".before")).to_contain_text("0 %")
    after = float(panel.locator(".after").inner_text().removeprefix("after").removesuffix("%"))
    assert abs(after / 100 - cause["share"]) < 0.1
    listed = page.locator(".found-list li[data-code]")
    codes = [each.get_attribute("data-code") for each in listed.all()]
    assert codes.index("AT-TOOL-ONE-ANSWER") + 1 == codes.index("AT-REWARD-DROPPED")
    below = page.locator('.found-list li[data-code="AT-REWARD-DROPPED"]')
    expect(below.locator("summary")).to_contain_text("follows from AT-TOOL-ONE-ANSWER")
    expect(below).to_have_class("follows")
    assert page.locator("details[open] > summary b").all_inner_texts() == ["AT-TOOL-ONE-ANSWER"]


def test_the_run_at_a_glance(tmp_path: Path, visit: Open) -> None:
    page = visit(dropped(tmp_path), at="overview").page
    tiles = page.locator(".tile")
    expect(tiles).to_have_count(6)
    names = ["reward", "solved", "groups", "with a tool error", "output tokens", "truncated"]
    assert tiles.locator("figcaption").all_inner_texts() == names
    means = reward_by_step(tmp_path / "dropped")
    expect(tiles.first.locator("b")).to_have_text(f"{means[-1]:.3g}")
    sign = "+" if means[-1] > means[-2] else "\u2212"
    expect(tiles.first).to_contain_text(f"{sign}{abs(means[-1] - means[-2]):.3g} since the step before")
    expect(tiles.nth(2)).to_contain_text("all wrong 75 %")


def reward_by_step(folder: Path) -> list[float]:
    by_step: dict[int, list[float]] = {}
    for row in of_run(folder).select():
        by_step.setdefault(row.step, []).append(row.reward)
    return [sum(values) / len(values) for _, values in sorted(by_step.items())]


def test_two_runs_lie_beside_each_other(tmp_path: Path, visit: Open) -> None:
    """From the runs over each other to the lines of ``autotrace diff``, and to a rollout of the other run."""
    recorded(tmp_path, "one")
    process = Process(new_run(tmp_path, "better"), run_id="better")
    for step in (1, 2):
        for number in range(4):
            rollout(process, step=step, rollout=number % 2, uid=f"u{step}{number // 2}", reward=1.0)
    process.exit()
    tab = visit(tmp_path)
    tab.page.wait_for_selector(".runs")
    page = tab.go("#/run/one/overview?with=better", ".overview-page .curve canvas")
    page.locator(".with a", has_text="what differs").click()
    page.wait_for_selector(".diff-line")
    expect(page.locator("h1")).to_have_text("Differences")
    command = [sys.executable, "-m", "autotrace", "diff", str(tmp_path / "one"), str(tmp_path / "better")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    title = re.findall(r"^first difference: .*$", printed, re.M)[0]
    assert title in page.locator(".overview-page h2").all_inner_texts()
    place = page.locator(".diff-line a[href*='/run/better/trace/']").first
    trace = place.inner_text()
    assert trace in printed
    place.click()
    page.wait_for_selector(".heading code")
    assert page.locator(".heading code").inner_text() == trace


def test_a_run_without_rollouts_shows_its_metrics(tmp_path: Path, visit: Open) -> None:
    for name, pace in (("slow", 0.9), ("fast", 0.5)):
        (tmp_path / name).mkdir()
        rows = [{"step": step, "actor/entropy": pace**step, "loss": 1 / step} for step in range(1, 13)]
        (tmp_path / name / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    page = visit(tmp_path / "fast" / "trainer_state.json", at="overview").page
    page.wait_for_selector(".curve canvas")
    assert page.locator(".curve figcaption").all_inner_texts() == ["actor/entropy", "loss"]
    expect(page.locator(".overview-page h2").first).to_have_text("Metrics")
    expect(page.locator(".found-list li b").first).to_have_text("AT-ENTROPY-COLLAPSED")
    expect(page.locator("#page .big")).to_have_text("1 finding in 2 metrics, most costly first")
    page.locator(".curve .u-over").first.hover(position={"x": 3, "y": 40})
    expect(page.locator(".curve figcaption").first).to_contain_text("step 1: 0.5")
    tab = visit(tmp_path)
    tab.page.wait_for_selector(".runs")
    runs = [link.inner_text() for link in tab.page.locator(".runs td a").all() if "curves" not in link.inner_text()]
    assert len(runs) == 2
    page = tab.go(f"#/run/{quote(runs[0], safe='')}/diff?with={quote(quote(runs[1], safe=''), safe='')}", ".diff-line")
    expect(page.locator(".diff-line").first).to_contain_text("actor/entropy: since step 1")
