"""Every page of the console opens, light and dark: no serious or critical violation that axe-core knows, and none is
wider than a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from console_world import ConsoleWorld, demo, settled
from training_events import BEFORE, begins, helped
from working_world import furnish, stored_models

AXE = Path(__file__).resolve().parents[2] / "console" / "node_modules" / "axe-core" / "axe.min.js"
PHONE = 390
RUN_TABS = ("train", "eval", "rollouts", "compare", "playground", "checkpoints", "config", "logs", "system")
PAGES = {
    "runs": "/experiments",
    "new run": "/experiments/new",
    "new run, filled": "/experiments/new?environment=arithmetic&dataset=datasets%2Fsums.csv&arg.lora_rank=0&held=35",
    "datasets": "/datasets",
    "dataset": "/datasets/datasets/support-questions.jsonl",
    "dataset problems": "/datasets/datasets/support-questions.jsonl?tab=problems",
    "environments": "/environments",
    "environment": "/environments/arithmetic",
    "environment manifest": "/environments/arithmetic?tab=manifest",
    "environment doctor": "/environments/arithmetic?tab=doctor",
    "playground": "/playground",
    "keys": "/settings/keys",
    "endpoints": "/settings/endpoints",
    "secrets": "/settings/secrets",
    "webhooks": "/settings/webhooks",
    "account": "/settings/account",
    "users": "/settings/users",
    "audit": "/settings/audit",
    "device": "/device",
    "no such tab": "/settings/nothing",
    "a run that failed": "/experiments/{failed}",
    "a long run": "/experiments/{long}",
    "a live run": "/experiments/{active}",
    "a run before its first step": "/experiments/{begins}",
    "a run and what it learned": "/experiments/{helped}",
    "two runs": "/experiments/{recorded}/compare?vs={failed}",
    **{f"run {tab}": f"/experiments/{{recorded}}/{tab}" for tab in RUN_TABS},
}
DIALOGS = {
    "new key": ("/settings/keys", "New key"),
    "new endpoint": ("/settings/endpoints", "New endpoint"),
    "new webhook": ("/settings/webhooks", "New webhook"),
    "messages": ("/settings/webhooks", "Messages to https://hooks.example.org/services/training"),
    "new user": ("/settings/users", "New user"),
    "delete": ("/settings/keys", "Revoke the key laptop"),
    "help": ("/experiments", "Keyboard help"),
}


@pytest.fixture(scope="module")
def world(console, recorded, tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    with stored_models(folder / "store"), ConsoleWorld(folder, console=console) as server:
        server.runs = demo(server, recorded, steps=100)
        server.runs |= {"begins": begins(server, *BEFORE), "helped": server.add_run(helped(folder / "helped"))}
        furnish(server)
        yield server


def violations(page):
    """What axe finds serious, a line for each element: everything in the light, and the colours in the dark."""
    page.evaluate(AXE.read_text("utf-8"))
    light = found(page, "{resultTypes: ['violations']}")
    page.emulate_media(color_scheme="dark")
    page.locator(":root[data-theme=dark]").wait_for(state="attached")
    return light + found(page, "{resultTypes: ['violations'], runOnly: {type: 'rule', values: ['color-contrast']}}")


def found(page, options):
    found = page.evaluate(f"axe.run(document, {options})")["violations"]
    return [
        f"{each['impact']} {each['id']}: {node['target']} {node.get('failureSummary', '')[:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def nothing_sticks_out(page):
    """Charts are drawn anew a moment after the page has another width."""
    page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=PHONE)


@pytest.mark.parametrize("name", PAGES)
def test_no_serious_violation(open_page, world, name):
    page = open_page(PAGES[name].format(**world.runs))
    page.watch.allow("404")
    settled(page)
    assert page.locator("main").inner_text().strip()
    assert violations(page) == []
    page.set_viewport_size({"width": PHONE, "height": 860})
    nothing_sticks_out(page)


def test_signing_in(open_page):
    page = open_page("/experiments", signed_in=False)
    page.watch.allow("401")
    page.get_by_role("heading", name="Sign in").wait_for()
    assert violations(page) == []


@pytest.mark.parametrize("name", DIALOGS)
def test_dialogs(open_page, name):
    path, button = DIALOGS[name]
    page = open_page(path)
    page.get_by_role("button", name=button).first.click()
    page.get_by_role("dialog").wait_for()
    assert violations(page) == []


@pytest.mark.parametrize("path", ["/experiments", "/experiments/new?environment=arithmetic"])
def test_on_a_phone(open_page, path):
    page = open_page(path, width=PHONE)
    settled(page)
    assert violations(page) == []
    nothing_sticks_out(page)


def test_what_cannot_be_read_in_the_dark_alone_is_found(open_page):
    page = open_page("/settings/keys")
    settled(page)
    rule = ":root[data-theme=dark] h1 { color: #333; background: #222; }"
    page.evaluate("rule => document.styleSheets[0].insertRule(rule, document.styleSheets[0].cssRules.length)", rule)
    assert [line.split()[1] for line in violations(page)] == ["color-contrast:"]
