"""A run saved as a folder: it opens from the disk, with charts, rollouts and comparisons, and asks nobody."""

from __future__ import annotations

import re

import pytest
from console_world import PATIENCE
from rollout_data import other_model
from training_events import helped

from benchmax.errors import UsageError


@pytest.fixture(scope="module")
def saved(world, console, tmp_path_factory):
    from benchmax.platform.client import TrainerClient
    from benchmax.platform.sdk.static_export import export_static

    run_id = world.add_run(helped(tmp_path_factory.mktemp("handbook") / "run"), name="handbook <b>saved</b>")
    other_model(world, run_id, "a weak model", quality=0.0)
    _, key = world.user("ada@example.org")
    with TrainerClient(api_key=key, base_url=world.url) as client:
        done = export_static(
            client, run_id, tmp_path_factory.mktemp("saved") / "run", most=120, console=console / "saved"
        )
        with pytest.raises(UsageError, match="not empty"):
            export_static(client, run_id, done.folder, console=console / "saved")
    assert (done.rollouts, done.total) == (120, 192 + 48 + 6)
    return done.folder


@pytest.fixture
def page(browser, saved):
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    context.set_default_timeout(PATIENCE)
    opened = context.new_page()
    problems = []
    opened.on("console", lambda message: message.type == "error" and problems.append(message.text))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda request: request.url.startswith("file:") or problems.append(request.url))
    opened.goto(f"file://{saved}/index.html")
    yield opened
    context.close()
    assert not problems


def tab(page, name: str) -> None:
    page.get_by_role("navigation", name="Parts of the run").get_by_role("link", name=name, exact=True).click()


def test_charts_are_there(page):
    page.get_by_role("heading", name="handbook <b>saved</b>").wait_for()
    page.locator("canvas").first.wait_for()
    page.get_by_text(re.compile(r"120 of 246 rollouts are in it")).wait_for()


def test_what_was_learned_and_what_came_before_are_there(page):
    page.get_by_role("heading", name="What was learned").wait_for()
    page.get_by_role("button", name=re.compile("^Before training")).click()
    page.get_by_text("64 solutions that earn").wait_for()
    page.get_by_role("button", name=re.compile("^Step 5, went back")).wait_for()
    page.locator(".tile", has_text="Cut off").get_by_text("0%").wait_for()
    page.locator(".pair-head").first.click()
    page.get_by_role("link", name="Every answer to this question").click()
    page.locator(".ro-sample").first.wait_for()


def test_rollouts_can_be_found_and_read(page):
    tab(page, "Rollouts")
    page.locator(".ro-sample").first.click()
    page.locator("[data-transcript]").get_by_text("You answer questions").wait_for()
    page.keyboard.press("j")
    page.get_by_role("heading", name="Step 12, sample #1").wait_for()
    page.get_by_role("searchbox").fill("oslo")
    page.get_by_text(re.compile(r"\d+ rollouts? found")).wait_for()
    page.get_by_role("button", name="Heat map").click()
    page.locator(".ro-cell-heat").first.wait_for()
    page.reload()
    page.locator(".ro-cell-heat").first.wait_for()


def test_comparisons_and_settings_are_there(page):
    tab(page, "Compare")
    page.locator(".cm-whole").get_by_text("better", exact=True).wait_for()
    assert page.get_by_role("button", name="New comparison").count() == 0
    tab(page, "Config")
    page.get_by_text("Learning rate").or_(page.get_by_text("lr")).first.wait_for()
