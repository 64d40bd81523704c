"""A run in ten seconds: did it learn, may it cheat, which checkpoint, what differs from the run before."""

from __future__ import annotations

import re
import shutil

import pytest
from rollout_data import handbook

SPREAD = {"reward/std": 0.3, "rollouts": 64.0}


def answer(page, question):
    return page.locator(".short > div").filter(has=page.get_by_text(question, exact=True))


def run_of(world, train, held=(), *, name, **more):
    """A run with these mean rewards at each step, and after so many steps on held-out rows."""
    run = world.add_run(name=name, **more)
    lines = [(step, "train", 1e9 + step, {"reward/mean": reward, **SPREAD}) for step, reward in enumerate(train)]
    lines += [(step, "eval", 1e9 + step, {"reward/mean": reward, **SPREAD}) for step, reward in held]
    world.add_points(run, lines, total=len(train))
    return run


@pytest.mark.parametrize(
    ("held", "word", "words"),
    [
        (((0, 0.1), (2, 0.5), (4, 0.8)), "Yes", "0.100 → 0.800"),
        (((0, 0.1), (2, 0.8), (4, 0.3)), "Yes, then it fell", "0.100 → 0.800, now 0.300"),
        (((0, 0.4), (4, 0.42)), "Not clearly", "0.400 → 0.420, which may be chance"),
        (((0, 0.4), (4, 0.4)), "No", "0.400 → 0.400."),
        (((0, 0.6), (4, 0.2)), "It got worse", "0.600 → 0.200"),
        ((), "Yes", "Reward on training rows 0.150 → 0.750"),
    ],
)
def test_whether_it_learned_is_said_with_the_numbers(open_page, world, held, word, words):
    run = run_of(world, (0.1, 0.2, 0.7, 0.8), held, name="verdict")
    page = open_page(f"/experiments/{run}")
    learned = answer(page, "Did it learn?")
    learned.get_by_text(word, exact=True).wait_for()
    assert words in " ".join(learned.inner_text().split())


def test_a_run_that_goes_on_may_still_learn(open_page, world):
    run = run_of(world, (0.1, 0.2, 0.7, 0.8), ((0, 0.4), (4, 0.4)), name="under way", status="active")
    page = open_page(f"/experiments/{run}")
    answer(page, "Does it learn?").get_by_text("Not so far", exact=True).wait_for()


def test_the_share_that_is_solved_is_of_the_same_evaluation(open_page, world):
    run = run_of(world, (0.1, 0.2, 0.7, 0.8), name="solved")
    held = ((0, 0.1, 0.0), (2, 0.8, 0.6), (4, 0.76, 0.5))
    lines = [
        (at, "eval", 1e9 + at, {"reward/mean": reward, "solve_rate": solved, **SPREAD}) for at, reward, solved in held
    ]
    world.add_points(run, lines)
    page = open_page(f"/experiments/{run}")
    learned = answer(page, "Did it learn?")
    learned.get_by_text("Yes", exact=True).wait_for()
    assert "0.100 → 0.800; 60% of them solved" in " ".join(learned.inner_text().split())


def test_a_run_that_had_nothing_to_learn_says_so(open_page, world):
    run = run_of(world, (2.0, 2.0, 2.0, 2.0), name="solved before")
    lines = [(at, "eval", 1e9 + at, {"reward/mean": 2.0, "solve_rate": 1.0, **SPREAD}) for at in (0, 4)]
    world.add_points(run, lines)
    page = open_page(f"/experiments/{run}")
    told = answer(page, "Did it learn?")
    told.get_by_text("Nothing to learn", exact=True).wait_for()
    told.get_by_text("the reward accepts any answer").wait_for()


def test_a_checkpoint_has_only_what_was_measured_of_it(open_page, world, recorded, monkeypatch):
    run = world.add_run(recorded, name="between evaluations")
    folder = world.data.run(run) / "checkpoints"
    (folder / "best").unlink()
    kept = sorted(folder.glob("step-*"))
    kept[-1].rename(folder / "step-11")
    monkeypatch.setitem(world.late, "scalars", 1.0)  # a dash is not shown for what has not arrived
    page = open_page(f"/experiments/{run}/checkpoints")
    row = page.get_by_role("row").filter(has_text="11")
    row.wait_for()
    cells = row.get_by_role("cell").all_inner_texts()
    assert cells[1] != "–"
    assert cells[2] == "–", "held-out rows were played after steps 8 and 12"


def test_what_a_warm_start_brought_is_not_called_training(open_page, world, recorded):
    """Its weights are those of step 0; they may be the best that were kept."""
    run = run_of(world, (0.7, 0.7, 0.6, 0.6), ((0, 0.0), (4, 0.5)), name="warm")
    world.add_points(run, [(0, "warm_start", 1e9, {"reward/mean": 0.8, "solve_rate": 0.75, **SPREAD})])
    folder = world.data.run(run) / "checkpoints"
    newest = sorted((recorded / "checkpoints").glob("step-*"))[-1]
    for name in ("step-0", "step-4"):
        shutil.copytree(newest, folder / name)
    (folder / "best").write_text("step-0")
    page = open_page(f"/experiments/{run}")
    told = answer(page, "Did it learn?")
    told.get_by_text("Yes, then it fell", exact=True).wait_for()
    words = " ".join(told.inner_text().split())
    assert "0.000 → 0.800 (0.800 after the warm start), now 0.500; 75% of them solved" in words
    best = answer(page, "What is its best checkpoint?")
    best.get_by_text("the highest of those kept").wait_for()
    assert "Held-out reward 0.800" in " ".join(best.inner_text().split())
    page.get_by_text("eval after the warm start").first.wait_for()
    page.get_by_role("link", name="Download it or continue from it").click()
    row = page.get_by_role("row").filter(has_text="best")
    row.wait_for()
    assert row.get_by_role("cell").all_inner_texts()[2] == "0.800"


def test_before_the_first_evaluation_of_trained_weights_rows_are_not_compared(open_page, world):
    run = run_of(world, (0.1, 0.7), ((0, 0.0),), name="too early", status="active")
    page = open_page(f"/experiments/{run}")
    answer(page, "Does it learn?").get_by_text("Too early to tell").wait_for()
    answer(page, "Is it cheating?").get_by_text("No alerts so far.").wait_for()


def test_signs_of_cheating_are_counted_and_lead_to_their_rollouts(open_page, world):
    from benchmax.platform.store.runs import events

    clean = run_of(world, (0.1, 0.8, 0.8), ((0, 0.1), (3, 0.8)), name="clean")
    page = open_page(f"/experiments/{clean}")
    answer(page, "Is it cheating?").get_by_text("No sign so far").wait_for()  # nobody has examined its environment
    run = run_of(world, (0.1, 0.9, 0.9), ((0, 0.1), (3, 0.2)), name="by heart")
    with world.database.write() as session:
        data = {"alert": "length_blow_up", "step": 2, "rollouts": ["r-1"]}
        for kind in ("length_blow_up", "not_moving"):
            message = "Answers grew from 40 to 400 tokens without more reward. Use a reward for short answers."
            events.append(session, run, "trainer.alert", message, category="alert", data=data | {"alert": kind})
    page = open_page(f"/experiments/{run}")
    page.watch.allow("404")  # there is no such rollout
    found = answer(page, "Is it cheating?")
    found.get_by_text("2 signs of it").wait_for()
    assert "Training rows earn 0.900, held-out rows 0.200" in found.inner_text()
    found.get_by_role("link", name="Read one").click()
    page.wait_for_url(re.compile(r"/rollouts\?.*step=2.*rollout=r-1"))


def test_the_doctors_findings_are_on_the_page_of_the_run(open_page, world):
    from benchmax.platform.store.queue import one_off_jobs
    from benchmax.platform.store.tables import Run

    run = run_of(world, (0.1, 0.2), name="examined")
    page = open_page(f"/experiments/{run}")
    answer(page, "Is it cheating?").get_by_text("No alerts so far.").wait_for()
    assert page.get_by_text("The doctor").count() == 0, "it has no environment that could be examined"
    with world.database.write() as session:
        session.get(Run, run).paths = {"env_cls_path": "envs/built-in/arithmetic/0/env-cls.pkl"}
    page.reload()
    with page.expect_response(re.compile("/environments/arithmetic/doctor$")):
        answer(page, "Is it cheating?").get_by_role("button", name="Examine it").click()
    page.get_by_text("The doctor is examining the environment").wait_for()
    finding = {"check": "empty", "severity": "error", "title": "An empty answer is paid.", "fix": "No.", "evidence": ""}
    with world.database.write() as session:
        [report] = one_off_jobs.of_subject(session, world.user_id, "doctor", "arithmetic")
        result = {"ok": False, "findings": [finding, finding, finding | {"severity": "warning"}]}
        one_off_jobs.set_status(session, report.id, "complete", result=result)
    told = answer(page, "Is it cheating?")
    told.get_by_text("It could", exact=True).wait_for()
    told.get_by_role("link", name="2 errors and 1 warning").click()
    page.wait_for_url(re.compile(f"/environments/arithmetic.*report={report.id}"))
    page.get_by_text("An empty answer is paid.").first.wait_for()


def test_no_sign_is_only_said_of_what_was_examined(open_page, world):
    from benchmax.platform.store.queue import one_off_jobs
    from benchmax.platform.store.tables import Run

    run = run_of(world, (0.1, 0.2), name="sound")
    with world.database.write() as session:
        session.get(Run, run).paths = {"env_cls_path": "envs/built-in/code/0/env-cls.pkl"}
    page = open_page(f"/experiments/{run}")
    told = answer(page, "Is it cheating?")
    told.get_by_text("No sign so far", exact=True).wait_for()
    with page.expect_response(re.compile("/environments/code/doctor$")):
        told.get_by_role("button", name="Examine it").click()
    with world.database.write() as session:
        [report] = one_off_jobs.of_subject(session, world.user_id, "doctor", "code")
        one_off_jobs.set_status(session, report.id, "complete", result={"ok": True, "findings": []})
    told.get_by_text("No sign of it", exact=True).wait_for()


def test_a_run_that_failed_before_any_reward_offers_the_doctor(open_page, world):
    from benchmax.platform.store.tables import Run

    run = world.add_run(name="no reward", status="failed", reason="No rollout got a reward in 2 steps.")
    with world.database.write() as session:
        session.get(Run, run).paths = {"env_cls_path": "envs/built-in/calculator/0/env-cls.pkl"}
    page = open_page(f"/experiments/{run}")
    why = page.locator(".note").filter(has_text="No rollout got a reward")
    why.get_by_text("The doctor has not examined its environment on the platform.").wait_for()
    why.get_by_role("button", name="Examine it").wait_for()


def test_the_best_checkpoint_is_named_with_what_it_earned(open_page, world, recorded):
    run = world.add_run(recorded, name="kept")
    best = (world.data.run(run) / "checkpoints" / "best").read_text().strip()
    page = open_page(f"/experiments/{run}")
    told = answer(page, "What is its best checkpoint?")
    told.get_by_text(best, exact=True).wait_for()
    assert re.search(r"Held-out reward \d\.\d{3}, the highest", told.inner_text())
    told.get_by_role("link", name="Chat with it").click()
    page.wait_for_url(re.compile(f"/playground.*checkpoint={best}"))


def test_a_checkpoint_that_is_no_better_than_the_start_is_not_praised(open_page, world, recorded):
    best = (recorded / "checkpoints" / "best").read_text().strip()
    step = int(best.removeprefix("step-"))
    run = run_of(world, [0.1] * step, ((0, 0.2), (step, 0.2)), name="no better")
    shutil.copytree(recorded / "checkpoints", world.data.run(run) / "checkpoints")
    page = open_page(f"/experiments/{run}")
    told = answer(page, "What is its best checkpoint?")
    told.get_by_text("no higher than before training").wait_for()
    assert "the highest" not in told.inner_text()


@pytest.fixture(scope="module")
def three(world, tmp_path_factory):
    """Two runs of the same task, and one of another."""
    folder = handbook(tmp_path_factory.mktemp("three") / "run")
    same = {"blobs": {"train_dataset_path": "a" * 64}}
    return [
        world.add_run(folder, name="first", args={"learning_rate": 5e-4, "group_size": 8}, seconds=900, **same),
        world.add_run(folder, name="elsewhere", args={"learning_rate": 1.0}, blobs={"train_dataset_path": "b" * 64}),
        world.add_run(folder, name="second", args={"learning_rate": 1e-3, "group_size": 8}, seconds=300, **same),
    ]


def test_any_run_is_a_baseline(open_page, three):
    first, elsewhere, second = three
    page = open_page(f"/experiments/{second}")
    told = answer(page, "What differs from the run before?")
    told.get_by_text("reward against first").wait_for()
    told.get_by_text("0.001 (was 0.0005)").wait_for()
    assert "group" not in told.inner_text().lower(), "what is the same is not told"
    told.get_by_label("Run to compare with").select_option(value=elsewhere)
    told.get_by_text("rewards cannot be compared").wait_for()
    page.wait_for_url(re.compile(f"base={elsewhere}"))
    page.goto(f"{page.url.split('?')[0]}?base={first}")
    told.get_by_role("link", name="Row by row").click()
    page.wait_for_url(re.compile(f"/compare.*vs={first}"))
    page.get_by_role("heading", name="This run against first").wait_for()
    page.locator(".cm-whole").get_by_text("no clear difference").wait_for()
    page.get_by_role("table", name="Examples").get_by_role("row").nth(1).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("first", exact=True).wait_for()
    dialog.get_by_text("Gold answer").wait_for()
    page.keyboard.press("Escape")
    page.get_by_label("Another run to compare with").select_option(value=elsewhere)
    page.get_by_role("heading", name="This run against elsewhere").wait_for()


def test_a_setting_that_was_left_open_is_called_so(open_page, world, three):
    same = {"blobs": {"train_dataset_path": "a" * 64}}
    run = run_of(world, (0.1, 0.2), name="third", args={"group_size": 8}, **same)
    page = open_page(f"/experiments/{run}?base={three[0]}")
    told = answer(page, "What differs from the run before?")
    told.get_by_text("not set (was 0.0005)").wait_for()


def test_the_list_of_runs_shows_the_shape_of_each_reward(open_page, world):
    rising = run_of(world, [step / 9 for step in range(10)], name="rising")
    world.add_run(name="not begun", status="active")
    asked = []
    page = open_page("/experiments", signed_in=False)
    page.watch.allow("401")
    page.context.add_cookies([world.cookie()])
    page.on("request", lambda request: "/curves" in request.url and asked.append(request.url))
    page.goto(f"{world.url}/experiments")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="rising", exact=True))
    curve = row.get_by_role("img", name="Training reward, from 0 to 1")
    curve.wait_for()
    heights = [float(each.split(",")[1]) for each in curve.locator("polyline").get_attribute("points").split()]
    assert len(heights) == 10
    assert heights == sorted(heights, reverse=True), "up is down in a picture"
    waits = page.get_by_role("row").filter(has=page.get_by_role("link", name="not begun"))
    assert waits.locator("svg.sparkline").count() == 0
    rows = sum(url.count("run_") for url in asked)
    assert rows >= 3 * len(asked), "rows that come into view together are asked for in one call"
    world.add_points(rising, [(10, "train", 1e9, {"reward/mean": 0.0})], total=11)
    row.get_by_role("img", name="Training reward, from 0 to 0").wait_for()
