"""Every code block in the documents runs, and prints what the page says it prints."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_blocks import PAGES, ROOT, Reader, blocks_of

from benchmax.testing import FakeModelServer
from forked_commands import ForkedCommands


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A model server that answers every question alike, for commands and blocks that name one."""
    ready: list[str] = []
    up = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with FakeModelServer("Paris") as fake:
            ready.append(fake.base_url)
            up.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    assert up.wait(60)
    yield ready[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(60)
    loop.close()


@pytest.fixture(scope="module")
def commands() -> Iterator[ForkedCommands]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with ForkedCommands(
        variables={**os.environ, "PATH": path, "COLUMNS": "200", "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    ) as forked:
        yield forked


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every connection that leaves this machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: tuple[str, int]) -> None:
        assert self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1"), f"a document connects to {address}"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.mark.timeout(600)  # some pages run dozens of commands
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_runs(
    page: Path,
    server: str,
    commands: ForkedCommands,
    offline: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    before = set(sys.modules)
    try:
        Reader(page, tmp_path, server, commands).follow()
    finally:
        for name in set(sys.modules) - before:
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def test_wrong_output_is_noticed(tmp_path: Path, commands: ForkedCommands) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    with pytest.raises(AssertionError, match="but this was printed:\n2"):
        Reader(page, tmp_path, "", commands).follow()


def test_unknown_marks_are_refused() -> None:
    with pytest.raises(AssertionError, match="no-run"):
        blocks_of("```python no-run\nx\n```\n")


def test_failing_command_is_noticed(tmp_path: Path, commands: ForkedCommands) -> None:
    page = tmp_path / "page.md"
    page.write_text("```bash\nbenchmax eval no-such-environment\n```\n")
    with pytest.raises(AssertionError, match="ended with 3, not 0"):
        Reader(page, tmp_path, "", commands).follow()


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "SECURITY.md", ROOT / "AGENTS.md", ROOT / "CHANGELOG.md"]:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text()):
            if target.startswith(("http://", "https://", "mailto:")):
                continue
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(there), f"{page.name} links to {target}#{anchor}"


def test_navigation_names_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name in navigation, f"{page.name} is not in mkdocs.yml"


def test_the_overview_leads_to_every_page() -> None:
    overview = (ROOT / "docs" / "index.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"]({page.name})" in overview, f"{page.name} is not in index.md"
