"""A run on several environments: each has its curve, and several are chosen for a new run."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from working_world import working

from benchmax import metrics
from benchmax.platform.store.runs import runs
from benchmax.platform.store.uploads.blobs import BlobStore

PARTS = ("math", "crm", "excel", "wikipedia", "leg_counting")


@pytest.fixture(scope="module")
def world(console, tmp_path_factory):
    with working(tmp_path_factory.mktemp("composed"), console=console) as server:
        yield server


def values(step: int) -> dict[str, float]:
    found = {metrics.REWARD: step / 10, metrics.SOLVE_RATE: step / 20, metrics.RESPONSE_TOKENS: 12.0}
    for number, part in enumerate(PARTS):
        found |= {metrics.of_part(part, key): value / (number + 1) for key, value in list(found.items())[:3]}
    return found


def test_five_parts_show_five_curves(open_page, world):
    run = world.add_run(name="five at once")
    world.add_points(run, [(step, "train", 1e9 + step, values(step)) for step in range(6)], total=6)
    page = open_page(f"/experiments/{run}")
    for number, part in enumerate(PARTS):
        chart = page.locator(".chart").filter(has=page.get_by_text(f"{part}: Reward", exact=True))
        chart.locator("canvas").wait_for()
        assert chart.locator(".chart-key b").first.inner_text() == f"{0.5 / (number + 1):.3f}"
    page.get_by_text("More about each environment").click()
    page.get_by_text("crm: Response length", exact=True).wait_for()


def test_several_are_chosen_for_one_run(open_page, world):
    page = open_page("/experiments/new?environment=arithmetic")
    page.get_by_role("group", name="Together with").get_by_label("calculator", exact=True).check()
    page.locator(".launch-facts").get_by_text("held out").wait_for()
    page.get_by_role("button", name="Launch the run").click()
    page.wait_for_url(lambda url: "/experiments/run_" in url)
    with world.database.read() as session:
        run = runs.get(session, page.url.split("/experiments/")[1].split("/")[0])
    lines = BlobStore(world.data.blobs).path(run.blobs["train_dataset_path"]).read_bytes().splitlines()
    assert set(Counter(json.loads(line)["env"] for line in lines)) == {"arithmetic", "calculator"}
