"""A package that somebody else installed, from the console of a platform that has it: its environment, its trainer."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from benchmax.platform.daemon import liveness
from plugin_world import install, platform


@pytest.fixture(scope="module")
def world(console, tmp_path_factory):
    """The platform's address, and the link that signs in."""
    folder = tmp_path_factory.mktemp("plugin")
    with platform(install(folder / "venv"), folder, "--console", str(console)) as (data, printed):
        yield SimpleNamespace(url=liveness.server_url(data), link=re.search(r"/login\?token=\S+", printed)[0])


def test_an_environment_of_a_package_is_found_examined_and_trained(open_page, world):
    page = open_page(world.link, signed_in=False, to=world)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Environments").click()
    page.get_by_role("heading", name="From installed packages").wait_for()
    assert page.get_by_role("heading", name="BrokenEnv").count() == 0
    page.get_by_role("link", name=re.compile("AnagramEnv")).click()
    page.get_by_text("Find the word whose letters were shuffled.").first.wait_for()
    page.get_by_text("plug-in", exact=True).wait_for()
    page.get_by_role("link", name="New run", exact=True).click()
    page.get_by_role("radio", name=re.compile("AnagramEnv")).check()
    page.get_by_role("button", name=re.compile("^Advanced")).click()
    page.get_by_label("Trainer", exact=True).select_option("imitate")
    page.get_by_label("Model", exact=True).fill("words")
    page.get_by_role("button", name="Examine it").click()
    page.locator(".doctor-verdict").wait_for()
    page.get_by_role("button", name="Launch the run").click()
    page.wait_for_url(re.compile("/experiments/run_"))
    page.get_by_text("Done", exact=True).first.wait_for()
