"""A run launched from the browser, from an empty form to a model that trains."""

from __future__ import annotations

import re

import pytest
from working_world import add_dataset, add_environment, key_of, lines, working

from benchmax.envs.datasets.split import held_out_indices
from benchmax.platform.store.runs import runs
from benchmax.platform.store.tables import Blob
from benchmax.platform.wire.launch_args import launch_args
from runner_world import wait_until

ROWS = [{"prompt": f"Count to {n}.", "ground_truth": str(n)} for n in range(50)]


@pytest.fixture(scope="module")
def world(console, tmp_path_factory):
    with working(tmp_path_factory.mktemp("newrun"), console=console) as server:
        add_environment(server)
        yield server


def upload(page, rows, name="count.jsonl"):
    content = {"name": name, "mimeType": "application/jsonl", "buffer": lines(rows)}
    page.get_by_label("Dataset file").set_input_files(content)


def environment(page, name):
    return page.get_by_role("radio", name=re.compile(name))


def launch_button(page, **more):
    return page.get_by_role("button", name="Launch the run", **more)


def launched(page):
    """The id of the run that a launch led to."""
    page.wait_for_url(re.compile("/experiments/run_"))
    return page.url.split("/experiments/")[1].split("/")[0]


def test_from_an_empty_form_to_a_trained_model(open_page, world):
    page = open_page("/experiments")
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    page.keyboard.press("n")
    page.get_by_role("heading", name="New run").wait_for()
    page.get_by_text("Choose an environment.").first.wait_for()
    launch_button(page, disabled=True).wait_for()
    environment(page, "CountingEnv").check()
    page.get_by_text("Choose or upload a dataset.").first.wait_for()
    upload(page, ROWS)
    page.locator(".launch-facts").get_by_text("40 + 10 held out").wait_for()
    slider = page.get_by_label("Held out for evaluation")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.locator(".launch-facts").get_by_text("35 + 15 held out").wait_for()
    page.get_by_label("Model", exact=True).select_option(world.model)
    page.get_by_role("button", name=re.compile("^Advanced")).click()
    page.get_by_label("Max steps", exact=True).fill("2")
    page.get_by_label("Tuning", exact=True).select_option("full")
    page.get_by_label("Max tokens per turn", exact=True).fill("4")
    page.get_by_label("Max turns", exact=True).fill("1")
    page.get_by_label("Group size", exact=True).fill("2")
    page.locator(".launch-facts").get_by_text("2 at most").wait_for()
    page.get_by_role("button", name="Examine it").click()
    page.locator(".doctor-verdict").wait_for(timeout=180_000)
    page.get_by_label("Name", exact=True).fill("my first")
    if page.get_by_label("Launch it anyway").count():
        page.get_by_label("Launch it anyway").check()
    launch_button(page).click()
    page.get_by_role("heading", name="my first").wait_for()
    page.get_by_text("Only 35 training rows; 200 or more are recommended.").wait_for()
    run_id = launched(page)
    with world.database.read() as session:
        run = runs.get(session, run_id)
        counts = {name: session.get(Blob, run.blobs[name]).rows for name in ("train_dataset_path", "eval_dataset_path")}
    assert counts == {"train_dataset_path": 35, "eval_dataset_path": 15}
    assert (run.args["max_steps"], run.args["tune"], run.args["model"]) == (2, "full", world.model)
    assert set(run.asked) == {"model", "max_steps", "tune", "max_new_tokens", "max_turns", "group_size"}

    def done():
        with world.database.read() as session:
            found = runs.get(session, run_id)
            return found.ended and found.status

    assert wait_until(done, 240) == "complete"
    page.get_by_text("Done", exact=True).first.wait_for()


def test_what_was_chosen_survives_a_reload_and_travels_in_a_link(open_page, world):
    page = open_page("/experiments/new")
    environment(page, "ArithmeticEnv").check()
    page.locator(".launch-facts").get_by_text("79 + 20 held out").wait_for()
    page.get_by_label("Epochs", exact=True).fill("2")
    page.get_by_label("Name", exact=True).fill("twice")
    page.reload()
    page.locator(".launch-facts").get_by_text("79 + 20 held out").wait_for()
    assert environment(page, "ArithmeticEnv").is_checked()
    assert page.get_by_label("Epochs", exact=True).input_value() == "2"
    other = open_page(page.url.removeprefix(world.url))
    other.get_by_label("Epochs", exact=True).wait_for()
    assert other.get_by_label("Epochs", exact=True).input_value() == "2"
    assert other.get_by_label("Name", exact=True).input_value() == "twice"
    other.get_by_role("button", name="Reset Epochs").click()
    other.wait_for_url(re.compile(r"^(?!.*arg\.)"))


def test_too_few_rows_are_refused_in_the_sdks_words(open_page):
    page = open_page("/experiments/new")
    page.watch.allow("400")
    environment(page, "CountingEnv").check()
    upload(page, ROWS[:15], "few.jsonl")
    page.get_by_role("alert").get_by_text("A training run needs at least 16 training rows; there are 15.").wait_for()
    launch_button(page, disabled=True).wait_for()


def test_rows_the_run_would_refuse_are_not_ticked_and_cannot_be_launched(open_page):
    """Also those that a built-in environment could read, when another one is chosen."""
    page = open_page("/experiments/new")
    environment(page, "CountingEnv").first.check()
    rows = [{"question": f"{n} + 1?", "ground_truth": str(n + 1)} for n in range(30)]
    upload(page, rows, "wrong.jsonl")
    page.get_by_text("No row can be used by this environment").wait_for()
    page.get_by_text("the row has neither prompt nor messages").first.wait_for()
    page.get_by_text("Correct or remove the unusable rows").wait_for()
    assert "Steps\n–\nRollouts\n–" in page.locator(".launch-facts").inner_text(), "no row, no step"
    assert launch_button(page).is_disabled()
    right = [{"prompt": row["question"], "ground_truth": row["ground_truth"]} for row in rows]
    upload(page, [*rows[:6], *right[6:]], "some.jsonl")
    page.get_by_text("6 of 30 rows cannot be used by this environment").wait_for()
    upload(page, right, "right.jsonl")
    page.locator(".launch-facts").get_by_text("24 + 6 held out").wait_for()
    launch_button(page, disabled=False).wait_for()


def test_the_split_is_the_one_the_server_makes(open_page):
    page = open_page("/experiments/new")
    environment(page, "CountingEnv").check()
    upload(page, ROWS[:18], "eighteen.jsonl")
    page.get_by_text("At least 16 rows are kept for training.").wait_for()
    for percent in (5, 10, 35, 50):
        page.get_by_label("Held out for evaluation").fill(str(percent))
        aside = len(held_out_indices(18, percent / 100))
        page.locator(".launch-facts").get_by_text(f"{18 - aside} + {aside} held out").wait_for()


SPECS = {spec.name: spec for spec in launch_args(gpu=False)}
NUMBERS = [name for name, spec in SPECS.items() if spec.type in ("integer", "number")]


def test_every_number_is_checked_against_the_served_range_as_it_is_typed(open_page):
    page = open_page("/experiments/new")
    environment(page, "ArithmeticEnv").check()
    page.get_by_role("button", name=re.compile("^Advanced")).click()
    for name in NUMBERS:
        spec = SPECS[name]
        field = page.locator(".field").filter(has=page.get_by_label(spec.label, exact=True))
        box = field.locator("input")
        refusal = field.locator(".field-error")
        for text in ["x", str(spec.min - 1), str(spec.max + 1)] + (["1.5"] if spec.type == "integer" else []):
            box.fill(text)
            assert refusal.inner_text().startswith(("Enter ", "Must be ")), (name, text)
        assert launch_button(page).is_disabled(), name
        for number, words in ((spec.max, "^(Default: |Above )"), (spec.min, "^Default: ")):
            box.fill(f"{number:.12g}")
            field.get_by_text(re.compile(words)).wait_for()
            assert refusal.count() == 0, (name, number)
        box.fill("")
    launch_button(page, disabled=False).wait_for()


def test_the_warm_start_is_chosen_among_words_that_are_explained(open_page):
    page = open_page("/experiments/new?environment=arithmetic")
    field = page.locator(".field").filter(has=page.get_by_label("Warm start", exact=True))
    field.get_by_text("only if its own answers teach nothing").wait_for()
    choice = page.get_by_label("Warm start", exact=True)
    assert choice.locator("option").all_inner_texts() == SPECS["warm_start"].enum
    choice.select_option("gold")
    field.get_by_text("Shows the model solutions that earn").wait_for()
    page.wait_for_url(re.compile(r"arg\.warm_start=gold"))
    page.get_by_role("button", name="Reset Warm start").click()
    page.wait_for_url(re.compile(r"^(?!.*arg\.)"))


def test_a_value_above_the_advice_is_warned_of_and_still_allowed(open_page):
    page = open_page("/experiments/new?environment=arithmetic&arg.learning_rate=0.05")
    page.get_by_text("Above 0.005: training may diverge.").wait_for()
    launch_button(page, disabled=False).wait_for()


def test_the_form_can_be_filled_by_keyboard_alone(open_page):
    page = open_page("/experiments/new")
    environment(page, "CountingEnv").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.locator(".launch-facts").get_by_text("CalculatorEnv").wait_for()
    page.get_by_label("Held out for evaluation").wait_for()
    launch_button(page, disabled=False).wait_for()
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.textContent || document.activeElement.id"))
        if seen[-1] == "Launch the run":
            break
    assert seen[-1] == "Launch the run", seen
    assert "held-out" in seen


def test_the_servers_refusal_is_shown(open_page, world):
    path = add_dataset(world, "soon-gone.jsonl", lines(ROWS))
    page = open_page(f"/experiments/new?dataset={path}")
    environment(page, "CountingEnv").first.check()
    launch_button(page, disabled=False).wait_for()
    with world.client(key_of(world)) as client:
        assert client.delete("/v1/datasets", params={"path": path}).status_code == 200
    page.watch.allow("404")
    launch_button(page).click()
    page.get_by_role("alert").get_by_text("no dataset").wait_for()


def test_another_run_like_one_that_was_launched(open_page, world):
    """The same environment and rows, the settings it was given, and what is changed now."""
    args = {"environment": "arithmetic", "model": world.model, "max_steps": 3}
    with world.client(key_of(world)) as client:
        made = client.post("/v1/train/runs/launch", json={"type": "simple", "name": "the pattern", "args": args})
        run_id = made.json()["runId"]
        client.post(f"/v1/train/runs/{run_id}/cancel")
    page = open_page(f"/experiments/{run_id}")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Launch another like it").click()
    page.get_by_role("link", name="the pattern").wait_for()
    page.get_by_label("Group size", exact=True).fill("3")
    page.get_by_label("Name", exact=True).fill("its double")
    launch_button(page).click()
    page.get_by_role("heading", name="its double").wait_for()
    with world.database.read() as session:
        first, second = runs.get(session, run_id), runs.get(session, launched(page))
    assert second.blobs == first.blobs
    assert (second.args["max_steps"], second.args["group_size"]) == (3, 3)
    with world.client(key_of(world)) as client:
        client.post(f"/v1/train/runs/{second.id}/cancel")
