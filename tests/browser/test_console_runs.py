"""The list of runs, and the charts of one."""

from __future__ import annotations

import re

import pytest
from console_world import settle, until


def names(page):
    return [text.strip() for text in page.locator(".run-link").all_inner_texts()]


def test_the_filter_line_is_part_of_the_address(open_page, world):
    page = open_page("/experiments")
    box = page.get_by_label("Filter runs")
    box.fill("tag:toy -status:failed")
    until(page, lambda: names(page), ["digits · toy"])
    page.get_by_text(re.compile(r"1 of \d+ runs")).wait_for()
    page.wait_for_url(re.compile("q=tag"))
    again = open_page(page.url.removeprefix(world.url))
    again.get_by_text(re.compile(r"1 of \d+ runs")).wait_for()
    until(again, lambda: names(again), ["digits · toy"])
    box.fill("reward>0.5 status:complete")
    page.locator(".run-link", has_text="search-qa").wait_for()
    box.fill("colour:red")
    page.get_by_text("There is no field “colour”").wait_for()


def test_runs_are_archived_together_and_taken_back(open_page, world):
    for number in (1, 2):
        world.add_run(name=f"old {number}")
    page = open_page("/experiments?q=old")
    for number in (1, 2):
        page.get_by_label(f"Select old {number}").check()
    page.get_by_role("button", name="Archive", exact=True).click()
    page.get_by_text("No run matches").wait_for()
    page.get_by_role("button", name="Archived").click()
    page.get_by_label("Filter runs").fill("old")
    page.get_by_label("Select old 1").check()
    page.get_by_role("button", name="Unarchive").click()
    page.get_by_text("1 run", exact=True).wait_for()
    until(page, lambda: names(page), ["old 2"])


def test_runs_that_are_selected_are_compared_in_one_chart(open_page, world):
    made = {}
    for name, rate in (("paired slow", 1e-4), ("paired fast", 1e-3)):
        made[name] = world.add_run(name=name, args={"learning_rate": rate})
        world.add_points(made[name], [(step, "train", 1e9 + step, {"reward/mean": step / 4}) for step in range(3)])
    world.add_run(name="paired, not begun")
    page = open_page("/experiments?q=paired")
    page.get_by_label("Select paired slow").check()
    page.get_by_text("1 run selected").wait_for()
    assert page.get_by_role("link", name="Compare", exact=True).count() == 0, "there is nothing to compare it with"
    page.get_by_label("Select all listed runs").check()
    page.get_by_role("link", name="Compare", exact=True).click()
    page.get_by_role("region", name="Settings that differ").get_by_text("0.0001").wait_for()
    keys = page.locator(".chart").first.locator(".chart-key")
    until(page, keys.count, 2)


def test_a_curve_of_one_point_is_a_dot(open_page, world):
    run = world.add_run(name="one step")
    world.add_points(run, [(0, "train", 1e9, {"reward/mean": 0.4})], total=1)
    page = open_page(f"/experiments/{run}")
    canvas = page.locator(".chart canvas").first
    canvas.wait_for()
    green = """canvas => { const at = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let count = 0;
        for (let i = 0; i < at.length; i += 4) count += at[i + 3] > 200 && at[i + 1] > at[i] + 60 && at[i + 1] > 90;
        return count > 5; }"""
    until(page, lambda: canvas.evaluate(green), True)


def test_a_pinned_run_is_the_baseline(open_page, world):
    page = open_page("/experiments")
    page.get_by_role("row", name="search-qa").hover()
    page.get_by_label("Pin search-qa 7B, long as the baseline").click()
    page.get_by_role("columnheader", name="vs pinned").wait_for()
    until(page, lambda: names(page)[:1], ["search-qa 7B, long"])
    page.get_by_label("Pin search-qa 7B, long as the baseline").click()
    page.get_by_role("columnheader", name="vs pinned").wait_for(state="detached")


def test_the_table_can_be_saved_as_csv(open_page):
    page = open_page("/experiments")
    with page.expect_download() as found:
        page.get_by_role("link", name="CSV").click()
    assert found.value.suggested_filename == "runs.csv"
    assert b"digits" in found.value.path().read_bytes()


def test_the_csv_holds_what_the_list_shows(open_page):
    page = open_page("/experiments?q=tag:toy")
    page.get_by_text(re.compile(r"2 of \d+ runs")).wait_for()
    with page.expect_download() as found:
        page.get_by_role("link", name="CSV").click()
    lines = found.value.path().read_text("utf-8").splitlines()
    assert len(lines) == 3
    assert all("digits" in line for line in lines[1:])


def test_all_runs_of_the_list_are_chosen_at_once_and_a_refusal_is_said(open_page, world):
    kept, gone = (world.add_run(name=f"bulk {name}") for name in ("kept", "gone"))
    page = open_page("/experiments?q=bulk")
    page.get_by_label("Select all listed runs").check()
    page.get_by_text("2 runs selected").wait_for()
    page.route(f"**/runs/{gone}", lambda route: route.fulfill(status=400, json={"error": "The disk is full."}))
    page.watch.allow("400")
    page.get_by_role("button", name="Archive", exact=True).click()
    page.get_by_role("alert").get_by_text("The disk is full.").wait_for()
    page.get_by_text("1 run not changed").wait_for()
    page.get_by_text("1 run selected").wait_for()
    assert page.get_by_label("Select bulk gone").is_checked()
    assert kept


def test_keys_follow_the_order_that_is_seen_and_a_link_keeps_it(open_page, world):
    page = open_page("/experiments?q=status:complete")
    page.locator(".run-link").nth(1).wait_for()
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url(re.compile("sort=-name"))
    seen = sorted(names(page), key=str.lower, reverse=True)
    until(page, lambda: names(page), seen)
    page.keyboard.press("j")
    page.locator(".table-row-current", has_text=seen[0]).wait_for()
    again = open_page(page.url.removeprefix(world.url))
    again.locator(".run-link").nth(1).wait_for()
    until(again, lambda: names(again), seen)


def test_keys_open_a_run_and_its_tabs(open_page):
    page = open_page("/experiments?q=toy")
    page.locator(".run-link").first.wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=re.compile("digits")).wait_for()
    page.keyboard.press("7")
    page.wait_for_url(re.compile("/config"))
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("New run").wait_for()


def test_charts_zoom_together_and_a_click_opens_the_rollouts_of_a_step(open_page, world):
    page = open_page(f"/experiments/{world.runs['long']}")
    over = page.locator(".u-over").first
    over.wait_for()
    settle(page)
    box = over.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 60, steps=4)
    page.mouse.up()
    page.get_by_role("button", name="Reset zoom").wait_for()
    page.wait_for_url(re.compile("range="))
    low, high = map(float, re.search(r"range=([\d.]+)(?:~|%7E)([\d.]+)", page.url).groups())
    assert 0 < low < high < 300
    over.dblclick()
    page.get_by_role("button", name="Reset zoom").wait_for(state="detached")
    over.click(position={"x": box["width"] / 2, "y": 40})
    page.wait_for_url(re.compile("/rollouts.*step="))
    step = int(re.search(r"step=(\d+)", page.url).group(1))
    assert abs(step - 150) < 12


def test_charts_say_their_key_and_filter_by_it(open_page, world):
    page = open_page(f"/experiments/{world.runs['recorded']}")
    page.get_by_role("button", name="About this chart").first.hover()
    page.get_by_role("tooltip").get_by_text("reward/mean").wait_for()
    page.get_by_label("Filter metrics").fill("entropy")
    page.locator(".chart-title", has_text="Entropy").wait_for()
    until(page, page.locator(".chart").count, 1)
    page.get_by_label("Log").check()
    page.wait_for_url(re.compile("log=on"))


def test_the_cursor_shows_in_every_chart(open_page, world):
    page = open_page(f"/experiments/{world.runs['recorded']}")
    page.locator(".u-over").first.hover()
    page.locator(".chart-legend > .muted").nth(3).wait_for()


@pytest.mark.parametrize(
    ("process", "expected"),
    [("child", "the tool `search` failed"), ("environment", "For what training did"), ("", "during rollouts")],
)
def test_logs(open_page, world, process, expected):
    page = open_page(f"/experiments/{world.runs['recorded']}/logs?process={process}")
    page.get_by_text(expected).wait_for()


def test_log_levels_and_search(open_page, world):
    page = open_page(f"/experiments/{world.runs['recorded']}/logs?process=child&level=ERROR")
    page.get_by_text("the tool `search` failed").wait_for()
    until(page, page.locator(".log-line").count, 1)


def test_config_marks_what_was_given(open_page, world):
    page = open_page(f"/experiments/{world.runs['recorded']}/config?given=on")
    page.get_by_text("given", exact=True).wait_for()
    page.get_by_label("Filter settings").fill("group_size")
    page.locator("dt", has_text="group_size").wait_for()


def test_a_stranger_sees_a_public_run_and_nothing_else(open_page, world):
    from benchmax.platform.store.runs import runs

    run = world.add_long_run(50, 10, name="for all")
    with world.database.write() as session:
        runs.get(session, run).is_public = True
    page = open_page(f"/experiments/{run}", signed_in=False)
    page.watch.allow("401")
    page.get_by_role("heading", name="for all").wait_for()
    page.get_by_text("Not signed in").wait_for()
    page.locator(".chart").first.wait_for()
    page.get_by_role("link", name="Config").click()
    page.get_by_text("As launched").wait_for()
    assert page.get_by_role("link", name="Logs").count() == 0
    assert page.get_by_role("button", name="More").count() == 0


def test_another_run_can_be_laid_over_the_charts(open_page, world):
    page = open_page(f"/experiments/{world.runs['recorded']}")
    page.get_by_label("Compare with a run").select_option(label="search-qa 7B, long")
    page.locator(".chart-legend").first.get_by_text("search-qa 7B, long").wait_for()
    page.wait_for_url(re.compile(f"with={world.runs['long']}"))


def test_a_run_whose_model_is_loaded_waits_for_no_slot(open_page, world):
    from benchmax.platform.store.runs import runs
    from platform_world import make_run

    with world.database.write() as session:
        run = make_run(session, "ada@example.org", name="begins").id
        runs.set_status(session, run, "pending", "starting")
    page = open_page(f"/experiments/{run}")
    page.get_by_text("The model is being loaded").wait_for()
    page.locator(".pill", has_text="Starting").wait_for()
    assert page.get_by_text("free slot").count() == 0


def test_a_run_that_never_began_offers_no_curves(open_page):
    page = open_page("/experiments?q=status:cancelled")
    page.locator(".run-link").first.wait_for()
    assert page.get_by_text("See its curves").count() == 0


def test_the_legend_agrees_with_the_head_of_the_page(open_page, world):
    page = open_page(f"/experiments/{world.runs['recorded']}")
    settle(page)
    head, legend = page.locator(".tile", has_text="Reward").first.locator("b"), page.locator(".chart-key b").first
    legend.wait_for()
    until(page, head.inner_text, legend.inner_text())


def test_alerts_are_dismissed_until_there_is_a_new_one(open_page, world):
    from benchmax.platform.store.runs import events

    run = world.add_run(name="watched", status="active")

    def alert(words):
        with world.database.write() as session:
            events.append(session, run, "trainer.alert", words, category="alert")

    alert("The reward fell.")
    page = open_page(f"/experiments/{run}")
    page.get_by_role("button", name="Dismiss").click()
    page.get_by_text("The reward fell.").wait_for(state="detached")
    page.reload()
    page.get_by_role("heading", name="watched").wait_for()
    alert("The reward fell again.")
    page.get_by_text("The reward fell again.").wait_for()
    assert page.get_by_text("The reward fell.", exact=True).count() == 0


@pytest.mark.parametrize("font", ["ours", "the machine's, which is wider"])
def test_a_long_count_of_steps_stays_in_its_tile(open_page, world, font):
    page = open_page("/settings", width=1000)
    if font != "ours":
        page.watch.allow("ERR_FAILED")
        page.route("**/*.woff2", lambda route: route.abort())
    for step, total in ((8_999, 9_999), (98_765, 99_999), (987_654, 1_000_000)):
        run = world.add_run(name="many steps", status="active")
        world.add_points(run, [(step, "train", 1.0, {"reward/mean": 0.5})], total=total)
        page.goto(f"{world.url}/experiments/{run}")
        words = page.locator(".tile", has_text=f"{step + 1:,}").locator("b")
        assert words.evaluate("(words) => words.scrollWidth <= words.parentElement.clientWidth"), (step, font)
        assert page.evaluate("document.fonts.ready.then(() => document.fonts.check('16px Inter'))") == (font == "ours")


def test_an_address_that_is_not_there_is_a_page(open_page):
    page = open_page("/nowhere/at/all")
    page.watch.allow("404")
    page.get_by_text("There is nothing at this address").wait_for()
    page.get_by_role("link", name="Go to the runs").click()
    page.locator(".run-link").first.wait_for()


def test_a_run_that_is_not_there_says_so(open_page):
    page = open_page("/experiments/run_nothing")
    page.watch.allow("404")
    page.get_by_role("alert").get_by_text("no such run").wait_for()


def test_how_to_save_a_runs_pages_is_said(open_page, world):
    page = open_page(f"/experiments/{world.runs['recorded']}")
    page.get_by_role("button", name="More", exact=True).click()
    page.get_by_role("menuitem", name="Save its pages").click()
    page.get_by_role("dialog").get_by_text("--static").wait_for()


def test_a_run_is_renamed_stopped_and_resumed(open_page, world):
    run = world.add_run(name="to change", status="active")
    page = open_page(f"/experiments/{run}")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Name, tags, notes").click()
    page.get_by_role("textbox", name="Name").fill("changed")
    page.get_by_role("textbox", name="Tags").fill("a, b, a")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("heading", name="changed").get_by_text("b", exact=True).wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Stop it").click()
    page.locator(".pill", has_text="Done").wait_for()
