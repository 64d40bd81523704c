"""A platform with a long past: 200 runs, 100,000 rollouts with their files, 2 million points, written in bulk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, insert, select, text
from sqlalchemy.orm import Session

from benchmax.platform.store.accounts import api_keys, users
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.runs import evals, rollouts, runs
from benchmax.platform.store.statements import upsert
from benchmax.platform.store.tables import EnvLog, Event, MetricName, MetricValue, RolloutRow, Run

OWNER = "bench@example.org"
GROUP = 8
EVERY = 50
"""Steps between evals and checkpoints."""

# One statement a run, the same on both databases.
_POINTS = """
WITH RECURSIVE t(step) AS (SELECT 0 UNION ALL SELECT step + 1 FROM t WHERE step < :last)
INSERT INTO points (run_id, series_id, step, value, time)
SELECT s.run_id, s.id, t.step, ((s.id * 7919 + t.step * 104729) % 99991) / 99991.0, 1790000000.0 + t.step
FROM series s, t WHERE s.run_id = :run_id AND s.mode = 'train'
"""


@dataclass(frozen=True)
class Size:
    runs: int = 200
    rollouts: int = 100_000
    points: int = 2_000_000
    long_steps: int = 10_000
    """Steps of the one long run, which has a fifth of the points and of the rollouts."""


@dataclass(frozen=True)
class Shape:
    """What one run has."""

    steps: int
    series: int
    rollouts: int

    @property
    def files(self) -> int:
        return -(-self.rollouts // (8 * GROUP))


def build(database: Database, data: DataDir, size: Size) -> str:
    """Fill an empty platform; gives a key that may read all of it."""
    with database.write() as session:
        owner = users.ensure_user(session, OWNER)
        _, key = api_keys.create_key(session, owner.id, scopes=("read",))
    others = max(1, size.runs - 1)
    long = Shape(size.long_steps, size.points // 5 // size.long_steps, size.rollouts // 5)
    short = Shape(size.points * 4 // 5 // others // 20, 20, size.rollouts * 4 // 5 // others)
    for number in range(size.runs):
        with database.write() as session:
            _run(session, data, owner.id, number, short if number else long)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE" if not database.is_sqlite else "PRAGMA optimize=0x10002")
    return key


def _run(session: Session, data: DataDir, owner: str, number: int, shape: Shape) -> None:
    args = {"model": "smollm2-135m", "lr": 1e-5, "group_size": GROUP, "max_rollout_len": 512}
    run = runs.create(session, owner_id=owner, name=f"run {number}", kind="simple", args=args, paths={}, blobs={})
    status = "active" if number % 20 == 0 else "complete"
    run.status, run.latest_step, run.total_steps, run.tags = status, shape.steps, shape.steps, ["bench"]
    names = [f"metric/{each}" for each in range(shape.series)]
    rows = [{"run_id": run.id, "split": "train", "name": name} for name in names]
    upsert(session, MetricName, rows, key=("run_id", "split", "name"))
    session.flush()
    session.execute(text(_POINTS), {"run_id": run.id, "last": shape.steps - 1})
    kinds = [("checkpoint", "artifact"), ("points", "feed"), ("points", "feed"), ("points", "feed")]
    _events(session, run.id, [kinds[each % 4] for each in range(max(8, shape.steps // EVERY * 4))])
    folder = data.run(run.id) / "rollouts"
    folder.mkdir(parents=True)
    for at in range(shape.files):
        _file(session, run.id, folder, "eval" if at % 4 == 3 else "train", at)
    if number % 10 == 0:
        row = evals.create(session, run.id, model="base")
        row.status = "complete"
        _file(session, run.id, folder, evals.SPLIT, shape.steps, eval_id=row.id)


def _events(session: Session, run_id: str, kinds: list[tuple[str, str]]) -> None:
    rows = [
        {"run_id": run_id, "time": 1.79e9 + at, "category": category, "kind": kind, "message": "", "data": {"step": at}}
        for at, (kind, category) in enumerate(kinds)
    ]
    session.execute(insert(Event), rows)


def _file(session: Session, run_id: str, folder: Path, mode: str, step: int, eval_id: str = "") -> None:
    """One rollout file, eight examples of a group each, its index rows and its log lines."""
    rows, logs, offset = [], [], 0
    name = f"rollouts/{mode}-{step}.jsonl"
    with open(folder.parent / name, "wb") as file:
        for at in range(8 * GROUP):
            record = _record(
                f"{mode[0]}{step}-{at}", mode, step, (step % 4 * 8 if mode == "train" else 0) + at // GROUP, at
            )
            line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
            file.write(line)
            rows.append(
                rollouts.row_of(record, file=name, offset=offset, length=len(line), split=mode, eval_id=eval_id)
            )
            logs += rollouts.logs_of(record)
            offset += len(line)
    rollouts.index(session, run_id, rows)
    rollouts.add_logs(session, run_id, logs)


def _record(name: str, mode: str, step: int, example: int, at: int) -> dict[str, object]:
    reward = (step * 31 + at * 17) % 100 / 100
    turns = [
        {"role": role, "content": f"turn {n} " + "words and more words " * 12} for n, role in enumerate("uata" * 2)
    ]
    names = {"u": "user", "a": "assistant", "t": "tool"}
    messages = [{"role": "system", "content": "You solve tasks. " * 8}]
    messages += [{"role": names[turn["role"]], "content": turn["content"]} for turn in turns]
    return {
        "id": name, "example_id": f"example-{example}", "split": mode, "step": step, "sample": at % GROUP,
        "messages": messages, "completion_start": 2, "reward": reward, "ok": at % 16 != 0,
        "rewards": {"right": reward, "short": 0.5}, "termination": "stop", "usage": {"completion_tokens": 120},
        "turns": 4, "tool_events": [{"name": "search", "seconds": 0.1}], "started_at": 1.79e9 + step,
        "seconds": {"total": 3.2}, "task": {"answer": "42"},
        "logs": [{"seconds": 0.1, "level": "INFO", "message": "tool answered in 0.1 s"}],
    }  # fmt: skip


def counts(database: Database) -> dict[str, int]:
    with database.read() as session:
        return {
            table.__tablename__: session.scalar(select(func.count()).select_from(table)) or 0
            for table in (Run, RolloutRow, MetricValue, EnvLog, Event)
        }


def wanted(database: Database) -> dict[str, str]:
    """Ids a console would open: the long run, an ordinary one, an example, a rollout, an eval of each."""
    with database.read() as session:
        found = {}
        for word, name in (("long", "run 0"), ("run", "run 10")):
            run_id = session.scalar(select(Run.id).where(Run.name == name))
            assert run_id is not None
            found[word] = run_id
            found[f"{word}_rollout"] = session.scalar(select(RolloutRow.id).where(RolloutRow.run_id == run_id).limit(1))
            found[f"{word}_eval"] = evals.of_run(session, run_id)[0].id
        return found
