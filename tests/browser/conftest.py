"""A real browser over a real server. Every page is watched: an error in its console, a broken content policy or a
request to another origin fails the test that opened it."""

from __future__ import annotations

import shutil

import pytest
from console_world import CHROMIUM, CHROMIUM_FLAGS, PATIENCE, ConsoleWorld, demo, script, train_toy

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
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
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
        self._heard = {
            "console": lambda message: message.type == "error" and self.note("console", message.text),
            "pageerror": lambda error: self.note("error", str(error)),
            "dialog": lambda dialog: (self.note("dialog", dialog.message), dialog.dismiss()),
            "request": lambda request: self._origin(request.url),
        }
        for event, hear in self._heard.items():
            page.on(event, hear)

    def leave(self, page) -> None:
        for event, hear in self._heard.items():
            page.remove_listener(event, hear)

    def _origin(self, url: str) -> None:
        if not url.startswith((self.origin, "blob:", "about:")):
            self.note("request to another origin", url)

    def note(self, kind: str, text: str) -> None:
        self.problems.append(f"{kind}: {text}")

    def check(self) -> None:
        left = [each for each in self.problems if not any(part in each for part in self.allowed)]
        assert not left, "\n".join(left)


class Tab:
    """A page with a context of its own, that test after test uses: a new one costs more than what most of them do.

    Nothing of the test before is left in it: no cookie, no stored value, no route, no permission.
    """

    def __init__(self, browser) -> None:
        self.context = browser.new_context(viewport=SIZE, reduced_motion="reduce")
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()

    def begin(self, world, path: str, signed_in: bool, theme: str, width: int):
        if signed_in:
            self.context.add_cookies([world.cookie()])
        self.page.set_viewport_size({**SIZE, "width": width})
        self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        self.page.watch = Watch(world.url)
        self.page.watch.follow(self.page)
        self.page.goto(f"{world.url}{path}")
        return self.page

    def end(self) -> Watch:
        """Make it as good as new; gives what was seen meanwhile."""
        self.page.watch.leave(self.page)
        self.page.unroute_all(behavior="ignoreErrors")
        self.context.unroute_all(behavior="ignoreErrors")
        if self.page.url.startswith("http"):
            self.page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        self.page.goto("about:blank")
        self.context.clear_cookies()
        self.context.clear_permissions()
        return self.page.watch


@pytest.fixture(scope="package")
def tabs(browser):
    """Tabs nobody uses."""
    return []


@pytest.fixture
def open_page(browser, world, tabs):
    """`open_page(path, signed_in=True, theme="light", width=1280)` gives a watched page; `page.watch.allow(…)`.

    Each has cookies and storage of its own, so that one knows of another only what its address says.
    """
    used: list[Tab] = []

    def make(path: str = "/", *, signed_in: bool = True, theme: str = "light", width: int = 1280, to=world):
        used.append(tabs.pop() if tabs else Tab(browser))
        return used[-1].begin(to, path, signed_in, theme, width)

    yield make
    watches = [tab.end() for tab in used]
    tabs.extend(used)
    for watch in watches:
        watch.check()
