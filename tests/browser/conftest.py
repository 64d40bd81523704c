"""A real browser over a real server. Every page is watched: an error in its console, a broken content policy or a
request to another origin fails the test that opened it."""

from __future__ import annotations

import os
import shutil

import pytest
from console_world import PATIENCE, ConsoleWorld, demo, script, train_toy

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
SIZE = {"width": 1280, "height": 860}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test also builds the console and trains a model, and every step of a page may take its time."""
    for item in items:
        if "browser" in item.path.parts and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def console(tmp_path_factory):
    """A copy of the console, built from the sources as they are now."""
    build = script("build")
    if not build.is_current():
        try:
            build.build()
        except build.NotBuilt as error:
            pytest.skip(f"the console cannot be built here: {error}")
    # A copy: another build would take the files away under a page that is open.
    return shutil.copytree(build.TARGET, tmp_path_factory.mktemp("console") / "built")


@pytest.fixture(scope="package")
def browser(console):
    if not CHROMIUM:
        pytest.skip("there is no chromium; `make setup` as root installs it, or: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; `make setup` does")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A run directory written by the real trainer."""
    pytest.importorskip("torch")
    return train_toy(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def world(console, recorded, tmp_path_factory):
    """A server with a run of every kind: `world.runs["recorded"]`, failed, cancelled, long, active, pending."""
    with ConsoleWorld(tmp_path_factory.mktemp("world"), console=console) as server:
        server.runs = demo(server, recorded, steps=300)
        yield server


class Watch:
    """What a page did that no page of ours should."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.problems: list[str] = []
        self.allowed: tuple[str, ...] = ()

    def allow(self, *parts: str) -> None:
        """Expect problems that contain these words."""
        self.allowed += parts

    def follow(self, page) -> None:
        page.on("console", lambda message: message.type == "error" and self.note("console", message.text))
        page.on("pageerror", lambda error: self.note("error", str(error)))
        page.on("dialog", lambda dialog: (self.note("dialog", dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self._origin(request.url))

    def _origin(self, url: str) -> None:
        if not url.startswith((self.origin, "blob:", "about:")):
            self.note("request to another origin", url)

    def note(self, kind: str, text: str) -> None:
        self.problems.append(f"{kind}: {text}")

    def check(self) -> None:
        left = [each for each in self.problems if not any(part in each for part in self.allowed)]
        assert not left, "\n".join(left)


@pytest.fixture
def open_page(browser, world):
    """`open_page(path, signed_in=True, theme="light", width=1280)` gives a watched page; `page.watch.allow(…)`."""
    contexts, watches = [], []

    def make(path: str = "/", *, signed_in: bool = True, theme: str = "light", width: int = 1280, to=world):
        context = browser.new_context(viewport={**SIZE, "width": width}, color_scheme=theme, reduced_motion="reduce")
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        if signed_in:
            context.add_cookies([to.cookie()])
        page = context.new_page()
        page.watch = Watch(to.url)
        page.watch.follow(page)
        watches.append(page.watch)
        page.goto(f"{to.url}{path}")
        return page

    yield make
    for context in contexts:
        context.close()
    for watch in watches:
        watch.check()
