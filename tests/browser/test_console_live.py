"""What changes while a page is open: points arrive, runs end, the server goes away and comes back."""

from __future__ import annotations

import socket
import time

import pytest
from console_world import ConsoleWorld

VALUES = {"reward/mean": 0.25, "pass@k": 0.5, "max@k": 0.5, "response_tokens/mean": 40.0}


def test_points_arrive_by_themselves(open_page, world):
    run = world.add_run(name="arrivals", status="active")
    page = open_page(f"/experiments/{run}")
    page.get_by_text("The first step is under way").wait_for()
    world.add_points(run, [(0, "train", time.time(), VALUES)], total=10)
    page.locator(".chart").first.wait_for()
    page.locator(".tile", has_text="Step").get_by_text("/ 10").wait_for()
    for step in range(1, 4):
        world.add_points(run, [(step, "train", time.time(), VALUES | {"reward/mean": 0.25 + step / 10})], total=10)
    page.locator(".tile", has_text="Reward").first.get_by_text("0.550").wait_for()


def test_what_comes_before_the_feed_is_open_is_shown_too(open_page, world, monkeypatch):
    monkeypatch.setitem(world.late, "stream", 1.5)
    run = world.add_run(name="slow feed", status="active")
    page = open_page(f"/experiments/{run}")
    page.get_by_text("The first step is under way").wait_for()
    world.add_points(run, [(0, "train", time.time(), VALUES)], total=10)
    page.locator(".chart").first.wait_for()


def test_the_list_follows_too(open_page, world):
    run = world.add_run(name="moves on", status="active")
    page = open_page("/experiments?q=moves")
    row = page.get_by_role("row", name="moves on")
    row.locator(".pill", has_text="Training").wait_for()
    from benchmax.platform.store.runs import runs

    with world.database.write() as session:
        runs.set_status(session, run, "failed", "The judge is down.")
    row.locator(".pill", has_text="Failed").wait_for()
    row.get_by_text("The judge is down.").wait_for()


@pytest.fixture
def port():
    """A port that nobody else gets while no server listens at it."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


def test_a_restarted_server_is_found_again(browser, console, tmp_path, open_page, port):
    """The page says so, waits, and goes on with what happened meanwhile; nobody loads it anew."""
    first = ConsoleWorld(tmp_path, console=console, port=port)
    with first:
        run = first.add_run(name="outlives", status="active")
        first.add_points(run, [(0, "train", time.time(), VALUES)], total=10)
        page = open_page(f"/experiments/{run}", to=first)
        page.watch.allow("ERR_", "Failed to load resource")
        page.locator(".chart").first.wait_for()
        page.evaluate("window.__same = true")
        runs = open_page("/experiments", to=first)
        runs.watch.allow("ERR_", "Failed to load resource")
        runs.locator(".run-link").wait_for()
    page.get_by_role("status").get_by_text("Reconnecting").wait_for()
    # The list asks only now and then, and says so at the first call that is not answered.
    runs.get_by_role("status").get_by_text("Reconnecting").wait_for()
    with ConsoleWorld(tmp_path, console=console, port=port) as second:
        second.add_points(run, [(1, "train", time.time(), VALUES | {"reward/mean": 0.75})], total=10)
        page.locator(".tile", has_text="Reward").first.get_by_text("0.750").wait_for()
        page.get_by_text("Reconnecting").wait_for(state="hidden")
        second.add_points(run, [(2, "train", time.time(), VALUES | {"reward/mean": 0.875})], total=10)
        page.locator(".tile", has_text="Reward").first.get_by_text("0.875").wait_for()
        assert page.evaluate("window.__same") is True
        runs.get_by_text("Reconnecting").wait_for(state="hidden")
        for each in (page, runs):
            each.goto("about:blank")
