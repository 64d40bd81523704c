"""No page is wider than a phone."""

from __future__ import annotations

import pytest
from console_world import settle

PAGES = ("/experiments", "/experiments/new", "/datasets", "/environments", "/playground", "/settings", "/device")
TABS = ("train", "eval", "rollouts", "compare", "playground", "checkpoints", "config", "logs", "system")


@pytest.mark.parametrize("path", [*PAGES, *TABS])
def test_a_phone_shows_the_page_without_sideways_scrolling(open_page, world, path):
    page = open_page(path if path.startswith("/") else f"/experiments/{world.runs['recorded']}/{path}", width=390)
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
