"""What a run's page says beside its curves: what was seen and done before training, on the way, and in the end."""

from __future__ import annotations

import re
import time

import pytest
from console_world import settle, until
from training_events import (
    BEFORE,
    CHOICE,
    MENDED,
    NO_SIGNAL,
    NO_WARM_START,
    ON_THE_WAY,
    PLAN,
    STARTED,
    WARM_START,
    begins,
    dose,
    helped,
    signal,
    tell,
)

VALUES = {"reward/mean": 0.25, "pass@k": 0.5, "max@k": 0.5, "response_tokens/mean": 40.0, "truncated": 0.625}


@pytest.fixture(scope="module")
def learned(world, tmp_path_factory):
    return world.add_run(helped(tmp_path_factory.mktemp("helped") / "run"), name="helped")


def panel(page):
    """The panel and the button that opens it."""
    head = page.get_by_role("button", name=re.compile("^Before training"))
    return page.locator(".fold").filter(has=head), head


def measure(page, name):
    """What a bar of the signal says."""
    return page.locator(".measure").filter(has=page.get_by_text(name, exact=True)).locator("dd")


def fact(within, name):
    return within.locator(".facts > div").filter(has=within.page.get_by_text(name, exact=True)).locator("dd")


def test_before_its_first_step_a_run_says_what_it_does(open_page, world):
    run = begins(world, STARTED, CHOICE, name="says what it does")
    page = open_page(f"/experiments/{run}")
    inside, head = panel(page)
    inside.get_by_role("status").get_by_text("Looking at the model's first samples").wait_for()
    inside.get_by_text("rollouts.max_turns = 6").wait_for()
    page.get_by_text("Training has not begun yet").wait_for()
    tell(world, run, signal())
    inside.get_by_text(NO_SIGNAL).wait_for()
    inside.get_by_role("status").get_by_text("Warm start: looking for solutions to show").wait_for()
    assert measure(page, "Cut off by length").inner_text() == "63%"
    assert measure(page, "always the longest option").inner_text() == "0.38"
    assert measure(page, "A good answer").inner_text() == "1.00"
    assert measure(page, "Chance of a good answer").inner_text() == "1 in 4K"
    assert measure(page, "In the form that is paid").count() == 0, "it was not measured"
    tell(world, run, dose(1), dose(2))
    inside.get_by_role("status").get_by_text("Warm start, dose 2").wait_for()
    page.locator(".tile", has_text="Status").get_by_text("Warm start, dose 2").wait_for()
    assert inside.get_by_role("row").all_inner_texts()[-1].split("\t")[:3] == ["After dose 2", "0.250", "0.500"]
    tell(world, run, WARM_START)
    inside.get_by_role("status").get_by_text("Rehearsing a step").wait_for()
    tell(world, run, PLAN)
    page.get_by_text("The first step is under way", exact=True).wait_for()
    assert head.get_attribute("aria-expanded") == "true"
    world.add_points(run, [(0, "train", time.time(), VALUES)], total=12)
    page.locator(".chart").first.wait_for()
    until(page, lambda: head.get_attribute("aria-expanded"), "false")
    assert inside.get_by_role("status").count() == 0
    assert "warm start 0.000 → 0.428" in head.inner_text()
    page.locator(".tile", has_text="Cut off").get_by_text("62.5%").wait_for()


def test_what_was_done_before_training_can_be_read_later(open_page, learned):
    page = open_page(f"/experiments/{learned}")
    inside, head = panel(page)
    head.click()
    assert fact(inside, "Held-out reward").inner_text().split() == ["0.000", "→", "0.428", "+0.428"]
    assert fact(inside, "The model was shown").inner_text() == "64 solutions that earn (60 demonstrate, 4 gold)"
    assert fact(inside, "Model").inner_text() == "smollm2-135m"
    assert fact(inside, "Tokens per step").inner_text() == "27.3K sampled, 44.2K in the update"
    assert fact(inside, "The whole run").inner_text() == "12 steps, about 4 m 00 s"
    assert inside.locator(".chosen-settings div").count() == 2
    inside.get_by_text("An answer that is cut off loses 50% of its pay in the update.").wait_for()


def test_a_run_that_needed_no_help_says_so_in_a_line(open_page, world):
    able = signal(spread=0.8125, learns=True, forecast="81% of 16 groups had signal: it will learn.", advice="")
    run = begins(world, STARTED, able, NO_WARM_START, PLAN, name="able")
    page = open_page(f"/experiments/{run}")
    inside, _ = panel(page)
    inside.get_by_text("None. 81% of 16 groups had signal: it will learn.").wait_for()
    inside.get_by_text("can learn", exact=True).wait_for()
    assert inside.get_by_role("table").count() == 0


def test_a_run_that_was_begun_anew_shows_its_last_beginning(open_page, world):
    again = signal(forecast="Now it will learn.", learns=True)
    run = begins(world, *BEFORE, STARTED, again, name="anew")
    page = open_page(f"/experiments/{run}")
    inside, _ = panel(page)
    inside.get_by_text("Now it will learn.").wait_for()
    assert inside.get_by_text("64 solutions").count() == 0


def test_what_the_trainer_itself_writes_is_shown(open_page, world):
    """A run of the real trainer, of this very version."""
    page = open_page(f"/experiments/{world.runs['recorded']}")
    inside, head = panel(page)
    head.click()
    inside.get_by_text("What answers earn").wait_for()
    assert re.fullmatch(r"\d+%", measure(page, "Groups with a difference").inner_text())
    assert fact(inside, "Rows").inner_text() == "16 + 8 held out"
    page.get_by_role("heading", name="What was learned").wait_for()
    assert re.fullmatch(r"\d\.\d{3}", page.locator(".way dd").first.inner_text().strip())


def test_runs_of_before_show_nothing_of_it(open_page, world):
    page = open_page(f"/experiments/{world.runs['long']}")
    page.locator(".chart").first.wait_for()
    settle(page)
    assert panel(page)[1].count() == 0
    assert page.get_by_text("What was learned").count() == 0
    assert page.get_by_text("During training").count() == 0


def test_what_happened_on_the_way_is_marked_where_it_happened(open_page, learned):
    page = open_page(f"/experiments/{learned}")
    mark = page.get_by_role("button", name=re.compile("^Step 5, went back"))
    mark.wait_for()
    chart = page.locator(".chart").filter(has=mark)
    assert chart.locator(".chart-title").inner_text().startswith("Reward")
    assert page.locator(".chart-mark").count() == 3, "a step that is tried again is one mark"
    over, box = chart.locator(".u-over").bounding_box(), mark.bounding_box()
    assert box["x"] + box["width"] / 2 == pytest.approx(over["x"] + over["width"] * 5 / 12, abs=2)
    mark.focus()
    page.get_by_role("tooltip").get_by_text(MENDED).wait_for()
    told = page.locator(".on-the-way li").all_inner_texts()
    assert [line.split("\n")[0] for line in told] == ["step 3", "step 5", "step 9"]
    assert "2 of 6 times so far" in told[0]
    page.goto(f"{page.url.split('?')[0]}?range=6~12")
    page.get_by_role("button", name=re.compile("^Step 9, taught")).wait_for()
    assert page.locator(".chart-mark").count() == 1


def test_a_mark_comes_while_the_page_is_open(open_page, world):
    run = begins(world, *BEFORE, name="marked later")
    world.add_points(run, [(step, "train", time.time(), VALUES) for step in range(12)], total=12)
    page = open_page(f"/experiments/{run}")
    page.locator(".u-over").first.wait_for()
    tell(world, run, ON_THE_WAY[-1])
    page.get_by_role("button", name=re.compile("^Step 9, taught")).wait_for()
    page.locator(".on-the-way li").wait_for()


def test_what_was_learned_is_told_with_answers_before_and_after(open_page, learned):
    page = open_page(f"/experiments/{learned}")
    card = page.locator(".card").filter(has=page.get_by_role("heading", name="What was learned"))
    card.wait_for()
    way = {
        each.locator("dt").inner_text(): each.locator("dd").inner_text() for each in card.locator(".way > div").all()
    }
    assert {name: value.split()[0] for name, value in way.items()} == {
        "Original model": "0.000",
        "After the warm start": "0.428",
        "Best, after 9 steps": "0.983",
        "Last": "0.967",
        "Held-out answers that ended by themselves": "100%",
    }
    heads = card.locator(".pair-head")
    assert heads.count() == 3
    assert "How many employees does the Oslo office have?" in heads.first.inner_text()
    assert card.locator(".pair-body").count() == 0, "folded, so that the curves stay in sight"
    heads.first.click()
    before, after = (card.get_by_role("region", name=name) for name in ("Before", "After"))
    before.get_by_text("cut off", exact=True).wait_for()
    assert before.get_by_text("reward 0.000").count() == after.get_by_text("reward 1.000").count() == 1
    shown = before.locator("pre").bounding_box()["height"]
    card.get_by_role("button", name="Show all").click()
    assert before.locator("pre").bounding_box()["height"] > shown
    heads.nth(1).click()
    assert before.count() == 2
    card.get_by_role("link", name="Every answer to this question").first.click()
    page.wait_for_url(re.compile("/rollouts.*example=example-0"))
    page.locator(".ro-sample").first.wait_for()


def test_a_run_that_goes_on_is_not_summed_up_yet(open_page, world, tmp_path):
    run = world.add_run(helped(tmp_path / "run"), name="resumed", status="active")
    page = open_page(f"/experiments/{run}")
    page.locator(".chart-mark").first.wait_for()
    assert page.get_by_text("What was learned").count() == 0


def test_on_a_phone_nothing_sticks_out(open_page, learned):
    page = open_page(f"/experiments/{learned}", width=390)
    panel(page)[1].click()
    page.locator(".doses").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
