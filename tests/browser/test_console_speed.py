"""How fast it is: the numbers of the bar, on this machine, with the best of a few tries."""

from __future__ import annotations

import time

import pytest


def seconds_until(open_page, path, locator):
    page = open_page("/device")  # scripts are fetched and compiled as on a first visit, but the browser has begun
    started = time.perf_counter()
    page.goto(f"{page.watch.origin}{path}")
    page.locator(locator).first.wait_for()
    return time.perf_counter() - started


@pytest.mark.slow
def test_ten_thousand_steps_of_twenty_series_show_at_once(open_page, world):
    run = world.add_long_run(10_000, 20, name="very long")
    taken = [seconds_until(open_page, f"/experiments/{run}", ".u-over") for _ in range(3)]
    assert min(taken) < 1.5, taken


@pytest.mark.slow
def test_the_first_load_is_quick(open_page):
    taken = [seconds_until(open_page, "/experiments", ".run-link") for _ in range(3)]
    assert min(taken) < 1.0, taken


@pytest.mark.slow
def test_a_list_of_a_thousand_runs_scrolls_smoothly(open_page, world):
    for number in range(1000):
        world.add_run(name=f"many {number}")
    page = open_page("/experiments?q=many")
    page.locator(".run-link").first.wait_for()
    assert page.locator(".run-link").count() < 60
    frames = page.evaluate(
        """async () => {
          const box = document.querySelector('.table'), gaps = []
          let last = performance.now()
          for (let i = 0; i < 60; i++) {
            box.scrollTop += 400
            await new Promise(requestAnimationFrame)
            gaps.push(performance.now() - last); last = performance.now()
          }
          return gaps.sort((a, b) => b - a)
        }"""
    )
    assert frames[3] < 100, frames[:6]
