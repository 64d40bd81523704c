"""Chats with a model that trains: streamed, stopped, side by side, scored, saved; and what a model says stays text."""

from __future__ import annotations

import json
import re

import pytest
from console_world import EMAIL, until
from working_world import ROWS, CountingEnv, add_dataset, add_never_ending, key_of, lines, train, working

from benchmax.platform.store.queue import live_sessions
from benchmax.platform.store.runs import runs
from runner_world import wait_until
from session_world import store_run

HOSTILE = "<img src=x onerror=alert(1)> [x](javascript:alert(2)) \u202e\u0000 </script><script>alert(3)</script>"


@pytest.fixture(scope="module")
def world(console, tmp_path_factory):
    with working(tmp_path_factory.mktemp("playground"), console=console) as server:
        server.run_id = train(server)
        yield server


def ready(page, count=1):
    """Until every checkpoint is loaded, each by a process of its own."""
    page.locator(".talk-head").get_by_text("ready").nth(count - 1).wait_for(timeout=180_000)


def say(page, text):
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")


def answers(page):
    return page.locator(".bubble-assistant .bubble-text")


def latest_step(world):
    with world.database.read() as session:
        step = runs.get(session, world.run_id).latest_step
    return -1 if step is None else step


def test_a_chat_in_the_environment_while_the_run_trains(open_page, world):
    page = open_page(f"/experiments/{world.run_id}/playground?tokens=12&seed=1")
    ready(page)
    page.locator(".room-system").get_by_text("Say the number.").wait_for()
    before = latest_step(world)
    say(page, "Count to 7.")
    page.locator(".turn-foot").get_by_text(re.compile(r"\d+ tokens? in ")).wait_for()
    say(page, "And again?")
    page.locator(".turn-foot").nth(1).wait_for()
    assert (page.locator(".bubble-user").count(), answers(page).count()) == (2, 2)
    wait_until(lambda: latest_step(world) > before, 60)


def has_examples(world):
    with world.client(key_of(world)) as client:
        params = {"mode": "eval", "limit": 100}
        return client.get(f"/v1/train/runs/{world.run_id}/rollouts/summary", params=params).json()["data"]


@pytest.fixture(scope="module")
def trained(world):
    """The run, stopped: it leaves the machine to those that are talked to."""
    wait_until(lambda: has_examples(world), 120)
    with world.client(key_of(world)) as client:
        client.post(f"/v1/train/runs/{world.run_id}/cancel").raise_for_status()

    def ended():
        with world.database.read() as session:
            return runs.get(session, world.run_id).ended

    wait_until(ended, 120)
    return world.run_id


def test_it_is_streamed_and_can_be_stopped(open_page, world, trained):
    add_never_ending("never-ending")
    run_id = store_run(world, world.user_id, CountingEnv, ROWS[:30], email=EMAIL, model="never-ending")
    page = open_page(f"/playground/{run_id}?tokens=100000&temperature=1")
    ready(page)
    say(page, "Go on and on.")
    page.locator(".bubble-drawing").wait_for()
    # A bare expression would be evaluated anew at every look, which the page's policy forbids; a function is not.
    page.wait_for_function("() => document.querySelector('.bubble-drawing')?.textContent.length > 4")
    page.get_by_role("button", name="Stop", exact=True).last.click()
    page.get_by_text("Stopped. The model forgets this turn.").wait_for()
    page.get_by_label("Max tokens").fill("4")
    say(page, "Short now.")
    page.locator(".turn-foot").wait_for()


def test_two_checkpoints_hear_the_same(open_page, trained):
    page = open_page(f"/experiments/{trained}/playground?tokens=8")
    ready(page)
    page.get_by_role("button", name="Compare with another").click()
    ready(page, 2)
    page.wait_for_url(re.compile("with=base"))
    say(page, "Hello, both.")
    page.locator(".turn-foot").nth(1).wait_for()
    sides = page.locator(".talk")
    assert sides.count() == 2
    for index in range(2):
        assert sides.nth(index).locator(".bubble-user").inner_text().endswith("Hello, both.")
        assert sides.nth(index).locator(".bubble-assistant").count() == 1


def test_an_example_is_asked_otherwise_and_then_played_and_scored(open_page, world, trained):
    page = open_page(f"/playground/{trained}?tokens=6")
    task, asked = page.get_by_label("Task"), page.locator(".bubble-user .bubble-text")
    until(page, lambda: task.input_value() in {each["promptMessageId"] for each in has_examples(world)}, True)
    ready(page)
    asked.get_by_text(re.compile("Count to")).wait_for()
    say(page, "Name a number.")
    page.locator(".turn-foot").wait_for()
    assert asked.all_inner_texts() == ["Name a number."], "it stands in the example's place"
    assert page.locator(".turn-rewards").count() == 0, "nobody knows what it should earn"
    page.get_by_role("button", name="New conversation").click()
    page.locator(".turn-foot").wait_for(state="detached")
    ready(page)
    assert answers(page).count() == 0
    asked.get_by_text(re.compile("Count to")).wait_for()
    page.get_by_role("button", name="Play the example").click()
    page.locator(".turn-rewards").get_by_text(re.compile("reward")).wait_for()
    assert "said" in page.locator(".turn-rewards").inner_text()
    say(page, "Name another number.")
    page.locator(".turn-foot").nth(1).get_by_text(re.compile(r"\d+ tokens? in ")).wait_for()
    assert page.locator(".turn-foot").nth(1).locator(".turn-rewards").count() == 0, "it answers another question"
    assert page.locator(".turn-rewards").count() == 1, "the example's answer keeps its own"
    assert page.get_by_text("worked examples").count() == 0, "its prompts begin with none"


def test_a_turn_begins_a_dataset_and_becomes_a_row_of_another(open_page, world, trained):
    path = add_dataset(world, "kept.jsonl", lines(ROWS))
    page = open_page(f"/playground/{trained}?tokens=6")
    ready(page)
    say(page, "Count to 98.\u202e")
    save, dataset = page.get_by_role("button", name="Save as a row"), page.get_by_label("Dataset", exact=True)
    row, add = page.get_by_label("Row", exact=True), page.get_by_role("button", name="Add the row")
    save.click()
    assert dataset.input_value() == "", "a new one, when none was chosen before"
    until(page, lambda: "Count to 98.\\u202e" in row.input_value(), True)
    page.get_by_label("Name", exact=True).fill("begun here")
    add.click()
    page.get_by_text("begun-here.jsonl now has 1 row").wait_for()
    page.get_by_role("button", name="Close").last.click()
    save.click()
    until(page, dataset.input_value, "datasets/begun-here.jsonl")  # the next goes there
    add.click()
    page.get_by_text("now has 2 rows").wait_for()
    page.get_by_role("button", name="Close").last.click()
    save.click()
    dataset.select_option(path)
    until(page, lambda: list(json.loads(row.input_value())), ["prompt", "ground_truth"])
    row.fill("[1]")
    page.get_by_text("This is not a JSON object.").wait_for()
    row.fill(json.dumps({"prompt": "Count to 99.", "ground_truth": "99"}))
    add.click()
    page.get_by_text("now has 41 rows").wait_for()
    with world.client(key_of(world)) as client:
        seen = client.get("/v1/datasets/preview", params={"path": path, "limit": 100}).json()
    assert seen["sample"][-1] == {"prompt": "Count to 99.", "ground_truth": "99"}


def with_a_worked_example(route):
    """What the session says, of an environment whose prompts begin with an example."""
    info = route.fetch().json()
    shown = [{"role": "user", "content": "Count to 1."}, {"role": "assistant", "content": "1"}]
    route.fulfill(json=info | {"promptMessages": [*shown, *info["promptMessages"]]})


def test_an_answer_that_was_shown_is_not_the_models_and_leaving_the_page_ends_the_session(open_page, world, trained):
    page = open_page(f"/experiments/{trained}/config")
    page.route(re.compile(r"/playground/sessions/[^/]+$"), with_a_worked_example)
    with page.expect_response("**/v1/playground/sessions") as made:
        page.get_by_role("navigation", name="Parts of the run").get_by_role("link", name="Playground").click()
    opened = live_sessions.find(world.data, made.value.json()["id"], world.user_id)
    ready(page)
    assert opened.status == "ready"
    assert "part of the prompt" in page.locator(".bubble-assistant").first.inner_text()
    page.get_by_text("What you ask instead comes after the same worked examples.").wait_for()
    say(page, "Count to 5.")
    page.locator(".turn-foot").wait_for()
    assert page.get_by_text("part of the prompt").count() == 1
    page.unroute_all(behavior="ignoreErrors")
    page.get_by_role("link", name="Logs").click()
    wait_until(lambda: opened.status == "ended", 60)


def streamed(events):
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


def scripted(page, events):
    """Answer the next message with these events, as the server would send them."""
    body = streamed(events)
    page.route("**/messages", lambda route: route.fulfill(status=200, content_type="text/event-stream", body=body))


def below_the_composer(page):
    """Whole pixels of the newest turn that lie behind the composer, at least; None while one of them is drawn anew."""
    foot, composer = page.locator(".turn-foot").last.bounding_box(), page.locator(".composer").bounding_box()
    return max(0, round(foot["y"] + foot["height"] - composer["y"])) if foot and composer else None


def test_the_newest_answer_is_above_the_composer_unless_somebody_scrolled_up(open_page, trained):
    page = open_page(f"/experiments/{trained}/playground")
    page.set_viewport_size({"width": 1360, "height": 900})
    ready(page)
    reply = [
        {"event": "message", "message": {"role": "assistant", "content": "One line.\nAnother.\nA third."}},
        {"event": "done", "tokens": 9, "seconds": 0.5},
    ]
    scripted(page, reply)
    feet = page.locator(".turn-foot")
    for count in range(6):
        say(page, f"Question {count}")
        feet.nth(count).wait_for()
        until(page, lambda: below_the_composer(page), 0)
    assert page.evaluate("window.scrollY") > 0, "there is more than fits"
    page.get_by_label("Message").fill("\n".join("A long question." for _ in range(8)))
    until(page, lambda: below_the_composer(page), 0)
    held = []
    # Laid over the first route, which goes nowhere: without any, a request would be let through to the server.
    page.route("**/messages", lambda route: held.append(route))
    page.keyboard.press("Enter")
    page.get_by_text("thinking …").wait_for()
    until(page, lambda: len(held), 1)
    # A frame later the page has heard of it.
    page.evaluate("() => new Promise((done) => { window.scrollTo(0, 0); requestAnimationFrame(() => done()); })")
    held[0].fulfill(status=200, content_type="text/event-stream", body=streamed(reply))
    feet.nth(6).wait_for()
    assert page.evaluate("window.scrollY") == 0, "whoever reads above is left there"


def test_tool_calls_are_folded_hostile_text_is_only_text_and_an_error_is_said(open_page, trained):
    """A toy model calls no tools, so what the session says is scripted here; the page is the real one."""
    page = open_page(f"/experiments/{trained}/playground")
    ready(page)
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": json.dumps({"query": HOSTILE})}}
    scripted(
        page,
        [
            {"event": "token", "text": "Let me look"},
            {"event": "message", "message": {"role": "assistant", "content": "Let me look", "tool_calls": [call]}},
            {"event": "message", "message": {"role": "tool", "tool_call_id": "c1", "content": HOSTILE}},
            {"event": "message", "message": {"role": "assistant", "content": HOSTILE}},
            {"event": "reward", "rewards": {HOSTILE: 0.5}, "total": 0.5, "unscored": {}},
            {"event": "done", "tokens": 9, "seconds": 0.5},
        ],
    )
    say(page, HOSTILE.replace("\0", ""))
    page.locator(".turn-foot").get_by_text("9 tokens in").wait_for()
    assert page.locator(".tool pre").count() == 0, "folded"
    page.locator(".tool .fold-head").first.click()
    page.locator(".tool pre").get_by_text('"query"').wait_for()
    assert answers(page).last.inner_text().startswith("<img src=x onerror=alert(1)>")
    assert page.locator("main img, main a[href^=javascript], main script").count() == 0
    assert page.locator(".hidden-mark").count() > 2
    scripted(page, [{"event": "error", "message": "The conversation no longer fits the model. Open a new session."}])
    say(page, "Hello")
    page.get_by_role("alert").get_by_text("no longer fits the model").wait_for()


def test_a_run_that_has_not_begun_offers_nobody_to_talk_to(open_page, world):
    page = open_page("/playground/run_nothing")
    page.get_by_text("There is no such run, or it is not yours").wait_for()
