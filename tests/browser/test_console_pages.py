"""Signing in, and where addresses lead."""

from __future__ import annotations

import re

import pytest
from console_world import EMAIL, PASSWORD


def test_a_link_signs_in_once(open_page, world):
    link = world.link().removeprefix(world.url)
    page = open_page(link, signed_in=False)
    page.watch.allow("401")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("heading", name="Runs").wait_for()
    assert "token" not in page.url
    again = open_page(link, signed_in=False)
    again.watch.allow("401")
    again.get_by_role("button", name="Sign in", exact=True).click()
    again.get_by_role("alert").get_by_text("used or is too old").wait_for()


@pytest.mark.parametrize(
    ("asked", "opened"), [("RUN", "RUN"), ("//example.org/x", "/experiments"), ("x", "/experiments")]
)
def test_a_link_leads_to_a_page_of_the_console_and_nowhere_else(open_page, world, asked, opened):
    run = f"/experiments/{world.runs['recorded']}"
    link = world.link().removeprefix(world.url)
    page = open_page(f"{link}&next={asked.replace('RUN', run)}", signed_in=False)
    page.watch.allow("401")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url(world.url + opened.replace("RUN", run))


def test_a_wrong_password_says_so_and_the_right_one_opens_what_was_asked_for(open_page, world):
    page = open_page(f"/experiments/{world.runs['recorded']}/config", signed_in=False)
    page.watch.allow("401")
    page.get_by_label("E-mail").fill(EMAIL)
    page.get_by_label("Password").fill("wrong horse")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("alert").wait_for()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("heading", name=re.compile("digits")).wait_for()
    assert page.url.endswith("/config")


def test_short_addresses_show_a_page(open_page, world):
    page = open_page("/")
    page.locator(".run-link").first.wait_for()
    page.goto(f"{world.url}/train")
    page.locator(".run-link").first.wait_for()
    page.goto(f"{world.url}/settings")
    page.get_by_role("button", name="New key").wait_for()


def test_a_tab_that_is_open_is_marked(open_page, world):
    page = open_page(f"/experiments/{world.runs['recorded']}/config")
    page.get_by_role("navigation", name="Parts of the run").locator("[aria-current=page]", has_text="Config").wait_for()


def test_a_run_that_is_not_there_leads_to_those_that_are(open_page, world):
    page = open_page("/experiments/run_nosuch")
    page.watch.allow("404")
    page.get_by_role("button", name="Try again").wait_for()
    page.get_by_role("link", name="Go to the runs").click()
    page.locator(".run-link").first.wait_for()
    assert page.url == f"{world.url}/experiments"


def test_the_learning_rate_is_that_of_the_last_step_with_an_update(open_page, world):
    """A step whose samples all earn the same has no update, and no rate."""
    run = world.add_run(name="ends without an update", args={"learning_rate": None})
    rates = ({"lr": 5e-4}, {"lr": 2.5e-4}, {})
    world.add_points(
        run, [(step, "train", 1e9 + step, {"reward/mean": 1.0, **rate}) for step, rate in enumerate(rates)]
    )
    page = open_page(f"/experiments/{run}/config")
    page.locator("dt", has_text="lr in step 2, the last with an update").wait_for()
    asked = page.locator("dt[title=learning_rate]").locator("xpath=following-sibling::dd[1]")
    assert "0.00025 in step 2, the last with an update" in asked.inner_text()
    words = (
        "mark => { const words = new Range(); words.selectNodeContents(mark); return words.getClientRects().length }"
    )
    assert asked.get_by_text("default", exact=True).evaluate(words) == 1, "its mark is in one line, beside a long note"
