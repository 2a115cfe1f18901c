"""Every page and what can be done on it, on the run of the demo."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from autotrace.ship.readers import of_run
from tests.browser.conftest import Visit
from tests.run_folder import recorded
from tests.ship.spools import Process, attributes, new_run, trajectory

Open = Callable[..., Visit]
ROWS = ".scroller .row:not([hidden])"
PICTURE = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def first_of(page: Page, order: str) -> str:
    """The id of the first trajectory in an order."""
    page.evaluate(f"location.hash = location.hash.split('?')[0] + '?{order}'")
    page.wait_for_selector(ROWS)
    href = page.locator(ROWS).first.get_attribute("href") or ""
    return href.rsplit("/", 1)[1]


def test_the_table_filters_and_sorts_and_says_so_in_the_address(demo: Path, visit: Open) -> None:
    tab = visit(demo)
    page = tab.page
    expect(page.locator(".count")).to_contain_text("27 trajectories")
    page.fill(".where", "reward > 1 and step = 1")
    expect(page.locator(".count")).to_contain_text("6 of 27 trajectories")
    page.click('[data-column="response_tokens"]')
    tokens = page.locator(f"{ROWS} .c-response_tokens").all_inner_texts()
    assert tokens == sorted(tokens, key=lambda text: -int(text)) and len(tokens) == 6
    assert "where=reward" in page.url and "sort=response_tokens" in page.url
    copied = page.url
    page.goto(page.url.partition("#")[0])
    page.goto(copied)
    expect(page.locator(".count")).to_contain_text("6 of 27 trajectories")
    page.fill(".where", "rewad > 1")
    expect(page.locator(".problem")).to_contain_text('there is no column "rewad"')
    assert tab.wrong and all("400" in line for line in tab.wrong)
    tab.wrong.clear()


def test_the_scatter_selects(demo: Path, visit: Open) -> None:
    page = visit(demo).page
    expect(page.locator(".count")).to_contain_text("27")
    box = page.locator(".scatter-canvas").bounding_box()
    assert box
    page.mouse.move(box["x"] + 60, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + 60, steps=4)
    page.mouse.up()
    expect(page.locator(".count")).to_contain_text(" of 27 trajectories")
    assert "brush=" in page.url
    assert all(float(text) > 0.5 for text in page.locator(f"{ROWS} .c-reward").all_inner_texts())


def test_search_in_texts(demo: Path, visit: Open) -> None:
    page = visit(demo).page
    page.wait_for_selector(ROWS)
    page.fill(".bar .words", "I GUESS")
    page.press(".bar .words", "Enter")
    expect(page.locator(".count")).to_contain_text("in the texts")
    assert page.locator(ROWS).count() == 2
    expect(page.locator(f"{ROWS} .hit-line mark").first).to_have_text("I guess")
    page.locator(ROWS).first.click()
    expect(page.locator(".conversation mark").first).to_have_text("I guess")
    expect(page.locator(".conversation mark").first).to_be_in_viewport()


def test_keys_lead_from_the_table_to_a_group_and_back(demo: Path, visit: Open) -> None:
    page = visit(demo).page
    page.wait_for_selector(ROWS)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".item")
    before = page.url
    page.keyboard.press("j")
    expect(page).not_to_have_url(before)
    expect(page).to_have_title(re.compile(page.url.rsplit("/", 1)[1][:8]))  # that one is shown
    page.keyboard.press("g")
    page.wait_for_selector(".card")
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    page.wait_for_selector(ROWS)


def test_the_group_marks_the_fork_and_compares_with_any(demo: Path, visit: Open) -> None:
    tab = visit(demo)
    tab.page.wait_for_selector(ROWS)
    worst = first_of(tab.page, "where=step+%3D+1+and+sample+%3D+3&sort=reward")
    page = tab.go(f"#/run/{demo.name}/group/{worst}", ".card")
    assert page.locator(".card").count() == 4
    expect(page.locator(".card").nth(1)).to_contain_text("diverges at turn 1, token")
    assert page.locator(".turn-name.parts").count() == 1 and page.locator(".cell.parts ins").count() >= 3
    page.keyboard.press("w")
    expect(page.locator(".card.base")).to_contain_text(worst[:8])
    assert f"base={worst}" in page.url


def test_the_conversation_has_tools_with_what_went_wrong(demo: Path, visit: Open) -> None:
    tab = visit(demo)
    tab.page.wait_for_selector(ROWS)
    failed = first_of(tab.page, "where=error+contains+%27cherries%27")
    page = tab.go(f"#/run/{demo.name}/trace/{failed}", ".item.tool")
    expect(page.locator(".item.tool .badge").first).to_have_text("ERROR")
    expect(page.locator(".item.tool pre.error").first).to_contain_text("no item called 'cherries'")
    page.fill(".tabs .words", "PLUMS")
    expect(page.locator(".conversation mark").first).to_be_visible()


def test_thinking_and_pictures_stand_apart(tmp_path: Path, visit: Open) -> None:
    folder = new_run(tmp_path, "seen")
    process = Process(folder)
    root = process.open(b"\1" * 16, "trajectory", attributes=attributes())
    shown = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PICTURE}},
             {"type": "image_url", "image_url": {"url": "http://pictures.example/1.png"}}]  # fmt: skip
    llm = process.open(b"\1" * 16, "llm", root, inputs={"messages": [{"role": "user", "content": shown}]})
    answer = {"role": "assistant", "reasoning_content": "It is small and red.", "content": "A dot."}
    process.close(b"\1" * 16, llm, output={"choices": [{"message": answer}]})
    process.close(b"\1" * 16, root)
    process.exit()
    tab = visit(folder)
    page = tab.go(f"#/run/seen/trace/{'01' * 16}", ".item")
    asked, said = page.locator(".item.user"), page.locator(".item.assistant")
    expect(asked).to_contain_text("What is it?")
    assert asked.locator("img").evaluate_all("all => all.map(each => each.naturalWidth)") == [1]
    expect(asked).to_contain_text("[a picture: http://pictures.example/1.png, an address that this page does not open]")
    expect(said).to_contain_text("A dot.")
    expect(said.locator(".thought .markdown")).to_be_hidden()
    said.locator(".thought summary").click()
    expect(said.locator(".thought .markdown")).to_have_text("It is small and red.")


def test_n_leads_from_finding_to_finding(tmp_path: Path, visit: Open) -> None:
    folder = recorded(tmp_path)
    tab = visit(folder)
    tab.page.fill(".where", "finding = 'AT-TRUNCATED'")
    expect(tab.page.locator(".count")).to_contain_text("2 of 8")
    tab.page.locator(ROWS).first.click()
    tab.page.wait_for_selector(".item .finding")
    codes = tab.page.locator("aside .finding b").all_inner_texts()
    assert "AT-TRUNCATED" in codes
    for _ in range(1 + codes.index("AT-TRUNCATED")):
        tab.page.keyboard.press("n")
    expect(tab.page).to_have_url(re.compile("turn=2"))
    expect(tab.page.locator('[data-turn="2"] .finding b', has_text="AT-TRUNCATED").first).to_be_in_viewport()


def test_tokens_have_colours_values_and_places(demo: Path, visit: Open) -> None:
    tab = visit(demo)
    tab.page.wait_for_selector(ROWS)
    trace = first_of(tab.page, "sort=reward")
    page = tab.go(f"#/run/{demo.name}/trace/{trace}?view=tokens", ".block span")
    expect(page.locator('[data-way="logprob"]')).to_have_attribute("aria-pressed", "true")
    page.locator(".chip").first.click()
    expect(page.locator(".pointed")).to_contain_text("log-probability")
    assert "token=" in page.url
    said = page.locator(".pointed").inner_text()
    page.focus(".tokens")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".pointed")).not_to_have_text(said, use_inner_text=True)
    for way in page.locator(".way:not([disabled])").all():
        way.click()
        expect(way).to_have_attribute("aria-pressed", "true")
    assert page.locator(".block span.k1").count() > 0


def test_the_timeline_shows_a_call(demo: Path, visit: Open) -> None:
    tab = visit(demo)
    tab.page.wait_for_selector(ROWS)
    trace = first_of(tab.page, "sort=duration&desc=1")
    page = tab.go(f"#/run/{demo.name}/trace/{trace}?view=timeline", ".timeline-canvas")
    page.locator(".timeline-canvas").click(position={"x": 100, "y": 22 + 4 * 20 + 10})
    expect(page.locator(".call-box h2")).to_have_text("stock")
    expect(page.locator(".call-box")).to_contain_text("apples")
    assert "call=" in page.url
    with page.expect_download() as download:
        page.get_by_text("Perfetto").click()
    assert download.value.suggested_filename.endswith(".perfetto.json")
    drawn = json.loads(Path(download.value.path()).read_text())["traceEvents"]
    assert len([event for event in drawn if event["ph"] == "X"]) == len(of_run(demo).load(trace).spans)


def test_steps_have_curves_and_lanes(demo: Path, visit: Open) -> None:
    page = visit(demo).go(f"#/run/{demo.name}/steps", ".curve canvas")
    assert page.locator(".curve").count() >= 5
    page.locator(".curve .u-over").first.click(position={"x": 5, "y": 40})
    expect(page.locator(".lanes h2")).to_contain_text("Step 1: 12 rollouts")
    expect(page.locator(".lanes .last")).to_contain_text("took")
    page.locator(".lanes-canvas").hover(position={"x": 200, "y": 20 + 14 + 5})
    expect(page.locator(".lanes .pointed")).to_contain_text("sample")
    expect(page.locator(".found b")).to_have_text("▲ findings of step 1")
    page.locator(".found .chip").first.click()
    page.wait_for_selector(ROWS)
    expect(page.locator(".count")).to_contain_text("of 27 trajectories")
    page.go_back()
    page.wait_for_selector(".curve canvas")
    box = page.locator(".curve .u-over").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 50, steps=5)
    page.mouse.up()
    page.wait_for_selector(ROWS)
    assert "step+%3E%3D+2" in page.url


def test_another_run_lies_over_the_curves(tmp_path: Path, visit: Open) -> None:
    one, other = recorded(tmp_path, "one"), recorded(tmp_path, "other")
    page = visit(tmp_path).go(f"#/run/{one.name}/steps", ".curve canvas")
    curve = page.locator(".curve").first

    def said_at_the_first_step() -> str:
        curve.locator(".u-over").hover(position={"x": 3, "y": 40})
        expect(curve.locator("figcaption")).to_contain_text("step 1: ")
        return curve.locator("figcaption").inner_text().split("▲")[0].strip()

    assert said_at_the_first_step() == "reward step 1: 0.375"
    page.click(".with summary")
    page.check(f".with input[value={other.name}]")
    expect(page).to_have_url(re.compile(f"with={other.name}$"))
    page.wait_for_selector(".with input[value=other]:checked", state="attached")
    page.wait_for_selector(".curve canvas")
    assert said_at_the_first_step() == "reward step 1: 0.375 / 0.375"


def test_what_is_chosen_is_in_the_address(demo: Path, visit: Open) -> None:
    """A link shows a colleague the same: each is opened in a browser that has seen nothing before."""
    tab = visit(demo)
    page, run = tab.page, f"#/run/{demo.name}"
    page.wait_for_selector("option[value=tool_s]", state="attached")
    page.fill(".where", "step = 1")
    expect(page.locator(".count")).to_contain_text(" of ")
    page.locator(".axes select").nth(1).select_option("tool_s")
    page.click('[data-column="reward"]')
    expect(page.locator('[data-column="reward"]')).to_have_attribute("aria-sort", "descending")
    order = page.locator(f"{ROWS} .c-trace_id").all_inner_texts()
    chosen = {page.url: (".count", page.locator(".count").inner_text())}
    trace = first_of(page, "where=step+%3D+1&sort=reward")
    tab.go(f"{run}/group/{trace}", ".card")
    page.keyboard.press("w")
    expect(page.locator(".card.base")).to_contain_text(trace[:8])
    chosen[page.url] = (".card.base", page.locator(".card.base").inner_text())
    tab.go(f"{run}/trace/{trace}?view=tokens", ".block span")
    page.click('[data-way="mask"]')
    page.locator(".chip").nth(2).click()
    chosen[page.url] = (".pointed", page.locator(".pointed").inner_text())
    tab.go(f"{run}/trace/{trace}?view=timeline", ".timeline-canvas")
    page.locator(".timeline-canvas").click(position={"x": 100, "y": 22 + 2 * 20 + 10})
    expect(page.locator(".call-box h2")).not_to_be_empty()
    chosen[page.url] = (".call-box h2", page.locator(".call-box h2").inner_text())
    tab.go(f"{run}/steps", ".curve canvas")
    page.keyboard.press("j")
    expect(page.locator(".lanes h2")).to_contain_text("Step 1")
    chosen[page.url] = (".lanes h2", page.locator(".lanes h2").inner_text())
    assert len(chosen) == 5
    for address, (where, text) in chosen.items():
        other = visit(demo).page
        other.wait_for_selector(ROWS)
        other.goto(address)
        expect(other.locator(where).first).to_have_text(text, use_inner_text=True)
        if where == ".count":
            assert other.locator(f"{ROWS} .c-trace_id").all_inner_texts() == order
            assert other.locator(".axes select").nth(1).input_value() == "tool_s"
        if where == ".pointed":
            expect(other.locator('[data-way="mask"]')).to_have_attribute("aria-pressed", "true")


def test_tokens_by_what_the_trainer_computed(tmp_path: Path, visit: Open) -> None:
    folder = recorded(tmp_path)
    reader = of_run(folder)
    having = {row.trace_id: "mismatch_mean" in row.facts for row in reader.select(columns=("trace_id", "facts"))}
    tab = visit(folder)
    with_them = next(trace for trace, has in having.items() if has)
    page = tab.go(f"#/run/{folder.name}/trace/{with_them}?view=tokens&colour=mismatch", ".block span")
    expect(page.locator('[data-way="mismatch"]')).to_have_attribute("aria-pressed", "true")
    assert page.locator(".block span[class^=d]").count() > 0
    without = next(trace for trace, has in having.items() if not has)
    page = tab.go(f"#/run/{folder.name}/trace/{without}?view=tokens", f".heading code:text('{without[:12]}')")
    page.wait_for_selector(".block span")
    expect(page.locator('[data-way="mismatch"]')).to_be_disabled()
    assert "not recorded" in (page.locator('[data-way="entropy"]').get_attribute("title") or "")


def test_light_and_dark(demo: Path, visit: Open) -> None:
    page = visit(demo, color_scheme="dark").page
    page.wait_for_selector(ROWS)
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.keyboard.press("d")
    assert page.evaluate(ground) != dark


def test_who_went_elsewhere_stays_there(demo: Path, visit: Open) -> None:
    """What was asked for before, and arrives later, is not shown."""
    tab = visit(demo)
    page = tab.page
    page.wait_for_selector(ROWS)
    trace = first_of(page, "sort=reward")
    waiting: list[Route] = []

    def hold(route: Route) -> None:
        waiting.append(route)

    page.route(f"**/traces/{trace}", hold)
    with page.expect_request(f"**/traces/{trace}"):
        page.evaluate(f"location.hash = '#/run/{demo.name}/trace/{trace}'")
    tab.go(f"#/run/{demo.name}/group/{trace}", ".card")
    with page.expect_response(f"**/traces/{trace}") as answer:
        waiting[0].continue_()
    answer.value.body()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert page.locator(".card").count() == 4 and page.locator(".item").count() == 0


def test_what_there_is_not_says_so(demo: Path, visit: Open) -> None:
    tab = visit(demo)
    page = tab.go("#/run/nothing/table", "#page > .big .problem")
    expect(page.locator("#page .problem")).to_contain_text("there is no run nothing")
    assert tab.wrong and all("404" in line for line in tab.wrong)
    tab.wrong.clear()


def test_a_run_that_is_being_written_shows_what_comes(tmp_path: Path, visit: Open) -> None:
    folder = new_run(tmp_path, "writing")
    process = Process(folder)
    trajectory(process)
    page = visit(folder).page
    expect(page.locator(".count")).to_have_text("1 trajectory")
    expect(page.locator("#live")).to_contain_text("being written")
    root = process.open(b"\x7f" * 16, "trajectory", attributes=attributes(step=2))
    expect(page.locator(".count")).to_have_text("2 trajectories", timeout=60_000)
    page.locator(ROWS).nth(1).click()
    expect(page.locator(".heading .badge")).to_have_text("being written")
    for number in range(2):
        said = {"messages": [{"role": "user", "content": f"line {number}\n" * 100}]}
        process.close(b"\x7f" * 16, process.open(b"\x7f" * 16, "llm", root, inputs=said))
    expect(page.locator(".item.user")).to_have_count(2)
    place = page.locator(".body").evaluate("(body) => (body.scrollTop = 200, body.scrollTop)")
    assert place == 200
    process.close(b"\x7f" * 16, root)
    expect(page.locator(".badge").first).to_have_text("OK", timeout=60_000)
    assert page.locator(".body").evaluate("(body) => body.scrollTop") == place, "who reads stays where she reads"


def test_the_branches_of_a_trajectory_are_places_to_go_to(tmp_path: Path, visit: Open) -> None:
    folder = new_run(tmp_path, "branches")
    process, trace = Process(folder), b"\x7f" * 16
    root = process.open(trace, "trajectory", attributes=attributes(step=1))
    said: list[dict[str, str]] = []
    for system, text in (("main", "a"), ("main", "b"), ("sub", "c"), ("main", "d"), ("main", "e")):
        before = said if system == "main" else []
        messages = [{"role": "system", "content": system}, *before, {"role": "user", "content": f"{text} " * 400}]
        answer = {"role": "assistant", "content": f"answer {text}"}
        process.close(trace, process.open(trace, "llm", root, inputs={"messages": messages}), output=answer)
        if system == "main":
            said = [*messages[1:], answer]
    process.close(trace, root)
    process.exit()
    tab = visit(folder)
    page = tab.go(f"#/run/{folder.name}/trace/{trace.hex()}", ".branches")
    places = page.locator(".branches button")
    expect(places).to_have_text([re.compile("main conversation.*4 turns"), re.compile("sub-agent 1.*1 turn")])
    places.last.click()
    expect(page.locator(".item.assistant[data-turn='3']")).to_contain_text("answer c")
    expect(page.locator(".sub-agent .item[data-turn='3']").first).to_be_in_viewport()
    fork = page.locator(".item-head .to")
    expect(fork).to_have_text("→ sub-agent 1")
    assert fork.is_visible(), "without pointing at it"


def test_an_empty_run_says_so(tmp_path: Path, visit: Open) -> None:
    expect(visit(new_run(tmp_path, "empty")).page.locator(".count")).to_contain_text("this run has none yet")


def test_the_exported_page_opens_from_the_disk(demo: Path, browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    command = [sys.executable, "-m", "autotrace", "view", str(demo), "--step", "1", "--export", str(file)]
    subprocess.run(command, check=True, timeout=300)
    page = browser.new_page()
    visit = Visit(page, file.as_uri())
    page.goto(file.as_uri())
    expect(page.locator(".found-list li").first).to_contain_text("of the trajectories (2 of 12), since step 1")
    assert page.locator(".found-list .place a").count() > 0
    page.keyboard.press("t")
    page.wait_for_selector(ROWS)
    expect(page.locator(".count")).to_contain_text("12 trajectories")
    assert page.locator(".where").count() == 0, "the server answers that"
    assert page.locator(f"{ROWS} .c-prompt").first.inner_text().startswith("How many")
    page.locator(ROWS).first.click()
    page.wait_for_selector(".item")
    page.keyboard.press("2")
    page.wait_for_selector(".block span")
    page.keyboard.press("3")
    page.locator(".timeline-canvas").click(position={"x": 100, "y": 22 + 2 * 20 + 10})
    expect(page.locator(".call-box")).to_be_visible()
    page.keyboard.press("g")
    page.wait_for_selector(".fork")
    page.keyboard.press("s")
    page.wait_for_selector(".curve canvas")
    assert visit.wrong == []
    page.close()


@pytest.mark.parametrize(("width", "height"), [(380, 740), (720, 430), (3840, 2160)])
def test_windows_of_any_size(width: int, height: int, demo: Path, visit: Open) -> None:
    """A telephone, a laptop at 200 %, a wall: everything can be reached."""
    tab = visit(demo)
    page = tab.page
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_selector(ROWS)
    for cell in ('[data-column="error"]', f"{ROWS} .c-error:not(:empty)"):
        # in one step: rows are written anew when findings arrive
        page.locator(cell).first.evaluate("(element) => element.scrollIntoView({block: 'nearest', inline: 'center'})")
        expect(page.locator(cell).first).to_be_in_viewport()
    trace = first_of(page, "sort=reward")
    views = {"tokens": ".part-head.k1", "timeline": ".timeline-canvas", "conversation": ".item.assistant"}
    for view, what in views.items():
        tab.go(f"#/run/{demo.name}/trace/{trace}?view={view}", what)
        page.locator(what).first.scroll_into_view_if_needed()
        expect(page.locator(what).first).to_be_in_viewport()
        page.locator("aside dd").last.scroll_into_view_if_needed()
        expect(page.locator("aside dd").last).to_be_in_viewport()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
