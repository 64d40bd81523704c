"""What the console's tests stand on: a real server with a run that the real trainer made, and runs of any size.

`python tests/browser/console_world.py --port 8400` serves the same to look at while the console is written; one run in
it goes on as if it were being trained.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import math
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from platform_world import LiveServer

ROOT = Path(__file__).resolve().parents[2]
EMAIL = "ada@example.org"
PASSWORD = "correct horse battery"
CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None
)
# One process draws and one runs every page: half the CPU time of one for each.
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--in-process-gpu", "--renderer-process-limit=1"]
PATIENCE = 60_000
"""Milliseconds a page may take for one thing: only a slow machine comes near."""


def script(name: str):
    """A module of console/scripts."""
    spec = importlib.util.spec_from_file_location(f"console_{name}", ROOT / "console" / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train_toy(folder: Path, steps: int = 12) -> Path:
    """A run directory that the real trainer wrote, in seconds, with a model that has random weights."""
    import torch

    from benchmax.envs.base_env import BaseEnv
    from benchmax.envs.example_id import make_example
    from benchmax.envs.reward_helpers import extract_completion_text
    from benchmax.trainer.config import build_config
    from benchmax.trainer.start import train
    from benchmax.trainer.task import Task
    from benchmax.trainer.tiny_model import make_tiny

    class DigitsEnv(BaseEnv):
        """Pays for digits, and a little for short answers."""

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            text = extract_completion_text(messages)
            digits = sum(letter.isdigit() for letter in text) / max(1, len(text))
            return {"digits": digits, "short": 0.2 * (len(text) < 8)}

    torch.set_num_threads(1)
    rows = [
        make_example(
            prompt_messages=[{"role": "user", "content": f"What is {i} + {i + 1}?"}],
            task={"ground_truth": str(2 * i + 1)},
        )
        for i in range(24)
    ]
    model = make_tiny(folder / "model", hidden=32, layers=2)
    config = build_config(
        {
            "model": {"name": str(model), "tune": "full", "device": "cpu"},
            "optim": {"lr": 1e-2},
            "rollouts": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 8, "max_turns": 1},
            "eval": {"every": 4},
            "checkpoint": {"every": 4},
            "limits": {"steps": steps},
            "output": {"dir": str(folder), "name": "toy"},
        }
    )
    # A browser that is open runs a loop in this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, train(config, task=Task(DigitsEnv, rows[:16], rows[16:]))).result()
    return folder / "toy"


def settle(page) -> None:
    """Wait until a page shows what it has to show."""
    page.locator("h1").first.wait_for()
    page.locator("main .skeleton").first.wait_for(state="detached")


QUIET = """() => new Promise(done => {
  const began = Date.now();
  let last = began;
  new MutationObserver(() => (last = Date.now())).observe(document.body, {subtree: true, childList: true});
  const look = () => (Date.now() - last > 400 || Date.now() - began > 4000 ? done() : setTimeout(look, 50));
  look();
})"""


def settled(page):
    """Until the page is drawn; one that goes on by itself is never idle, so what counts is that it has its parts."""
    page.locator("h1").wait_for()
    page.evaluate(QUIET)
    page.locator(".skeleton").first.wait_for(state="detached")


def until(page, look, expected) -> None:
    """Wait until `look()` gives what is expected; fails with what it gave last."""
    end = time.monotonic() + PATIENCE / 1000
    while (seen := look()) != expected and time.monotonic() < end:
        page.wait_for_timeout(50)
    assert seen == expected


class ConsoleWorld(LiveServer):
    """A server whose one user has an e-mail, a password and runs."""

    def __init__(self, folder: Path, **settings):
        super().__init__(folder, **settings)
        from benchmax.platform.server.security.passwords import hash_password
        from benchmax.platform.store.accounts import users

        with self.database.write() as session:
            user = users.ensure_user(session, EMAIL, "admin")
            user.password_hash = hash_password(PASSWORD)
            self.user_id = user.id

    def link(self) -> str:
        """The address of a one-time sign-in."""
        from benchmax.platform.store.accounts import logins

        with self.database.write() as session:
            return f"{self.url}/login?token={logins.create_link(session, self.user_id)}"

    def cookie(self) -> dict[str, str]:
        """A session, as Playwright's `add_cookies` takes it."""
        from benchmax.platform.server.security.authentication import COOKIE
        from benchmax.platform.store.accounts import logins

        with self.database.write() as session:
            return {"name": COOKIE, "value": logins.open_login(session, self.user_id), "url": self.url}

    def add_run(
        self,
        run_dir: Path | None = None,
        *,
        name="a run",
        status="complete",
        reason="",
        tags=(),
        seconds=None,
        **values,
    ) -> str:
        """A run; with `run_dir`, one that was recorded there."""
        from benchmax.platform.runner.ingest import Ingest
        from benchmax.platform.store.runs import runs
        from platform_world import make_run

        with self.database.write() as session:
            run = make_run(session, EMAIL, name=name, **values)
            run.tags = list(tags)
            runs.set_status(session, run.id, "active", "training")
        if run_dir is not None:
            shutil.copytree(run_dir, self.data.run(run.id), dirs_exist_ok=True)
            ingest = Ingest(self.database, run.id, self.data.run(run.id))
            while not ingest.step():
                pass
        with self.database.write() as session:
            if status != "active":
                runs.set_status(session, run.id, status, reason)
            if seconds is not None:
                row = runs.get(session, run.id)
                row.created = row.started = (row.ended or time.time()) - seconds
        return run.id

    def add_points(self, run_id: str, lines, total: int | None = None) -> None:
        """Metric lines `(step, mode, time, values)`, told to live readers as ingest does."""
        from benchmax.platform.store.runs import events, metrics, runs

        found = [metrics.MetricLine(*line) for line in lines]
        with self.database.write() as session:
            metrics.record(session, run_id, found)
            step = max((line.step for line in found if line.split == "train"), default=None)
            runs.set_progress(session, run_id, step=step, total=total, activity=f"step {step}")
            events.append(session, run_id, "points", category="feed", data={"train": step})

    def add_long_run(self, steps=10_000, series=20, name="a long run", **more) -> str:
        """A run with many points, as a large training leaves them."""
        run_id = self.add_run(name=name, **more)
        noise = random.Random(1)
        began = time.time() - steps * 6
        lines = []
        for step in range(steps):
            values = curve(step, steps, noise)
            values |= {f"reward_stats/part_{i}/reward/mean": noise.random() for i in range(series - len(values))}
            lines.append((step, "train", began + step * 6, values))
        self.add_points(run_id, lines, total=steps)
        return run_id


def curve(step: int, steps: int, noise: random.Random) -> dict[str, float]:
    """Values a training might have at a step."""
    learned = 1 / (1 + math.exp(-8 * (step / steps - 0.35)))
    reward = 0.08 + 0.84 * learned + noise.gauss(0, 0.04)
    return {
        "reward/mean": reward,
        "reward/std": 0.25 * (1 - learned) + 0.05,
        "reward/min": max(0.0, reward - 0.4),
        "reward/max": min(1.0, reward + 0.3),
        "pass@k": min(1.0, 0.3 + 0.8 * learned + noise.gauss(0, 0.03)),
        "max@k": min(1.0, reward + 0.15),
        "solve_rate": max(0.0, reward - 0.05),
        "response_tokens/mean": 60 + 140 * learned + noise.gauss(0, 9),
        "response_tokens/max": 300.0,
        "reward_stats/correct/reward/mean": reward - 0.02,
        "reward_stats/format/reward/mean": min(1.0, 0.5 + learned),
        "loss": 0.02 * noise.random(),
        "grad_norm": 0.4 + 0.3 * noise.random(),
        "entropy": 1.1 - 0.9 * learned,
        "lr": 5e-4,
        "truncated": max(0.0, 0.2 - 0.2 * learned),
        "failed": 0.0,
        "seconds/sample": 3.1 + noise.random(),
        "tokens_per_second": 900 + 80 * noise.random(),
    }


def demo(world: ConsoleWorld, recorded: Path, steps: int = 10_000) -> dict[str, str]:
    """Runs of every kind, by name."""
    made = {
        "recorded": world.add_run(recorded, name="digits · toy", tags=["toy"], seconds=94,
                                  args={"model": "tiny", "lr": 0.01}),
        "failed": world.add_run(recorded, name="digits, wrong reward", status="failed",
                                reason="The reward function raised KeyError: 'answer' for 16 of 16 rollouts.",
                                tags=["toy"], seconds=31),
        "cancelled": world.add_run(name="arithmetic 1.5B", status="cancelled", reason="Stopped before it began."),
        "long": world.add_long_run(steps, name="search-qa 7B, long", tags=["rag", "7b"], seconds=60_000),
        "active": world.add_run(name="tool use, live", status="active", tags=["rag"]),
    }  # fmt: skip
    from benchmax.platform.store.runs import events, runs
    from platform_world import make_run

    add_traces(world, made["recorded"])
    (world.data.run(made["active"])).mkdir(parents=True, exist_ok=True)
    with world.database.write() as session:
        made["pending"] = make_run(session, EMAIL, name="waits for a slot").id
        runs.get(session, made["recorded"]).asked = {"lr": 0.01}
        events.append(
            session, made["active"], "trainer.alert", "Half of the groups gave no signal for 5 steps.", category="alert"
        )
    return made


def add_traces(world: ConsoleWorld, run_id: str) -> None:
    """What a process of the runner would have left beside the run: a log, and samples of the machine."""
    folder, began = world.data.run(run_id), time.time() - 94
    levels = ("INFO", "INFO", "INFO", "DEBUG", "WARNING")
    lines = [
        f"2026-11-15 06:{i // 60:02}:{i % 60:02},000 {levels[i % 5]} benchmax.trainer: step {i // 8}, rollout {i % 8}"
        for i in range(400)
    ]
    lines.append("2026-11-15 06:07:00,000 ERROR benchmax.rollouts: the tool `search` failed: 503")
    (folder / "child.log").write_text("\n".join(lines) + "\n", "utf-8")
    noise = random.Random(3)
    with open(folder / "system.jsonl", "w", encoding="utf-8") as file:
        for i in range(19):
            gpu = [
                {
                    "name": "NVIDIA H200",
                    "percent": 60 + 30 * noise.random(),
                    "memory_bytes": int(41e9 + i * 1e8),
                    "memory_total": int(141e9),
                }
            ]
            used = {"cpu_percent": 90 + 60 * noise.random(), "memory_bytes": int(2.1e9 + i * 2e7), "gpu": gpu}
            machine = {"processes": 3, "cores": 16, "memory_total": int(128e9), "load": 2.5}
            sample = {"time": began + 5 * i, **used, **machine}
            file.write(json.dumps(sample) + "\n")


def keep_training(world: ConsoleWorld, run_id: str, *, steps: int = 400, every: float = 1.0, until: int = 400) -> None:
    """Add a step to a run every second, as a trainer would; the first sixty at once."""
    noise = random.Random(7)
    for step in range(min(steps, until)):
        lines = [(step, "train", time.time(), curve(step, steps, noise))]
        if step % 10 == 0:
            lines.append((step, "eval", time.time(), curve(step, steps, noise)))
        world.add_points(run_id, lines, total=steps)
        (world.data.run(run_id) / "status.json").write_text("{}", "utf-8")
        time.sleep(0 if step < 60 else every)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--console", type=Path, help="a built console; default: the one in the package")
    parser.add_argument("--recorded", type=Path, help="a run directory; default: one that is trained now")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        recorded = given.recorded or train_toy(Path(folder))
        world = ConsoleWorld(Path(folder), port=given.port, console=given.console)
        with world:
            made = demo(world, recorded)
            print(f"Sign in once with {world.link()}\nor as {EMAIL} with the password: {PASSWORD}")
            for name, run_id in made.items():
                print(f"  {name:10} {world.url}/experiments/{run_id}")
            sys.stdout.flush()
            keep_training(world, made["active"])
            threading.Event().wait()


if __name__ == "__main__":
    main()
