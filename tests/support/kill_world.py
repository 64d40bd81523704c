"""A whole platform with real trainers for tests that kill its processes: who runs, and what became of the runs."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from benchmax.envs.base_env import BaseEnv
from benchmax.errors import UsageError
from benchmax.net import ports
from benchmax.platform.client import TrainerClient
from benchmax.platform.daemon import control, liveness
from benchmax.platform.daemon.options import Options
from benchmax.platform.store.accounts import api_keys, users
from benchmax.platform.store.database import open_database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.runs import evals, rollouts, runs
from benchmax.platform.training_run import upload_training_run
from runner_world import is_running, wait_until
from training_world import store_tiny

STEPS, EVERY, PROMPTS, GROUP, ROWS, SAMPLES = 24, 2, 4, 4, 16, 2
ARGS = {
    "learning_rate": 5e-3, "tune": "full", "recipe": "plain", "group_size": GROUP, "prompts_per_step": PROMPTS,
    "max_extra_groups": 0, "max_new_tokens": 6, "max_turns": 1, "eval_every": EVERY, "max_steps": STEPS,
    "num_epochs": 1000,
}  # fmt: skip
KINDS = {
    "trainer": ("benchmax.platform.runner.children.train_child", "benchmax.platform.runner.children.eval_child"),
    "environment": ("benchmax.bundle.environment_process",),
}


class Digits(BaseEnv):
    """Pays for digits, and takes its time: its process is killed in the middle of it."""

    async def init_rollout(self, rollout_id, **kwargs):
        pass

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        import asyncio

        await asyncio.sleep(0.3)
        text = messages[-1]["content"]
        return {"digits": sum(letter.isdigit() for letter in text) / max(1, len(text))}


@dataclass
class Tally:
    """What the runs have, against what they must have."""

    steps: int = 0
    points: int = 0
    rollouts: int = 0
    evaluations: int = 0
    lost: Counter = field(default_factory=Counter)
    doubled: Counter = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)
    """What is wrong, in words."""

    def missing(self, what, count, where):
        if count:
            self.lost[what] += count
            self.odd.append(f"{where}: {count} {what} lost")

    def twice(self, what, count, where):
        if count:
            self.doubled[what] += count
            self.odd.append(f"{where}: {count} {what} doubled")


class Platform:
    """`benchmax up` on a folder, and its processes by name."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.folder = folder
        for name in ("tmp", "home"):
            (folder / name).mkdir()
        # All its processes inherit one of these: what is left of them is known by it.
        monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
        monkeypatch.setenv("BENCHMAX_HOME", str(folder / "home"))
        monkeypatch.setenv("BENCHMAX_CPU_RUNS", "2")
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.delenv("BENCHMAX_DATABASE_URL", raising=False)
        store_tiny(folder / "home", "toy")
        self.data = DataDir(folder / "data").create()
        self.options = Options(self.data, ports.free_port())
        self.up()
        self.database = open_database(self.data, None)
        with self.database.write() as session:
            user = users.ensure_user(session, "a@example.org")
            self.key = api_keys.create_key(session, user.id)[1]
        self.client = TrainerClient(self.key, f"http://127.0.0.1:{self.options.port}")
        rows = [{"prompt": f"{number}?"} for number in range(ROWS)]
        self.files = asdict(
            upload_training_run(
                env_class=Digits, train_dataset=rows, eval_dataset=rows, run_name="toy", api_key=self.key,
                base_url=self.client.base_url,
            )
        )  # fmt: skip

    def up(self) -> None:
        control.start(self.options)

    def launch(self, number: int) -> None:
        """A run of its own seed."""
        args = ARGS | {"model": "toy", "seed": number}
        self.client.queue_run("simple", **self.files, name=f"run {number}", launcher_args=args)

    def run_ids(self) -> list[str]:
        with self.database.read() as session:
            return [run.id for run in session.query(runs.Run).order_by(runs.Run.created)]

    def unfinished(self) -> list[str]:
        with self.database.read() as session:
            return [run.id for run in session.query(runs.Run) if run.ended is None]

    def evaluate(self, run_id: str) -> None:
        """Queue an evaluation of what the run has learned."""
        self.client.start_external_eval(run_id, "checkpoint:latest", samples=SAMPLES)

    def pids(self, name: str) -> list[int]:
        """Of the processes of this platform that do such work now."""
        if name == "daemon":
            note = liveness.read_daemon(self.data)
            return [note["pid"]] if note else []
        if name in ("server", "runner"):
            pid = self.data.holder(name)
            return [pid] if pid else []
        return [each.pid for each in self.processes() if any(module in _words(each) for module in KINDS[name])]

    def processes(self) -> list[psutil.Process]:
        """Everything that belongs to this platform, wherever it went."""
        return [each for each in psutil.process_iter() if each.pid != os.getpid() and self._is_ours(each)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            marks = [*process.cmdline(), process.cwd(), *process.environ().values()]
        except psutil.Error:
            return False
        return any(str(self.folder) in mark for mark in marks)

    def kill(self, name: str, chance) -> bool:
        pids = self.pids(name)
        if not pids:
            return False
        pid = chance.choice(pids)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_running(pid))  # the kernel takes a moment
        return True

    def close(self) -> None:
        control.stop(self.data)
        self.client.close()
        self.database.close()


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


# What became of the runs


def count(platform: Platform) -> Tally:
    """Every run, its files and its rows in the database, against what was asked for."""
    tally = Tally()
    for run_id in platform.run_ids():
        with platform.database.read() as session:
            run = runs.get(session, run_id)
        if run.status != "complete":
            tally.odd.append(f"{run_id} is {run.status}: {run.reason}")
        _count_points(platform, run_id, tally)
        for mode, steps, each in (("train", range(STEPS), PROMPTS * GROUP), ("eval", _evaluated(), ROWS)):
            _count_rollouts(platform, run_id, mode, steps, each, tally)
        _count_evals(platform, run_id, tally)
    return tally


def _evaluated() -> range:
    return range(0, STEPS + 1, EVERY)


def _count_points(platform: Platform, run_id: str, tally: Tally) -> None:
    """The lines of the run's own file, once each, and every value of them in what a reader gets."""
    text = (platform.data.run(run_id) / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    for mode, steps in (("train", range(STEPS)), ("eval", _evaluated())):
        mine = [line for line in lines if line["split"] == mode]
        where, seen = f"{run_id} {mode}", Counter(line["step"] for line in mine)
        what = "steps" if mode == "train" else "evaluations"
        tally.missing(what, len(set(steps) - set(seen)), where)
        tally.twice(what, sum(seen.values()) - len(seen) + len(set(seen) - set(steps)), where)
        written = {(name, line["step"]): value for line in mine for name, value in line["values"].items()}
        shown = platform.client.get_run_scalars(run_id, mode)
        given = [(name, point["step"]) for name, points in shown.items() for point in points]
        tally.missing("metric points", len(written.keys() - set(given)), where)
        tally.twice("metric points", len(given) - len(written.keys() & set(given)), where)
        tally.points += len(written)
        if mode == "train":
            tally.steps += len(seen)
            continue
        tally.evaluations += len(seen)
        unscored = [
            line["step"] for line in mine if line["values"].get("unscored") or "reward/mean" not in line["values"]
        ]
        tally.missing("evaluations", len(unscored), f"{where} unscored at {unscored}")


def _count_rollouts(platform: Platform, run_id: str, mode: str, steps: range, each: int, tally: Tally) -> None:
    """Each file whole, each line of it one row, each row's place that of its line."""
    run_dir = platform.data.run(run_id)
    written = []
    for step in steps:
        path = run_dir / "rollouts" / f"{mode}-{step}.jsonl"
        written += [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    with platform.database.read() as session:
        rows = rollouts.page(session, run_id, split=mode, limit=1_000_000)
        bodies = [rollouts.read_body(run_dir, row) for row in rows]
    where = f"{run_id} {mode}"
    places = Counter((line["step"], line["example_id"], line["sample"]) for line in written)
    tally.missing("rollouts", len(steps) * each - len(places), where)
    tally.twice("rollouts", len(written) - len(places), where)
    ids, found = {line["id"] for line in written}, Counter(row.id for row in rows)
    tally.missing("rollouts", len(ids - set(found)), f"{where} in the database")
    tally.twice("rollouts", sum(found.values()) - len(ids & set(found)), f"{where} in the database")
    astray = sum(body is None or body["id"] != row.id for body, row in zip(bodies, rows, strict=True))
    tally.missing("rollouts", astray, f"{where} at their place")
    tally.rollouts += len(rows)


def _count_evals(platform: Platform, run_id: str, tally: Tally) -> None:
    """Evaluations that were asked for beside the run."""
    with platform.database.read() as session:
        for row in evals.of_run(session, run_id):
            tally.evaluations += 1
            found = rollouts.page(session, run_id, split=evals.SPLIT, eval_id=row.id, limit=1_000_000)
            whole = row.status == "complete" and row.done == row.total == ROWS * SAMPLES
            where = f"{run_id} {row.id} ({row.status}, {row.done} of {row.total}: {row.reason})"
            scored = {(each.example_id, each.sample) for each in found if each.reward is not None}
            tally.missing("evaluations", int(not whole or len(scored) != ROWS * SAMPLES), where)
            tally.twice("rollouts", len(found) - len({(each.example_id, each.sample) for each in found}), where)
            tally.rollouts += len(found)


def left_behind(platform: Platform) -> list[str]:
    """Processes and temporary folders of the platform ten seconds after it was stopped."""

    def left():
        processes = [f"{each.pid} {' '.join(_words(each))}" for each in platform.processes()]
        return processes + [str(path) for path in (platform.folder / "tmp").glob("benchmax-*")]

    with suppress(AssertionError):
        wait_until(lambda: not left(), 10)
    return left()


def start_again(platform: Platform) -> None:
    """As a service manager, or a person, starts what was killed."""
    try:
        platform.up()
    except UsageError as error:
        print(f"up: {error}; tried again", file=sys.stderr)
        platform.up()
