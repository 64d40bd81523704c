"""Text of others in every field there is: nothing runs, nothing leaves the page, and what was written is shown.

Every page is watched (`conftest.Watch`): an error in its console, a broken content policy, a dialog or a request to
another origin fails the test.
"""

from __future__ import annotations

import csv
import io
import json
from urllib.parse import quote

import pytest
from console_world import settled
from hostile_text import PAYLOADS, plain
from rollout_data import record, write_run
from training_events import PLAN, WARM_START, signal

FORBIDDEN = (
    "script, iframe, object, embed, form, base, meta, link, img, video, audio, style, svg:not(.icon):not(.fold-mark)"
)
LOOK = """(forbidden) => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const inside = all('[data-transcript]').flatMap((node) => all('*', node));
  const isHandler = (each) => /^on/i.test(each.name);
  const isForeign = (address) => !address.startsWith(location.origin);
  return {
    pwned: window.__pwned ?? null,
    polluted: {}.polluted ?? null,
    bad: inside.filter((node) => node.matches(forbidden)).map((node) => node.outerHTML.slice(0, 80)),
    handlers: all('*').filter((node) => [...node.attributes].some(isHandler)).length,
    links: all('a[href]').map((node) => node.href).filter(isForeign),
    sources: all('[src]').map((node) => node.src).filter(isForeign),
  };
}"""


def hostile_record(step: int, payload: str, index: int) -> dict:
    """A rollout with the payload in each of its texts."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": payload, "arguments": json.dumps({payload: payload})},
    }
    raw = {"id": "call_2", "type": "function", "function": {"name": "plain", "arguments": payload}}
    messages = [
        {"role": "system", "content": payload},
        {"role": "user", "content": payload},
        {"role": "assistant", "content": f"S{payload}E", "reasoning_content": payload, "tool_calls": [call, raw]},
        {"role": "tool", "tool_call_id": "call_1", "name": payload, "content": payload},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": payload}, {"type": payload}]},
        {
            "role": payload,
            "name": payload,
            "content": [{"type": "image_url", "image_url": {"url": "https://evil.test/x.png"}}],
        },
        {"role": "assistant", "content": payload},
    ]
    return record(step, index, 0) | {
        "id": f"hostile-{index}", "messages": messages, "task": {payload: payload, "ground_truth": payload},
        "rewards": {payload: 0.5, "fine": 1.0}, "unscored": {f"{payload}?": payload}, "reward": None, "ok": False,
        "termination": payload if index % 2 else "reward_error", "discarded": payload,
        "error": {"type": payload, "message": payload, "where": payload},
        "tool_events": [{"turn": 1, "name": name, "ok": False, "seconds": 0.1} for name in (payload, "plain")],
        "logs": [{"level": payload, "message": payload, "seconds": 0.1}], "seconds": {payload: 0.1, "total": 1.0},
    }  # fmt: skip


def hostile_metrics(folder) -> None:
    values = {f"reward_stats/{payload}/reward/mean": 0.5 for payload in PAYLOADS} | dict.fromkeys(PAYLOADS, 1.0)
    values["reward/mean"] = 0.5
    lines = [
        {"step": step, "split": split, "time": 1e9 + step, "values": values}
        for step in (0, 1)
        for split in ("train", "eval")
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    events = [
        {"time": 1e9, "kind": ("alert", "note", "failed")[i % 3], "message": payload, "check": payload}
        for i, payload in enumerate(PAYLOADS)
    ]
    events += [{"time": 1e9, **event} for event in hostile_training()]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "logs").mkdir()
    (folder / "logs" / "train.log").write_text("\n".join(PAYLOADS), "utf-8", errors="replace")
    (folder / "config.json").write_text(json.dumps({"model": {payload: payload for payload in PAYLOADS}}))


def hostile_training() -> list[dict]:
    """What the trainer says, with a payload for each of its words."""
    answer = [{"text": payload, "reward": 0.5, "cut_off": True} for payload in PAYLOADS]
    pairs = [
        {"example_id": payload, "question": f"{payload}\n{payload}", "before": said, "after": said}
        for payload, said in zip(PAYLOADS, answer, strict=True)
    ]
    chosen = [{"name": payload, "value": payload, "why": payload} for payload in PAYLOADS]
    return [
        signal(lazy=dict.fromkeys(PAYLOADS, 0.5), forecast=PAYLOADS[3], advice=PAYLOADS[4]),
        WARM_START | {"how": PAYLOADS[5], "why": PAYLOADS[6], "sources": dict.fromkeys(PAYLOADS, 1)},
        PLAN | {"model": PAYLOADS[7], "device": PAYLOADS[8], "cut_off": PAYLOADS[9], "chosen": chosen},
        *({"kind": "taught", "step": at % 2, "message": payload} for at, payload in enumerate(PAYLOADS)),
        {"kind": "summary", "before": PAYLOADS[10], "best": 1.0, "best_step": {}, "pairs": pairs},
    ]


@pytest.fixture(scope="module")
def hostile(world, tmp_path_factory):
    """A run whose every text is a payload, and runs, evals, endpoints and files named by them."""
    from benchmax.platform.store.clean_text import clean
    from benchmax.platform.store.runs import evals, runs
    from benchmax.platform.store.tables import Endpoint
    from platform_world import make_run

    folder = write_run(
        tmp_path_factory.mktemp("hostile") / "run", [hostile_record(i % 3, text, i) for i, text in enumerate(PAYLOADS)]
    )
    hostile_metrics(folder)
    run_id = world.add_run(
        folder,
        name=PAYLOADS[0],
        reason=PAYLOADS[12],
        status="failed",
        tags=[PAYLOADS[1], PAYLOADS[13]],
        args={"model": PAYLOADS[2]},
    )
    with world.database.write() as session:
        for index, payload in enumerate(PAYLOADS):
            text = clean(payload)
            made = make_run(session, "ada@example.org", name=text[:300], args={"model": text, "note": text})
            made.tags, made.notes = [text[:60]], text
            runs.set_status(session, made.id, ("failed", "active")[index % 2], text)
            runs.set_progress(session, made.id, step=1, total=2, activity=text)
            if index < 20:
                row = evals.create(session, run_id, model="base", name=text[:200], total=1)
                evals.set_progress(session, row.id, status="failed", reason=text)
                session.add(
                    Endpoint(owner_id=world.user_id, name=text[:80], base_url="http://127.0.0.1:9/v1", model=text[:80])
                )
    return run_id


def look(page) -> None:
    """Nothing ran, and nothing in the page could."""
    found = page.evaluate(LOOK, FORBIDDEN)
    assert found == {"pwned": None, "polluted": None, "bad": [], "handlers": 0, "links": [], "sources": []}


def test_there_are_at_least_eighty():
    assert len(set(PAYLOADS)) >= 80


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_rollouts_show_it_and_nothing_happens(open_page, hostile, every):
    page = open_page(f"/experiments/{hostile}/rollouts")
    page.locator(".ro-sample").first.wait_for()
    for index in range(0, len(PAYLOADS), every):
        address = f"/experiments/{hostile}/rollouts?mode=train&rollout=hostile-{index}"
        page.evaluate(
            "(to) => { history.pushState({}, '', to); dispatchEvent(new PopStateEvent('popstate')); }", address
        )
        talk = page.locator("[data-transcript]")
        page.wait_for_function(
            "(id) => document.querySelector('.ro-open')?.id === id && document.querySelector('[data-transcript] > *')",
            arg=f"ro-hostile-{index}",
        )
        wanted = plain("S" + PAYLOADS[index])[:60]
        talk.get_by_text(wanted).first.wait_for()
        look(page)
    page.get_by_role("button", name="Raw").click()
    page.locator(".ro-raw").wait_for()
    look(page)
    page.get_by_role("button", name="Logs").click()
    page.locator(".ro-logs").wait_for()
    look(page)


def test_marks_stand_for_what_cannot_be_seen(open_page, hostile):
    index = next(i for i, text in enumerate(PAYLOADS) if text.startswith("user\u202e"))
    page = open_page(f"/experiments/{hostile}/rollouts?rollout=hostile-{index}")
    talk = page.locator("[data-transcript]")
    talk.locator(".hidden-mark", has_text="RLO").first.wait_for()
    assert "\u202e" not in talk.inner_text()


def test_other_views_of_rollouts(open_page, world, hostile):
    page = open_page("/device")
    for search in (
        "view=map",
        "order=worst",
        "q=script",
        "rollout=hostile-3&with=hostile-4",
        "rollout=hostile-5&part=tokens",
    ):
        page.goto(f"{world.url}/experiments/{hostile}/rollouts?{search}")
        page.locator(".ro-sample, .ro-cell-heat, .ro-pair").first.wait_for()
        settled(page)
        look(page)


def test_every_tab_of_a_hostile_run(open_page, world, hostile):
    page = open_page("/device")
    for tab in ("train", "eval", "compare", "playground", "checkpoints", "config", "logs", "system"):
        page.goto(f"{world.url}/experiments/{hostile}/{tab}")
        page.get_by_role("heading", level=1).get_by_text(plain(PAYLOADS[0])[:20]).first.wait_for()
        settled(page)
        look(page)


def test_what_the_trainer_says_of_a_hostile_run(open_page, hostile):
    page = open_page(f"/experiments/{hostile}")
    for name in ("Before training", "During training"):
        page.get_by_role("button", name=name).click()
    page.locator(".measure").get_by_text(plain(PAYLOADS[-1])[:20]).first.wait_for()
    for head in page.locator(".pair-head").all()[1::9]:
        head.click()
    page.locator(".on-the-way li").nth(len(PAYLOADS) - 1).wait_for()
    page.locator(".chart-mark button").last.focus()
    page.get_by_role("tooltip").wait_for()
    look(page)


def test_every_list(open_page, world, hostile):
    page = open_page("/device")
    for path in ("experiments", "datasets", "environments", "settings/keys", "settings/endpoints", "experiments/new"):
        page.goto(f"{world.url}/{path}")
        settled(page)
        look(page)


def test_hostile_rows_of_a_dataset(open_page, world, hostile):
    rows = "".join(
        json.dumps({"prompt": text.replace("\x00", ""), "answer": text.replace("\x00", "")}, ensure_ascii=True) + "\n"
        for text in PAYLOADS
        if "\ud83d" not in text
    )
    page = open_page("/datasets")
    page.locator("h1").wait_for()
    name = "<img src=x onerror=alert(1)>.jsonl"
    status = page.evaluate(
        "async ([name, body]) => (await fetch(`/v1/datasets?name=${name}`, {method: 'POST', body})).status",
        [quote(name), rows],
    )
    if status >= 400:  # such a name is refused, in words
        page.watch.allow("400", "422")
        status = page.evaluate(
            "async (rows) => (await fetch('/v1/datasets?name=rows.jsonl', {method: 'POST', body: rows})).status", rows
        )
    assert status < 300
    page.reload()
    page.locator("main").get_by_text("jsonl").first.click()
    settled(page)
    look(page)


SEARCHES = ("rollout", "mode", "step", "tool", "q", "eval", "part", "order", "view", "with", "example")


def test_hostile_addresses(open_page, hostile):
    """Each part of an address alone, and all of them at once."""
    page = open_page("/experiments")
    page.watch.allow("404", "422", "400")
    payloads = [
        quote(text, safe="")
        for text in (
            "<img src=x onerror=window.__pwned=1>",
            "javascript:window.__pwned=1",
            "'\"><script>window.__pwned=1</script>",
        )
    ]
    addresses = [f"{name}={payloads[index % 3]}" for index, name in enumerate(SEARCHES)]
    addresses += ["&".join(f"{name}={payload}" for name in SEARCHES) for payload in payloads]
    for address in addresses:
        page.goto(f"{page.watch.origin}/experiments/{hostile}/rollouts?{address}")
        page.locator("h1").wait_for()
        look(page)


# The browser's own borders


def test_another_site_can_change_nothing(open_page, world, recorded):
    """S6: a page of another origin, in a browser that is signed in."""
    run_id = world.add_run(recorded, name="mine")
    page = open_page("/experiments")
    page.watch.allow("evil.test", "Failed to load", "CORS", "access-control")
    page.context.route(
        "http://evil.test/**", lambda route: route.fulfill(body="<h1>evil</h1>", content_type="text/html")
    )
    page.goto("http://evil.test/")
    tried = page.evaluate(
        """async (base) => {
          const calls = [[`${base}/cancel`, 'POST', 'no-cors'], [base, 'DELETE'], [base, 'PATCH'], [base, 'GET']];
          const answers = [];
          for (const [url, method, mode = 'cors'] of calls) {
            const body = method === 'POST' || method === 'PATCH' ? '{"name":"taken"}' : undefined;
            const call = fetch(url, {method, mode, credentials: 'include', body});
            answers.push(await call.then((answer) => answer.type, () => 'refused'));
          }
          return answers;
        }""",
        f"{world.url}/v1/train/runs/{run_id}",
    )
    assert tried[1:] == ["refused"] * 3, "no answer may be read, no method but a simple one may be sent"
    from benchmax.platform.store.runs import runs

    with world.database.read() as session:
        row = runs.visible(session, run_id, world.user_id)
        assert (row.name, row.status) == ("mine", "complete")


def test_another_name_for_this_address_is_refused(browser, world):
    """S7: a name that resolves to loopback."""
    from console_world import CHROMIUM

    opened = browser.browser_type.launch(
        executable_path=CHROMIUM,
        args=["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP evil.test 127.0.0.1"],
    )
    try:
        page = opened.new_page()
        for path in ("/", "/v1/train/runs", "/assets/x.js"):
            assert page.goto(f"http://evil.test:{world.port}{path}").status == 421
    finally:
        opened.close()


def test_headers_hold_in_the_browser(open_page, world):
    """S8: inline script does not run, cookies are out of reach, nobody may frame the page."""
    page = open_page(world.link().removeprefix(world.url), signed_in=False)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("heading", name="Runs").wait_for()
    page.watch.allow("Content Security Policy", "TrustedScript", "TrustedHTML")
    page.locator("h1").wait_for()
    ran = page.evaluate(
        """() => {
          const attempts = [
            () => {
              const script = document.createElement('script');
              script.textContent = 'window.__pwned = 1';
              document.body.append(script);
            },
            () => {
              const image = document.createElement('img');
              image.setAttribute('onerror', 'window.__pwned = 1');
              image.src = '/assets/none.png';
              document.body.append(image);
            },
            () => { document.body.insertAdjacentHTML('beforeend', '<svg onload="window.__pwned = 1">'); },
          ];
          for (const attempt of attempts) { try { attempt(); } catch { /* refused outright */ } }
          return [window.__pwned ?? null, document.cookie];
        }"""
    )
    assert ran == [None, ""]
    page.watch.allow("404", "401")
    response = page.request.get(f"{world.url}/experiments")
    policy = response.headers["content-security-policy"]
    for part in (
        "default-src 'self'",
        "script-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ):
        assert part in policy
    assert "access-control-allow-origin" not in response.headers
    assert response.headers["x-content-type-options"] == "nosniff"


def test_downloads_are_saved_never_shown(open_page, world, hostile):
    """S15 and S17: an export comes as a file, and no cell of it is a formula."""
    page = open_page("/experiments")
    page.locator("h1").wait_for()
    with page.expect_download() as waiting:
        page.evaluate("() => { location.href = '/v1/train/runs.csv'; }")
    text = waiting.value.path().read_text("utf-8")
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert any(cell.startswith("'=HYPERLINK") for cell in cells)
    assert not [cell for cell in cells if cell.startswith(("=", "@", "\t", "+", "-")) and not cell[1:2].isdigit()]


OUTSIDE = (
    "/assets/../../../etc/passwd",
    "/assets/%2e%2e/%2e%2e/etc/passwd",
    "/assets/..%2f..%2fetc%2fpasswd",
    "/assets/%252e%252e/stamp.txt",
    "/assets/..\\..\\stamp.txt",
    "/assets//etc/passwd",
    "/assets/%00",
    "/assets/../stamp.txt",
)


def test_files_outside_are_not_served(open_page, world):
    """S23."""
    page = open_page("/experiments")
    for path in OUTSIDE:
        answer = page.request.get(f"{world.url}{path}")
        assert answer.status in (404, 401) or '<div id="root">' in answer.text(), path
        assert "root:" not in answer.text(), path
