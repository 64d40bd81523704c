"""What a page says of a run is so: the best it was, its rates, one numbering of steps, who ended it."""

from __future__ import annotations

import re
import time

import pytest
from console_world import until
from rollout_data import handbook
from working_world import key_of

PHONE = 390


def values(reward, **more):
    return {"reward/mean": reward, "solve_rate": reward / 2, "max@k": reward, "response_tokens/mean": 40.0, **more}


@pytest.fixture(scope="module")
def fallen(world):
    """A run that was better once."""
    run = world.add_run(name="fallen", args={"learning_rate": None})
    train = [(step, "train", 1e9 + step, values(reward, lr=5e-4)) for step, reward in enumerate((0.1, 0.5, 0.9, 0.3))]
    held = [(step, "eval", 1e9 + step, values(reward)) for step, reward in ((0, 0.1), (2, 0.8), (4, 0.3))]
    world.add_points(run, train + held, total=4)
    return run


@pytest.fixture(scope="module")
def read(world, tmp_path_factory):
    """A run with rollouts to read."""
    return world.add_run(handbook(tmp_path_factory.mktemp("truth") / "run"), name="to read")


def tile(page, name):
    return page.locator(".tile").filter(has=page.get_by_text(name, exact=True))


def test_the_head_says_what_was_best_and_where(open_page, fallen):
    page = open_page(f"/experiments/{fallen}")
    tile(page, "Reward").get_by_text("best 0.900, step 3").wait_for()
    tile(page, "Eval reward").get_by_text("best 0.800, step 2").wait_for()
    assert "+0.20 since the start" in tile(page, "Eval reward").inner_text()


def test_a_run_at_its_best_names_no_other(open_page, world):
    run = world.add_run(name="rising")
    world.add_points(run, [(step, "train", 1e9 + step, values(step / 10)) for step in range(4)], total=4)
    page = open_page(f"/experiments/{run}")
    tile(page, "Reward").get_by_text("+0.30").wait_for()
    page.locator(".chart").first.wait_for()
    assert "best" not in tile(page, "Reward").inner_text()


def test_solved_answers_are_a_chart_of_their_own(open_page, fallen):
    page = open_page(f"/experiments/{fallen}")
    chart = page.locator(".chart").nth(1)
    chart.locator(".chart-title").get_by_text("Solved").wait_for()
    assert chart.locator(".chart-key b").first.inner_text() == "0.150"


def test_a_small_rate_is_not_rounded_to_another(open_page, fallen):
    page = open_page(f"/experiments/{fallen}?metric=%5Elr%24")
    page.locator(".chart-key b").get_by_text("0.0005", exact=True).wait_for()
    page.goto(f"{page.url.split('?')[0]}/config")
    row = page.locator("dt", has_text="lr in step 4")
    row.wait_for()
    assert row.locator("xpath=following-sibling::dd[1]").inner_text() == "0.0005"
    asked = page.locator("dt[title=learning_rate]").locator("xpath=following-sibling::dd[1]")
    assert "not set · 0.0005 in step 4" in asked.inner_text()


def test_steps_are_counted_from_one_everywhere(open_page, read):
    page = open_page(f"/experiments/{read}")
    tile(page, "Step").get_by_text("12", exact=True).wait_for()
    page.locator(".u-over").first.hover(position={"x": 2, "y": 40})
    page.locator(".chart-legend").first.get_by_text(re.compile("^step [01]$")).wait_for()
    box = page.locator(".u-over").first.bounding_box()
    page.locator(".u-over").first.hover(position={"x": box["width"] - 2, "y": 40})
    page.locator(".chart-legend").first.get_by_text("step 12").wait_for()
    page.locator(".u-over").first.click(position={"x": box["width"] - 2, "y": 40})
    page.wait_for_url(re.compile("/rollouts"))
    page.get_by_role("button", name=re.compile("^Step 12")).first.wait_for()
    page.locator(".ro-sample").first.click()
    page.get_by_role("heading", name=re.compile("^Step 12, ")).wait_for()
    page.get_by_role("button", name="Filter").click()
    step = page.get_by_label("Step", exact=True)
    until(page, step.input_value, "12")
    step.fill("1")
    step.press("Enter")
    page.get_by_role("button", name=re.compile("^Step 1 ")).first.wait_for()
    page.wait_for_url(re.compile("step=0"))


def test_the_first_evaluation_came_before_training(open_page, read):
    page = open_page(f"/experiments/{read}/rollouts?mode=eval&step=0")
    page.get_by_role("button", name=re.compile("^Before training")).first.wait_for()


def test_a_run_that_was_stopped_says_so(open_page, world):
    page = open_page("/experiments?q=status:stopped")
    page.locator(".run-link", has_text="arithmetic 1.5B").wait_for()
    assert "Stopped" in page.locator(".pill").all_inner_texts()
    assert page.get_by_text(re.compile("cancel", re.IGNORECASE)).count() == 0
    page.goto(f"{world.url}/experiments/{world.runs['cancelled']}")
    tile(page, "Status").get_by_text("Stopped", exact=True).wait_for()


def test_a_resumed_run_counts_the_time_it_worked(open_page, world):
    from benchmax.platform.store.runs import runs

    run = world.add_run(name="resumed", status="cancelled", args={"max_minutes": 60})
    now = time.time()
    lines = [(step, "train", now - 86_400 + step, values(0.5)) for step in range(100)]
    with world.database.write() as session:
        row = runs.get(session, run)
        row.started, row.ended = now - 86_400, now - 86_400 + 100
        runs.reopen(session, run)
        runs.set_status(session, run, "active", "training")
    world.add_points(run, [*lines, (100, "train", now, values(0.5))], total=200)
    page = open_page(f"/experiments/{run}")
    took = tile(page, "Elapsed")
    took.get_by_text(re.compile(r"^1 m \d\d s$")).wait_for()
    took.get_by_text(re.compile(r"about 1 m \d\d s left")).wait_for()


# What is asked for comes first


@pytest.mark.parametrize("tab", ["eval", "checkpoints", "config"])
def test_outside_train_the_tiles_are_a_line(open_page, read, tab):
    page = open_page(f"/experiments/{read}/{tab}", width=PHONE)
    brief = page.locator(".run-brief")
    brief.get_by_text("step 12").wait_for()
    assert page.locator(".tiles").count() == 0
    assert page.locator(".tabs").bounding_box()["y"] < 300
    brief.click()
    page.locator(".tiles").wait_for()


def test_the_current_tab_is_in_sight_on_a_phone(open_page, read):
    page = open_page(f"/experiments/{read}/system", width=PHONE)
    tab = page.get_by_role("link", name="System")
    tab.wait_for()
    box = tab.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE


def test_the_first_key_skips_to_the_content(open_page):
    page = open_page("/experiments")
    page.locator(".run-link").first.wait_for()
    page.keyboard.press("Tab")
    skip = page.get_by_role("button", name="Skip to content")
    assert skip.evaluate("(button) => button === document.activeElement")
    assert skip.bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "MAIN"


def test_a_chart_is_walked_by_keys(open_page, read):
    page = open_page(f"/experiments/{read}")
    chart = page.get_by_role("group", name=re.compile("^Reward: arrow keys"))
    chart.focus()
    page.keyboard.press("Home")
    legend = page.locator(".chart-legend").first
    legend.get_by_text("step 1", exact=True).wait_for()
    page.keyboard.press("ArrowRight")
    legend.get_by_text("step 2", exact=True).wait_for()
    assert legend.get_attribute("aria-live") == "polite"
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/rollouts.*step=1"))


def test_what_is_deleted_is_named(open_page, world):
    world.add_run(name="to be deleted")
    page = open_page("/experiments?q=deleted")
    page.get_by_label("Select to be deleted").check()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_text("to be deleted").wait_for()


def test_ticks_mark_code(open_page, world):
    from benchmax.platform.store.runs import events

    run = world.add_run(name="ticked", status="active")
    with world.database.write() as session:
        events.append(session, run, "trainer.alert", "Lower `--optim.lr` and resume.", category="alert")
    page = open_page(f"/experiments/{run}")
    page.locator(".note code", has_text="--optim.lr").wait_for()
    assert "`" not in page.locator(".note").first.inner_text()


# What leads to what


def test_an_alert_opens_the_rollouts_that_show_it(open_page, world, tmp_path):
    from benchmax.platform.store.runs import events

    run = world.add_run(handbook(tmp_path / "run"), name="alarmed", status="active")
    with world.client(key_of(world)) as client:
        params = {"mode": "train", "step": 3}
        shown = client.get(f"/v1/train/runs/{run}/rollouts", params=params).json()["data"][5]["id"]
    with world.database.write() as session:
        data = {"step": 3, "rollouts": [shown]}
        events.append(session, run, "trainer.alert", "The reward fell.", category="alert", data=data)
    page = open_page(f"/experiments/{run}")
    page.locator(".note").get_by_text("step 4", exact=True).wait_for()
    page.get_by_role("link", name="See its rollouts").click()
    page.get_by_role("heading", name=re.compile("^Step 4, ")).wait_for()
    assert f"rollout={shown}" in page.url


def test_why_a_run_failed_is_on_its_page(open_page, world):
    reason = "The reward function raised `KeyError`. Return 0 for rows without an answer.\nTraceback: line 3"
    run = world.add_run(name="broken", status="failed", reason=reason)
    page = open_page(f"/experiments/{run}")
    note = page.locator(".note-bad")
    note.get_by_text("Return 0 for rows without an answer.").wait_for()
    note.locator("pre", has_text="Traceback: line 3").wait_for()
    note.get_by_role("link", name="Read its log").click()
    page.wait_for_url(re.compile("/logs"))


def test_rollouts_are_ordered_and_bounded_by_a_component(open_page, world, read):
    with world.client(key_of(world)) as client:
        rows = client.get(f"/v1/train/runs/{read}/rollouts", params={"mode": "train", "limit": 500}).json()["data"]
    name = "correct"
    fewer = sum(each["rewards"].get(name, -1) >= 0.5 for each in rows)
    assert 0 < fewer < len(rows)
    world.add_points(read, [(0, "train", 1e9, {f"reward_stats/{part}/reward/mean": 0.5 for part in (name, "other")})])
    page = open_page(f"/experiments/{read}/rollouts?mode=train&order=best&low=0.5")
    page.get_by_label("Component").select_option(name)
    page.get_by_text(f"{fewer} rollouts").wait_for()
    page.get_by_text(f"{name} ≥ 0.5").wait_for()
    page.locator(f".ro-dot[title='{name}']").first.wait_for()


def test_the_first_rollout_is_open_at_once(open_page, read):
    page = open_page(f"/experiments/{read}/rollouts?mode=train")
    page.get_by_role("heading", name="Step 12, sample #0").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text("Choose a rollout to read its whole conversation.").wait_for()


def test_the_list_says_what_a_run_was(open_page, world):
    paths = {"env_cls_path": "envs/handbook/abc/env-cls.pkl"}
    run = world.add_run(name="set up", args={"model": "org/tiny"}, paths=paths)
    with world.database.write() as session:
        from benchmax.platform.store.runs import runs

        runs.get(session, run).asked = {"model": "org/tiny", "learning_rate": 0.0005}
    page = open_page("/experiments?q=env:handbook")
    page.get_by_text("handbook · tiny · learning_rate 0.0005").wait_for()


def test_only_runs_of_the_same_task_are_held_against_the_pinned_one(open_page, world):
    from benchmax.platform.store.runs import runs

    made = [world.add_run(name=f"task {name}") for name in ("pinned", "same", "another")]
    for run, rows, reward in zip(made, ("aa", "aa", "bb"), (0.5, 0.7, 0.9), strict=True):
        world.add_points(run, [(step, "train", 1e9 + step, values(reward)) for step in range(2)], total=2)
        with world.database.write() as session:
            runs.get(session, run).blobs = {"env_cls_path": "e", "train_dataset_path": rows}
            runs.get(session, run).pinned = run == made[0]
    page = open_page("/experiments?q=task")
    page.get_by_role("columnheader", name="vs pinned").wait_for()
    page.get_by_role("row", name="task same").get_by_text("+0.20").first.wait_for()
    assert "+0.40" not in page.get_by_role("row", name="task another").inner_text()
    with world.database.write() as session:
        runs.get(session, made[0]).pinned = False


def test_a_run_is_made_public_after_a_question(open_page, world):
    run = world.add_run(name="to be shown")
    page = open_page(f"/experiments/{run}")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name=re.compile("^Make public")).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("every prompt and every answer").wait_for()
    assert page.locator(".chip", has_text="public").count() == 0
    dialog.get_by_role("button", name="Make it public").click()
    page.locator(".chip", has_text="public").wait_for()


def test_a_forked_run_leads_to_its_parent(open_page, world, read):
    run = world.add_run(name="forked")
    with world.database.write() as session:
        from benchmax.platform.store.runs import runs

        runs.get(session, run).parent = {"run_id": read, "checkpoint": "step-4"}
    page = open_page(f"/experiments/{run}")
    page.get_by_role("link", name="from to read").click()
    page.get_by_role("heading", name="to read").wait_for()


def test_several_runs_in_one_chart_and_what_was_set_differently(open_page, world):
    made = []
    for name, rate in (("slow", 0.0001), ("middling", 0.0005), ("fast", 0.001)):
        run = world.add_run(name=f"{name} rate", args={"model": "tiny", "learning_rate": rate})
        world.add_points(run, [(step, "train", 1e9 + step, values(rate * 500)) for step in range(3)], total=3)
        made.append(run)
    page = open_page(f"/experiments/{made[0]}")
    for run in made[1:]:
        page.get_by_label("Compare with a run").select_option(run)
        page.wait_for_url(re.compile(run))
    keys = page.locator(".chart").first.locator(".chart-key")
    until(page, lambda: [key.split("\n")[0] for key in keys.all_inner_texts()], ["train", "middling rate", "fast rate"])
    table = page.get_by_role("region", name="Settings that differ")
    until(page, table.get_by_role("row").count, 2)
    assert table.get_by_role("cell").all_inner_texts() == ["0.0001", "0.0005", "0.001"]
    page.get_by_role("button", name="Remove middling rate").click()
    until(page, keys.count, 2)


def test_a_checkpoint_goes_on_with_other_settings(open_page, world):
    page = open_page(f"/experiments/{world.runs['recorded']}/checkpoints")
    page.get_by_role("button", name=re.compile("^More for step-")).first.click()
    page.get_by_role("menuitem", name=re.compile("Start a new run")).click()
    rate = page.get_by_role("dialog").get_by_label("Learning rate")
    rate.fill("fast")
    page.get_by_text("Enter a number.").wait_for()
    rate.fill("0.0003")
    answer = {"runId": world.runs["long"], "status": "pending", "warnings": []}
    page.route("**/fork", lambda route: route.fulfill(status=201, json=answer))
    with page.expect_request("**/fork") as sent:
        page.get_by_role("button", name="Start it").click()
    assert sent.value.post_data_json["args"] == {"learning_rate": 0.0003}
