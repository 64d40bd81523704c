"""Pictures of every page, light and dark: `make screenshots`.

A platform in use is started: demo runs, uploads, a runner, and the newest `make quickstart` run with its real model, if
there is one. The best pictures go to docs/images, which is in git; all of them lie in build/screenshots.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from console_world import CHROMIUM, CHROMIUM_FLAGS, EMAIL, demo, keep_training, settle, train_toy
from training_events import BEFORE, begins, helped
from working_world import WorkingWorld, furnish, key_of, train, working

from runner_world import wait_until
from session_world import store_run

ROOT = Path(__file__).resolve().parents[2]
ALL, KEPT = ROOT / "build" / "screenshots", ROOT / "docs" / "images"
QUALITY = 84
BEST = {
    "runs-light", "run-train-light", "run-train-dark", "rollouts-light", "compare-light", "playground-light",
    "new-run-light", "doctor-dark", "run-begins-light", "run-learned-light",
}  # fmt: skip

Page = Any


class Shot(NamedTuple):
    name: str
    path: str
    """With the names of runs in braces."""
    act: Callable[[Page], object] = lambda page: None
    """What to do before the picture is taken."""


def play(page: Page) -> None:
    """Let two checkpoints answer an example."""
    choice = page.get_by_label("Task")
    wait_until(lambda: choice.locator("option").count() > 3, 60, lambda: page.wait_for_timeout(100))
    choice.select_option(index=3)
    page.locator(".talk-head").get_by_text("ready").nth(1).wait_for(timeout=180_000)
    page.get_by_role("button", name="Play the example").click()
    page.locator(".turn-rewards").nth(1).wait_for(timeout=180_000)


def examine(page: Page) -> None:
    page.get_by_role("button", name="Run the doctor").click()
    page.locator(".doctor-verdict").wait_for(state="detached")  # an earlier report
    page.get_by_text("Rewards of made-up answers").wait_for(timeout=180_000)


def check_up(page: Page) -> None:
    page.get_by_role("button", name="Examine it").click()
    page.locator(".doctor-verdict").wait_for(timeout=180_000)
    page.evaluate("window.scrollTo(0, 0)")


def read(page: Page) -> None:
    """Open a conversation."""
    page.get_by_text("#3", exact=True).first.click()
    page.get_by_text("Choose a rollout to read").wait_for(state="detached")


def press(name: str) -> Callable[[Page], object]:
    return lambda page: page.get_by_role("button", name=name).first.click()


def bring(heading: str) -> Callable[[Page], object]:
    """Bring a part of the page into the middle of the picture."""
    shown = "(element) => element.scrollIntoView({ block: 'center' })"
    return lambda page: page.get_by_role("heading", name=heading).evaluate(shown)


RUN = "/experiments/{quickstart}"
FILLED = "/experiments/new?environment=arithmetic&dataset=datasets%2Fsums.csv&name=sums&arg.group_size=12"
SHOTS = [
    Shot("runs", "/experiments"),
    Shot("new-run", FILLED),
    Shot("new-run-checked", FILLED, check_up),
    Shot("run-train", f"{RUN}/train"),
    Shot("run-eval", f"{RUN}/eval"),
    Shot("rollouts", f"{RUN}/rollouts", read),
    Shot("compare", f"{RUN}/compare"),
    Shot("playground", f"{RUN}/playground?checkpoint=best&with=base&temperature=0", play),
    Shot("checkpoints", f"{RUN}/checkpoints"),
    Shot("config", f"{RUN}/config"),
    Shot("logs", "/experiments/{working}/logs"),
    Shot("system", "/experiments/{working}/system"),
    Shot("run-begins", "/experiments/{begins}"),
    Shot("run-learned", "/experiments/{helped}", bring("What was learned")),
    Shot("long-run", "/experiments/{long}"),
    Shot("failed-run", "/experiments/{failed}"),
    Shot("datasets", "/datasets"),
    Shot("dataset", "/datasets/datasets/timetable.jsonl"),
    Shot("dataset-problems", "/datasets/datasets/support-questions.jsonl?tab=problems"),
    Shot("environments", "/environments"),
    Shot("source", "/environments/calculator"),
    Shot("doctor", "/environments/arithmetic?tab=doctor", examine),
    Shot("doctor-model", "/environments/arithmetic?tab=doctor&model={model}", examine),
    Shot("keys", "/settings/keys"),
    Shot("new-key", "/settings/keys", press("New key")),
    Shot("endpoints", "/settings/endpoints"),
    Shot("secrets", "/settings/secrets"),
    Shot("webhooks", "/settings/webhooks"),
    Shot("account", "/settings/account"),
    Shot("users", "/settings/users"),
    Shot("audit", "/settings/audit"),
    Shot("device", "/device"),
]


def quickstart() -> Path | None:
    """The newest run of `make quickstart` on this machine's platform."""
    from benchmax.cli.platform.quickstart import NAME
    from benchmax.config import data_dir

    found = [
        file.parent
        for file in data_dir().glob("runs/*/launch.json")
        if json.loads(file.read_text("utf-8"))["name"] == NAME and (file.parent / "checkpoints" / "best").exists()
    ]
    return max(found, key=lambda folder: folder.stat().st_mtime, default=None)


def add_quickstart(world: WorkingWorld, recorded: Path) -> str:
    """That run, as if it had been launched here: it can be talked with and compared."""
    from benchmax.envs.arithmetic import ArithmeticEnv
    from benchmax.envs.loading import own_rows

    # The rows it was evaluated on, so that what is compared has been played by both.
    lines = (recorded / "rollouts" / "eval-0.jsonl").read_text("utf-8").splitlines()
    held_out = {json.loads(line)["example_id"] for line in lines}
    rows = [row for row in own_rows(ArithmeticEnv) if ArithmeticEnv.dataset_preprocess(row)["id"] in held_out]
    run_id = store_run(world, world.user_id, ArithmeticEnv, rows, email=EMAIL, model="smollm2-135m")
    world.record(run_id, recorded)
    with world.client(key_of(world)) as client:
        client.patch(
            f"/v1/train/runs/{run_id}", json={"name": "arithmetic, quickstart", "tags": ["quickstart"], "pinned": True}
        )
    return run_id


def hold(world: WorkingWorld, *run_ids: str) -> None:
    """Let runs that only look as if they went on have a job, which no machine has slots for: the runner leaves them."""
    from benchmax.platform.store.queue import jobs

    with world.database.write() as session:
        for run_id in run_ids:
            jobs.enqueue(session, run_id, slots=1_000)


def compare(world: WorkingWorld, run_id: str) -> None:
    """Compare the run with the model before training."""
    with world.client(key_of(world)) as client:
        made = client.post(
            f"/v1/train/runs/{run_id}/external-eval", json={"model": "base", "name": "before training", "rows": 24}
        )
        assert made.status_code == 201, made.text

        def done() -> bool:
            evals = client.get(f"/v1/train/runs/{run_id}/external-eval").json()["evals"]
            return bool(evals) and all(each["endedAt"] for each in evals)

        wait_until(done, 400)


def take(page: Page, url: str, shot: Shot, theme: str, runs: dict[str, str], folder: Path) -> None:
    page.goto(url + shot.path.format(**runs))
    settle(page)
    shot.act(page)
    page.wait_for_timeout(1200)  # charts draw, live values come in
    settle(page)
    keep(page.screenshot(), f"{shot.name}-{theme}", folder)


def keep(png: bytes, name: str, folder: Path) -> None:
    from PIL import Image

    for place in [folder, *([KEPT] if name in BEST else [])]:
        place.mkdir(parents=True, exist_ok=True)
        Image.open(io.BytesIO(png)).save(place / f"{name}.webp", quality=QUALITY, method=6)


def shoot(world: WorkingWorld, runs: dict[str, str], wanted: str, folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        for theme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": 1280, "height": 860}, color_scheme=theme, reduced_motion="reduce"
            )
            context.add_cookies([world.cookie()])
            for shot in SHOTS:
                if wanted in shot.name:
                    page = context.new_page()
                    take(page, world.url, shot, theme, runs, folder)
                    page.close()
                    print(f"{shot.name}-{theme}", flush=True)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ALL, help="where all pictures go")
    parser.add_argument("--console", type=Path, help="a built console; default: the one in the package")
    parser.add_argument("--only", default="", help="pictures whose name contains this")
    given = parser.parse_args()
    real = quickstart()
    link = ["smollm2-135m"] if real else []
    with tempfile.TemporaryDirectory() as work, working(Path(work), link=link, console=given.console) as world:
        toy = train_toy(Path(work) / "recorded")
        runs = demo(world, toy, steps=2000) | {"model": "smollm2-135m" if real else world.model}
        furnish(world)
        keep_training(world, runs["active"], steps=60, every=0)
        runs["begins"] = begins(world, *BEFORE[:-2], name="handbook, live")
        runs["helped"] = world.add_run(helped(Path(work) / "helped"), name="handbook", seconds=240)
        hold(world, runs["active"], runs["begins"], runs["pending"])
        runs["working"] = train(world, name="counting")
        runs["quickstart"] = add_quickstart(world, real) if real else runs["recorded"]
        if real and given.only in "compare":
            compare(world, runs["quickstart"])
        shoot(world, runs, given.only, given.folder)


if __name__ == "__main__":
    main()
