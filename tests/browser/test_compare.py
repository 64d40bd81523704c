"""The Compare tab: start, follow, read the bars, open both transcripts."""

from __future__ import annotations

import re

import pytest
from rollout_data import QUESTIONS, handbook, other_model


@pytest.fixture(scope="module")
def run(world, tmp_path_factory):
    run_id = world.add_run(handbook(tmp_path_factory.mktemp("handbook") / "run"), name="handbook")
    other_model(world, run_id, "a weak model", quality=0.0)
    other_model(world, run_id, "a strong model", quality=1.0, seed=8)
    return run_id


def test_bars_say_which_is_better_in_words(open_page, run):
    page = open_page(f"/experiments/{run}/compare")
    page.get_by_role("button", name="a weak model").click()
    whole = page.locator(".cm-whole")
    whole.get_by_text("better", exact=True).wait_for()
    assert whole.locator(".cm-ours").count() == 1
    assert whole.locator(".cm-other").count() == 1
    assert re.search(r"[+−±][\d.]+ to [+−±][\d.]+", whole.inner_text())
    page.get_by_text(f"{len(QUESTIONS)} examples both played").wait_for()
    page.get_by_text("no clear difference").first.wait_for()


def test_several_comparisons_are_chips_and_links(open_page, run):
    page = open_page(f"/experiments/{run}/compare")
    chips = page.get_by_role("group", name="Comparisons")
    chips.get_by_role("button", name="a strong model").click()
    page.get_by_role("heading", name=re.compile("This run against a strong model")).wait_for()
    again = open_page(page.url.removeprefix(page.watch.origin))
    again.get_by_role("heading", name=re.compile("This run against a strong model")).wait_for()


def test_the_largest_loss_is_first_and_opens_both(open_page, run):
    page = open_page(f"/experiments/{run}/compare")
    page.get_by_role("button", name="a strong model").click()
    page.get_by_role("heading", name=re.compile("This run against a strong model")).wait_for()
    table = page.get_by_role("table", name="Examples")
    table.get_by_role("row").nth(len(QUESTIONS)).wait_for()
    gains = [
        float(text.replace("−", "-").replace("±", ""))
        for text in table.locator("[role=cell]:last-child").all_inner_texts()
    ]
    assert len(gains) == len(QUESTIONS)
    assert gains == sorted(gains)
    table.get_by_role("row").nth(1).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("This run", exact=True).wait_for()
    dialog.get_by_text("a strong model").wait_for()
    dialog.locator("mark").first.wait_for()
    answers = {gold for _, gold in QUESTIONS}
    assert dialog.locator(".ro-gold pre").inner_text() in answers
    colours = dialog.locator("mark").evaluate_all("(marks) => marks.map((mark) => getComputedStyle(mark).color)")
    assert len(set(colours)) == 1, "no side is marked as wrong"
    page.wait_for_url(re.compile("example="))
    page.keyboard.press("Escape")
    page.wait_for_url(re.compile("^(?!.*example=)"))


def test_a_comparison_is_started_and_followed(open_page, world, recorded):
    from benchmax.platform.store.runs import evals

    run_id = world.add_run(recorded, name="to compare")
    page = open_page(f"/experiments/{run_id}/compare")
    page.get_by_label("Model").select_option(label="Base model, before training")
    page.get_by_label("Samples per row").fill("2")
    page.get_by_role("button", name="Start").click()
    page.get_by_text("Waiting for a free slot").wait_for()
    with world.database.read() as session:
        [row] = evals.of_run(session, run_id)
        assert (row.model, row.options["samples"], row.name) == ("base", 2, "Base model")
    with world.database.write() as session:
        evals.set_progress(session, row.id, status="active", done=4, total=16)
    page.get_by_text("4 of 16").wait_for()
    assert page.get_by_role("progressbar").get_attribute("aria-valuenow") == "25"
    with world.database.write() as session:
        evals.set_progress(session, row.id, status="failed", reason="The model could not be loaded: no such folder.")
    page.get_by_text("The model could not be loaded").wait_for()


def test_checkpoints_and_endpoints_can_be_chosen(open_page, world, recorded):
    from benchmax.platform.store.tables import Endpoint

    run_id = world.add_run(recorded, name="choices")
    with world.database.write() as session:
        session.add(Endpoint(owner_id=world.user_id, name="my vLLM", base_url="http://127.0.0.1:9/v1", model="qwen"))
    page = open_page(f"/experiments/{run_id}/compare")
    for label in ("Checkpoints of this run", "Your endpoints"):
        page.locator(f"optgroup[label='{label}']").wait_for(state="attached")
    options = page.get_by_label("Model").locator("option").all_inner_texts()
    assert any(option.startswith("step-") for option in options)
    assert "my vLLM (qwen)" in options
    page.get_by_role("link", name="add an endpoint in Settings").click()  # both pages show the same answer
    page.get_by_role("row", name=re.compile("my vLLM")).wait_for()


def test_who_only_looks_cannot_start(open_page, world, run):
    with world.database.write() as session:
        from benchmax.platform.store.tables import Run

        session.get(Run, run).is_public = True
    page = open_page(f"/experiments/{run}/compare", signed_in=False)
    page.watch.allow("401")
    page.locator(".cm-whole").wait_for()
    assert page.get_by_role("button", name="New comparison").count() == 0
