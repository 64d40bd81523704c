"""Every process of a platform with real trainers, killed at random for ten minutes (F1–F4, F21).

Server, runner, daemon, trainers and the environments' processes, at any moment and in any order; the daemon is started
again as a service manager would. `BENCHMAX_SOAK_SECONDS` sets another time.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter

import pytest

import kill_world
from benchmax.platform.exceptions import TrainerError
from benchmax.platform.store.runs import runs
from benchmax.platform.wire.values import ENDED
from runner_world import wait_until

SECONDS = float(os.environ.get("BENCHMAX_SOAK_SECONDS", "600"))
TARGETS = ("server", "runner", "daemon", "trainer", "environment")
PAUSE = 1.0, 6.0
"""Seconds between two kills."""
AT_WORK = 3
"""Runs and evaluations that are under way or wait, as long as there is time."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * SECONDS + 1800)]


class Reader(threading.Thread):
    """Reads what every run says of its progress, the whole time."""

    def __init__(self, platform):
        super().__init__(daemon=True)
        self._platform, self._over = platform, threading.Event()
        self.answers, self.wrong, self._latest = 0, [], {}

    def run(self):
        while not self._over.wait(0.3):
            try:
                listed = self._platform.client.list_runs()
            except TrainerError as error:
                if error.status_code not in (0, None, 503):
                    self.wrong.append(str(error))
                continue
            self.answers += 1
            for run in listed:
                step, before = run.get("latestStep"), self._latest.get(run["id"], -1)
                if step is not None and step < before:
                    self.wrong.append(f"{run['id']} went from step {before} back to {step}")
                self._latest[run["id"]] = before if step is None else step

    def end(self):
        self._over.set()
        self.join(60)


class Killer:
    """Keeps the platform at work, and kills."""

    def __init__(self, platform, seed):
        self.platform, self.chance, self.kills = platform, random.Random(seed), Counter()
        self.launched, self.evaluated = 0, set()

    def work(self, until):
        while time.monotonic() < until:
            self._give_work()
            time.sleep(self.chance.uniform(*PAUSE))  # any moment is as good as another
            name = self.chance.choice(TARGETS)
            self.kills[name] += self.platform.kill(name, self.chance)
            if name == "daemon":
                self._begin_anew()

    def _give_work(self):
        """Runs, and evaluations of those that are complete; a call that is cut off is made again next time."""
        try:
            while len(self.platform.unfinished()) < AT_WORK:
                self.launched += 1
                self.platform.launch(self.launched)
            for run_id in set(self.platform.run_ids()) - set(self.platform.unfinished()) - self.evaluated:
                self.evaluated.add(run_id)
                self.platform.evaluate(run_id)
        except TrainerError as error:
            print(f"work: {error}")

    def _begin_anew(self):
        """Server and runner end, and save; now and then one of them does not live to do so."""
        if self.chance.random() < 0.5:
            time.sleep(self.chance.uniform(0, 2))
            name = self.chance.choice(("server", "runner", "trainer", "environment"))
            self.kills[name] += self.platform.kill(name, self.chance)
        kill_world.start_again(self.platform)


def is_done(platform):
    with platform.database.read() as session:
        whole = all(run.status in ENDED for run in session.query(runs.Run))
        return whole and all(row.ended is not None for row in session.query(kill_world.evals.Eval))


def told(seconds, killer, platform, tally, orphans, ended):
    kills = ", ".join(f"{name} {killer.kills[name]}" for name in TARGETS)
    lost, doubled = sum(tally.lost.values()), sum(tally.doubled.values())
    return (
        f"kill test: {seconds:.0f} s, {sum(killer.kills.values())} kills ({kills}); {ended} of "
        f"{len(platform.run_ids())} runs terminal; {tally.steps} steps, {tally.rollouts} rollouts, {tally.points} "
        f"metric points, {tally.evaluations} evaluations: {lost} lost, {doubled} doubled, "
        f"{tally.lost['evaluations']} evaluations lost, {len(orphans)} orphans"
    )


def test_nothing_is_lost_and_nobody_is_left(tmp_path, monkeypatch, capsys):
    platform = kill_world.Platform(tmp_path, monkeypatch)
    seed = int(os.environ.get("BENCHMAX_SOAK_SEED", time.time_ns() % 10_000))
    killer, reader = Killer(platform, seed), Reader(platform)
    try:
        reader.start()
        began = time.monotonic()
        killer.work(began + SECONDS)
        wait_until(lambda: is_done(platform), 600 + SECONDS)
        with platform.database.read() as session:
            ended = sum(run.status in ENDED for run in session.query(runs.Run))
        tally = kill_world.count(platform)
    finally:
        reader.end()
        platform.close()
    orphans = kill_world.left_behind(platform)
    with capsys.disabled():
        print("\n" + told(SECONDS, killer, platform, tally, orphans, ended), f"(seed {seed})")
    assert tally.odd == []
    assert orphans == []
    assert reader.wrong == []
    assert reader.answers >= SECONDS / 30
    assert ended == len(platform.run_ids())
    assert sum(killer.kills.values()) >= SECONDS / 15
