"""The server serves the console at the addresses its router has, and at no other."""

from __future__ import annotations

import re
from pathlib import Path

from benchmax.platform.server.security.scopes import PAGES

ROUTER = Path(__file__).resolve().parents[2] / "console" / "src" / "router.tsx"


def test_server_and_router_know_the_same_pages():
    known = {address.split("/")[1] for address in re.findall(r'page\("(/[^"]*)"', ROUTER.read_text("utf-8"))}
    assert known - {"", "login"} == set(PAGES)
