"""The Rollouts tab: finding one among many, reading it whole, two beside each other, the heat map; fast at any size."""

from __future__ import annotations

import re

import pytest
from console_world import until
from rollout_data import add_many, handbook, record, write_run

FRAMES = """() => {
  window.frames_ = [];
  let last = performance.now();
  const next = (now) => { window.frames_.push(now - last); last = now; requestAnimationFrame(next); };
  requestAnimationFrame(next);
}"""


@pytest.fixture(scope="module")
def run(world, tmp_path_factory):
    return world.add_run(handbook(tmp_path_factory.mktemp("handbook") / "run"), name="handbook")


@pytest.fixture
def viewer(open_page, run):
    def make(search: str = "", **options):
        page = open_page(f"/experiments/{run}/rollouts{search}", **options)
        page.locator(".ro-side").or_(page.locator(".ro-grid")).or_(page.locator(".ro-main")).first.wait_for()
        return page

    return make


def title(page) -> str:
    return page.locator(".ro-head h2").inner_text()


def open_sample(page, index: int = 0) -> None:
    page.locator(".ro-sample").nth(index).wait_for()
    until(page, page.locator(".ro-waiting").count, 0)  # steps come one by one: the first there need not be the newest
    page.locator(".ro-sample").nth(index).click()
    page.locator("[data-transcript] .ro-block").first.wait_for()


def test_the_list_shows_steps_groups_and_samples(viewer):
    page = viewer()
    page.get_by_text("192 rollouts").wait_for()
    page.get_by_role("button", name=re.compile("Step 12")).first.wait_for()
    page.locator(".ro-group", has_text="Oslo").first.wait_for()
    first = page.locator(".ro-sample").first
    first.wait_for()
    assert first.locator(".ro-dot i").count() == 3, "reward, advantage and tokens have a dot each"


def test_a_rollout_is_read_whole(viewer):
    page = viewer()
    page.locator("[data-transcript] .ro-block").first.wait_for()  # the first opens by itself
    open_sample(page, 4)
    talk = page.locator("[data-transcript]")
    talk.get_by_text("You answer questions about the company").wait_for()
    talk.get_by_text("When was the travel policy last changed?").first.wait_for()
    assert talk.get_by_text("part of the prompt").count() == 1, "the example it was shown, not what it wrote"
    call = talk.get_by_role("button", name=re.compile("^search"))
    assert call.get_attribute("aria-expanded") == "false"
    call.click()
    talk.get_by_text('"limit": 3').wait_for()
    talk.get_by_text("Handbook, chapter 4").first.wait_for()
    aside = page.get_by_role("complementary", name="About this rollout")
    aside.get_by_text("Gold answer").wait_for()
    aside.get_by_text("3 March 2025").wait_for()
    for name in ("correct", "brief", "penalty"):
        aside.locator(".ro-bar", has_text=name).wait_for()
    page.get_by_role("button", name=re.compile("Logs")).click()
    page.get_by_text("the index is two days old").wait_for()
    page.get_by_role("button", name="Raw").click()
    page.get_by_text('"promptMessageId": "example-1"').wait_for()


def test_what_went_wrong_is_said(viewer):
    page = viewer()
    page.locator(".ro-sample", has_text="error").first.click()
    main = page.locator(".ro-main")
    main.get_by_text("Reward failed").wait_for()
    main.get_by_text("Left out: unscored").wait_for()
    main.get_by_text("JudgeError in compute_reward").wait_for()
    main.get_by_text("not scored: JudgeError").wait_for()


def test_a_failed_call_is_open_and_marked(viewer):
    page = viewer("?q=the+page+did+not+load")
    page.get_by_text(re.compile(r"\d+ rollouts? found")).wait_for()
    open_sample(page)
    call = page.locator(".ro-call-bad")
    assert call.get_attribute("aria-expanded") == "true"
    call.get_by_text("failed").wait_for()
    page.locator(".ro-failed", has_text="TimeoutError").wait_for()


def test_keys_walk_through_samples_and_groups(viewer):
    page = viewer()
    open_sample(page)
    assert title(page) == "Step 12, sample #0"
    page.keyboard.press("j")
    page.get_by_role("heading", name="Step 12, sample #1").wait_for()
    page.keyboard.press("k")
    page.get_by_role("heading", name="Step 12, sample #0").wait_for()
    before = page.url
    page.keyboard.press("J")
    page.locator("[data-transcript]").get_by_text("travel policy").first.wait_for()
    page.keyboard.press("K")
    page.wait_for_url(before)
    for _ in range(3):
        before = page.url
        page.keyboard.press("J")
        page.wait_for_function("before => location.href !== before", arg=before)
    page.keyboard.press("J")  # over the border of the step
    page.get_by_role("heading", name="Step 11, sample #0").wait_for()


def test_a_link_shows_what_its_sender_saw(viewer):
    page = viewer("?mode=eval&low=1")
    page.locator(".ro-sample").first.wait_for()
    open_sample(page)
    shown = title(page)
    again = viewer(page.url.split("/rollouts")[1])
    again.get_by_role("heading", name=shown).wait_for()
    again.get_by_text("reward ≥ 1").wait_for()
    assert again.get_by_role("button", name="Eval", exact=True).get_attribute("aria-pressed") == "true"


def test_a_step_that_was_clicked_leaves_the_room_to_its_rollouts(viewer):
    page = viewer("?mode=nonsense&step=3")
    page.get_by_text("16 rollouts", exact=True).wait_for()
    page.get_by_role("button", name="step 4").or_(page.get_by_text("step 4", exact=True)).first.wait_for()
    assert page.get_by_label("Reward from").count() == 0
    page.get_by_role("button", name="Filter").click()
    page.get_by_label("Reward from").wait_for()


def test_filters_narrow_and_orders_sort(viewer):
    page = viewer("?failed=yes")
    page.get_by_text("1 rollout", exact=True).wait_for()
    page.get_by_role("button", name="Clear all").click()
    page.get_by_text("192 rollouts").wait_for()
    page.get_by_role("combobox", name="Order").select_option("worst")
    page.locator(".ro-sample-flat").nth(9).wait_for()

    def is_sorted():
        rewards = [float(text) for text in page.locator(".ro-sample-flat .ro-dot .num").all_inner_texts()[:10]]
        return len(rewards) == 10 and rewards == sorted(rewards)

    until(page, is_sorted, True)
    page.get_by_label("Tool", exact=True).select_option("read_page")
    page.get_by_text("calls read_page").wait_for()
    page.get_by_label("Reward from").fill("1")
    page.get_by_label("Reward from").press("Enter")
    page.wait_for_function("() => parseFloat(document.querySelector('.ro-sample-flat .ro-dot .num')?.textContent) >= 1")


def test_a_call_in_the_prompt_takes_no_time_of_those_that_were_made(open_page, world, tmp_path):
    plain = record(0, 0, 0)
    call = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    shown = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "name": "look_up", "content": "Lyon"},
    ]
    messages = [*plain["messages"][:2], *shown, *plain["messages"][2:]]
    events = [{"turn": 1, "name": "search", "ok": True, "seconds": 0.12}]
    events += [{"turn": 2, "name": "read_page", "ok": True, "seconds": 0.23}]
    made = plain | {"messages": messages, "completion_start": 6, "tool_events": events}
    run_id = world.add_run(write_run(tmp_path / "shown", [made]), name="shown")
    page = open_page(f"/experiments/{run_id}/rollouts?mode=train")
    calls = page.locator(".ro-call")
    until(page, calls.count, 3)
    times = [each.locator(".num").all_inner_texts() for each in calls.all()]
    assert times == [[], ["120 ms"], ["230 ms"]]
    calls.first.click()
    page.locator(".ro-result", has_text="Lyon").wait_for()


def test_text_is_found_in_answers(viewer):
    page = viewer()
    page.get_by_role("searchbox").fill("I could not FIND this")
    page.get_by_text(re.compile(r"\d+ rollouts? found")).wait_for()
    page.locator(".ro-sample-flat", has_text="could not find this").first.wait_for()
    page.get_by_role("searchbox").fill("nobody ever wrote this")
    page.get_by_text("Nothing found").wait_for()


def test_a_search_that_fails_says_why(viewer):
    page = viewer()
    page.watch.allow("400")
    page.route("**/rollouts/search?*", lambda route: route.fulfill(status=400, json={"error": "The index is broken."}))
    page.get_by_role("searchbox").fill("anything")
    page.get_by_role("alert").get_by_text("The index is broken.").wait_for()
    assert page.get_by_text("Nothing found").count() == 0


def test_tokens_show_how_likely_they_were_or_how_to_save_them(viewer):
    page = viewer()
    open_sample(page)
    page.get_by_role("button", name="Tokens").click()
    page.get_by_text("45 sampled tokens").wait_for()
    assert page.locator(".ro-tokens .ro-given").count() == 8
    page.keyboard.press("j")
    page.get_by_text("did not save its tokens").wait_for()
    page.get_by_text("--set save_tokens=true").wait_for()


def test_the_heat_map_opens_a_rollout(viewer):
    page = viewer("?view=map")
    until(page, page.locator(".ro-cell-heat").count, 4 * 12)
    page.get_by_role("button", name=re.compile("Open step 4,")).first.click()
    page.get_by_role("heading", name="Step 4, sample #0").wait_for()
    page.go_back()
    page.locator(".ro-cell-heat").first.wait_for()


def test_the_heat_map_says_when_an_example_was_last_played(open_page, world, tmp_path):
    played = [record(0, 0, 0, reward=0.25), record(0, 1, 0, reward=1.0), record(3, 1, 0, reward=0.5)]
    run_id = world.add_run(write_run(tmp_path / "seldom", played), name="seldom")
    page = open_page(f"/experiments/{run_id}/rollouts?view=map&mode=train")
    page.locator(".ro-grid-head").get_by_text("last", exact=True).wait_for()
    page.get_by_role("button", name="Lowest latest reward").click()
    last = page.locator(".ro-row .num[title]")
    steps = ["Last played: step 1", "Last played: step 4"]
    until(page, lambda: [each.get_attribute("title") for each in last.all()], steps)
    assert [float(text) for text in last.all_inner_texts()] == [0.25, 0.5]


def test_two_samples_side_by_side_with_what_differs(viewer):
    page = viewer("?mode=train&step=0")
    open_sample(page, 0)
    page.locator(".ro-sample").nth(5).click(modifiers=["Shift"])
    page.locator(".ro-pair").first.wait_for()
    until(page, lambda: page.locator("mark.ro-differs").count() >= 2, True)
    assert page.locator(".ro-pair").get_by_text("part of the prompt").count() == 1, "the example it was shown, once"
    page.wait_for_url(re.compile("with="))
    page.keyboard.press("Escape")
    page.locator("[data-transcript] .ro-block").first.wait_for()


def test_new_rollouts_come_by_themselves(open_page, world, tmp_path):
    from benchmax.platform.runner.ingest import Ingest

    run_id = world.add_run(write_run(tmp_path / "live", [record(0, 0, 0)]), name="live", status="active")
    page = open_page(f"/experiments/{run_id}/rollouts")
    page.get_by_text("1 rollout", exact=True).wait_for()
    write_run(world.data.run(run_id), [record(0, 0, 0), record(1, 0, 0), record(1, 0, 1)])
    Ingest(world.database, run_id, world.data.run(run_id)).step()
    page.get_by_text("3 rollouts", exact=True).wait_for()
    page.get_by_role("button", name=re.compile("Step 2 ")).first.wait_for()


def test_a_phone_shows_one_thing_at_a_time(viewer):
    page = viewer(width=390)
    open_sample(page)
    assert not page.locator(".ro-side").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Back to the list").click()
    page.locator(".ro-side").wait_for()


# Sizes


def longest_frame(page) -> float:
    """The longest of the frames since FRAMES; the second worst is taken, for a machine that does other things too."""
    frames = sorted(page.evaluate("window.frames_"))
    return frames[-2]


def scroll_through(page, selector: str) -> float:
    page.evaluate(FRAMES)
    page.locator(selector).hover()
    for _ in range(25):
        page.mouse.wheel(0, 900)
        page.evaluate("() => new Promise(requestAnimationFrame)")
    for part in (0.3, 0.6, 1.0):
        page.evaluate(
            "([s, p]) => { const e = document.querySelector(s); e.scrollTop = e.scrollHeight * p; }", [selector, part]
        )
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return longest_frame(page)


@pytest.mark.slow
def test_a_hundred_thousand_rollouts_scroll(open_page, world):
    run_id = world.add_run(name="many")
    assert add_many(world, run_id, steps=500, examples=25, samples=8) == 100_000
    page = open_page(f"/experiments/{run_id}/rollouts?mode=train")
    page.get_by_text("100,000 rollouts").wait_for()
    page.locator(".ro-sample").first.wait_for()
    assert scroll_through(page, ".ro-list") < 100
    page.get_by_role("button", name=re.compile("Step 1 ")).first.wait_for()
    page.locator(".ro-sample").first.wait_for()
    assert page.locator(".ro-row").count() < 80, "only the rows in view are in the page"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["words", "turns", "one line"])
def test_a_transcript_of_five_megabytes_opens_and_scrolls(open_page, world, tmp_path, kind):
    each = record(0, 0, 0)
    text = {"words": "word " * 1_000_000, "one line": "x" * 5_000_000}.get(kind)
    if text:
        each["messages"][-1] = {"role": "assistant", "content": text}
    else:
        turn = "lorem ipsum dolor sit amet " * 38
        each["messages"] = each["messages"][:2] + [
            {"role": ("user", "assistant")[i % 2], "content": f"turn {i} {turn}"} for i in range(5_000)
        ]
    run_id = world.add_run(write_run(tmp_path / "huge", [each]), name="huge")
    page = open_page(f"/experiments/{run_id}/rollouts")
    page.locator(".ro-sample").first.wait_for()
    page.evaluate(FRAMES)
    open_sample(page)
    if text:
        page.get_by_role("button", name="Show all 5.0 MB").click()
        page.get_by_role("button", name="Show less").wait_for()
    assert scroll_through(page, ".ro-content") < 100
    assert page.locator(".ro-block").count() < 60
