"""Datasets in a browser: dropped, looked at with the SDK's own words, used, deleted. Environments: read, examined."""

from __future__ import annotations

import hashlib
import re

import pytest
from console_world import until
from working_world import add_dataset, add_environment, key_of, lines, working

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets import check_dataset, load_examples

GOOD = [{"prompt": f"Say {n}.", "ground_truth": str(n)} for n in range(20)]
DOCTOR = 180_000
"""Milliseconds until a process has begun and examined an environment: only a slow machine comes near."""
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202egnp.exe"


@pytest.fixture(scope="module")
def world(console, tmp_path_factory):
    with working(tmp_path_factory.mktemp("datasets"), console=console) as server:
        yield server


def fact(page, name):
    return page.locator(".facts > div").filter(has=page.get_by_text(name, exact=True)).locator("dd").inner_text()


def choose(page, name, content):
    page.get_by_label("Dataset file").set_input_files({"name": name, "mimeType": "text/plain", "buffer": content})


def drop(page, name, text):
    """Drop a file as a person does with a mouse."""
    transfer = page.evaluate_handle(
        "([name, text]) => { const t = new DataTransfer(); t.items.add(new File([text], name)); return t }",
        [name, text],
    )
    page.locator(".drop").dispatch_event("drop", {"dataTransfer": transfer})


def test_a_dropped_file_opens_with_its_rows_ids_and_counts(open_page, tmp_path):
    page = open_page("/datasets")
    drop(page, "say.jsonl", lines(GOOD).decode())
    page.get_by_role("heading", name="say.jsonl").wait_for()
    assert (fact(page, "Rows"), fact(page, "Usable"), fact(page, "Unusable")) == ("20", "20", "0")
    file = tmp_path / "say.jsonl"
    file.write_bytes(lines(GOOD))
    ids = [example["id"][:8] for example in load_examples(file)]
    until(page, page.locator(".grid-id code").all_inner_texts, ids)
    page.get_by_role("button", name=re.compile("^Open row 3:")).click()
    page.get_by_role("dialog").get_by_text("Say 2.").wait_for()


def test_what_is_wrong_with_rows_is_said_in_the_sdks_words(open_page, tmp_path, world):
    rows = [*GOOD, {"prompt": ""}, {"promt": "?"}, {"prompt": 3}, GOOD[0]]
    file = tmp_path / "bad.jsonl"
    file.write_bytes(lines(rows))
    page = open_page("/datasets")
    choose(page, "bad.jsonl", lines(rows))
    page.get_by_role("heading", name="bad.jsonl").wait_for()
    assert (fact(page, "Rows"), fact(page, "Usable"), fact(page, "Duplicates")) == ("24", "21", "1")
    until(page, page.locator("tr.grid-bad").count, 3)
    page.get_by_role("navigation", name="Parts of the dataset").get_by_role("button", name="Problems").click()
    expected = [f"{issue.reason} → {issue.fix}" for issue in check_dataset(file).issues]
    until(page, page.locator(".issue-why").all_inner_texts, expected)
    assert [text.split()[1] for text in page.locator(".issue > .num").all_inner_texts()] == ["21", "22", "23", "24"]
    page.wait_for_url(re.compile("tab=problems"))


def test_fewer_than_sixteen_rows_are_refused_in_the_sdks_words(open_page, world):
    page = open_page("/datasets")
    page.watch.allow("400")
    choose(page, "few.jsonl", lines(GOOD[:9]))
    words = "A training run needs at least 16 training rows; there are 9. Add 7 or more; 200 and up is better."
    page.get_by_role("alert").get_by_text(words).wait_for()
    assert page.get_by_role("link", name="few.jsonl").count() == 0
    choose(page, "notes.docx", b"hello")
    page.get_by_role("alert").get_by_text("is no dataset file").wait_for()


def test_csv_for_a_built_in_environment_is_read_its_way(open_page, world):
    content = "question,ground_truth\n" + "".join(f"{n} + 1?,{n + 1}\n" for n in range(20))
    path = add_dataset(world, "plus.csv", content.encode())
    page = open_page(f"/datasets/{path}")
    page.locator(".facts .good").get_by_text("20").wait_for()
    assert page.get_by_label("Read the rows as").input_value() == "arithmetic", "its columns tell"
    page.get_by_label("Read the rows as").select_option("")
    page.get_by_text("No row has a prompt or messages column").wait_for()
    page.get_by_label("Read the rows as").select_option("arithmetic")
    page.locator(".facts .good").get_by_text("20").wait_for()
    assert fact(page, "Unusable") == "0"
    page.get_by_role("link", name="Use in a new run").click()
    page.get_by_role("heading", name="New run").wait_for()
    assert page.get_by_role("radio", name=re.compile("ArithmeticEnv")).is_checked()
    page.locator(".launch-facts").get_by_text("plus.csv").wait_for()
    page.goto(f"{world.url}/experiments/new?dataset={path}")
    page.get_by_role("radio", name=re.compile("ArithmeticEnv"), checked=True).wait_for()


def test_hostile_rows_are_only_text(open_page, world):
    rows = [{**row, "prompt": row["prompt"] + HOSTILE, HOSTILE: HOSTILE} for row in GOOD]
    path = add_dataset(world, "hostile.jsonl", lines(rows))
    page = open_page(f"/datasets/{path}")
    page.locator(".grid-cell").get_by_text("<script>alert(2)</script>").first.wait_for()
    assert page.locator(".hidden-mark").first.inner_text() == "RLO"
    assert page.locator("main img").count() == 0


def test_a_dataset_is_deleted_after_a_question(open_page, world):
    path = add_dataset(world, "gone.jsonl", lines(GOOD))
    page = open_page(f"/datasets/{path}")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("button", name="Delete it").click()
    page.get_by_role("heading", name="Datasets").wait_for()
    page.get_by_label("Dataset file").wait_for(state="attached")
    page.get_by_role("link", name="gone.jsonl").wait_for(state="detached")
    with world.client(key_of(world)) as client:
        assert path not in [each["path"] for each in client.get("/v1/datasets").json()["datasets"]]


# Environments


def test_an_uploaded_environment_shows_its_source_and_manifest(open_page, world):
    add_environment(world, name="counting")
    page = open_page("/environments")
    page.get_by_role("link", name=re.compile("ArithmeticEnv")).wait_for()
    page.get_by_role("link", name=re.compile("CountingEnv")).click()
    page.locator(".code-name", has_text="CountingEnv").first.wait_for()
    text = page.locator(".code-text").inner_text()
    assert 'system_prompt = "Say the number."' in text
    assert "async def compute_reward" in text
    page.get_by_role("button", name="Manifest").click()
    page.get_by_text("Modules it imports when opened").wait_for()
    assert "env class CountingEnv local modules working_world" in " ".join(
        page.locator(".manifest").inner_text().split()
    )


def test_source_that_is_no_python_is_shown_whole(open_page, world):
    """Whatever the pieces it is cut into, every letter is there."""
    page = open_page("/environments/arithmetic")
    page.locator(".code-text").wait_for()
    with world.client(key_of(world)) as client:
        files = client.get("/v1/environments/arithmetic").json()["files"]
    longest = max(files, key=lambda file: len(file["text"]))["text"]
    assert page.locator(".code-text").inner_text().rstrip("\n") == longest.rstrip("\n")


def test_the_doctor_is_run_and_its_report_read(open_page, world):
    page = open_page("/environments/arithmetic?tab=doctor")
    page.get_by_role("button", name="Run the doctor").click()
    page.get_by_text("Rewards of made-up answers").wait_for(timeout=DOCTOR)
    page.locator(".doctor-verdict").get_by_text(re.compile("rows read, .* examples? played")).wait_for()
    page.wait_for_url(re.compile("report="))
    page.get_by_role("button", name=re.compile("All checks")).click()
    page.locator(".checks li").first.wait_for()


def test_a_report_is_shown_though_the_list_of_before_it_arrives_late(open_page, world):
    late = []

    def hold_the_first_list(route):
        late.append(route) if route.request.method == "GET" and not late else route.continue_()

    page = open_page("/")
    page.route("**/v1/environments/arithmetic/doctor", hold_the_first_list)
    page.goto(f"{world.url}/environments/arithmetic?tab=doctor")
    with page.expect_response(lambda answer: answer.request.method == "POST" and "doctor" in answer.url):
        page.get_by_role("button", name="Run the doctor").click()
    late[0].fulfill(json={"reports": []})
    page.get_by_text("Rewards of made-up answers").wait_for(timeout=DOCTOR)


def test_the_doctor_groups_what_it_finds_by_severity(open_page, world):
    """An environment that reads a column these rows lack: errors come first, with what to do."""
    bad = add_dataset(world, "wrong-columns.jsonl", lines([{"prompt": f"p{n}", "other": n} for n in range(20)]))
    add_environment(world, name="counting")
    with world.client(key_of(world)) as client:
        (mine,) = {
            each["id"]
            for each in client.get("/v1/environments").json()["environments"]
            if each["name"] == "CountingEnv"
        }
    page = open_page(f"/environments/{mine}?tab=doctor&rows={bad}")
    page.get_by_role("button", name="Run the doctor").click()
    page.get_by_role("heading", name=re.compile(r"Errors \(\d+\)")).wait_for(timeout=DOCTOR)
    assert page.locator(".finding-error .finding-fix").first.inner_text().startswith("→")
    first = page.locator(".finding").first.get_attribute("class")
    assert "finding-error" in first
    assert "ground_truth" in page.locator("main").inner_text()


def test_ready_environments_show_levels_tools_and_how_to_train(open_page, world):
    page = open_page("/environments")
    tile = page.get_by_role("link", name=re.compile("MathEnvLocal"))
    tile.get_by_text("arithmetic, sums, expressions, fractions, algebra, words, competition").wait_for()
    assert tile.locator("dd", has_text=re.compile("^calculate$")).count() == 1
    page.get_by_role("link", name=re.compile("CodeEnv")).click()
    page.get_by_text("lines, steps, cases, algorithms").wait_for()
    page.get_by_text("benchmax train code", exact=True).wait_for()


def test_a_model_tries_the_environment_and_the_report_says_whether_it_can_learn(open_page, world):
    page = open_page("/environments/arithmetic?tab=doctor")
    page.get_by_label("Model to try it with").select_option(world.model)
    page.wait_for_url(re.compile("model=toy"))
    page.get_by_role("button", name="Run the doctor").click()
    card = page.locator(".card").filter(has=page.get_by_role("heading", name="Can toy learn from it?"))
    card.wait_for(timeout=DOCTOR)
    share = card.locator(".measure").filter(has_text="Groups with a difference").locator("dd").inner_text()
    assert re.fullmatch(r"\d+%", share)
    card.get_by_text("A good answer", exact=True).wait_for()


class SecretEnv(BaseEnv):
    """Pays for an answer that nothing in its rows leads to."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        digest = hashlib.sha256(str(task["ground_truth"]).encode()).hexdigest()
        return {"right": float(messages[-1]["content"].strip() == digest)}


def test_a_finding_brings_the_code_that_mends_it(open_page, world):
    add_environment(world, SecretEnv, GOOD * 2, name="secret")
    with world.client(key_of(world)) as client:
        (mine,) = {
            each["id"] for each in client.get("/v1/environments").json()["environments"] if each["name"] == "SecretEnv"
        }
    rows = add_dataset(world, "secret.jsonl", lines(GOOD))
    page = open_page(f"/environments/{mine}?tab=doctor&rows={rows}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Run the doctor").click()
    stub = page.locator(".finding-code").first
    stub.wait_for(timeout=DOCTOR)
    stub.locator(".code-text").get_by_text("def").wait_for()
    stub.get_by_role("button", name="Copy").click()
    stub.get_by_text("Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("@classmethod\ndef gold_completion(cls, example):")
    assert stub.locator(".code-text").inner_text().rstrip("\n") == copied.rstrip("\n")
