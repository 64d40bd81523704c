"""The index of rollouts: what lists, heat maps and averages need. Bodies stay in the run directory's files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, and_, bindparam, cast, delete, func, insert, select
from sqlalchemy.orm import Session

from benchmax.envs.reward_helpers import content_text, last_user_text
from benchmax.evaluation.compare import TOTAL
from benchmax.files.links import open_plain
from benchmax.platform.store.clean_text import checked_float, checked_integer, clean, clean_json
from benchmax.platform.store.statements import upsert
from benchmax.platform.store.tables import EnvLog, RolloutRow

PROMPT_CHARS = 500
_MOST_CELLS = 20_000


def row_of(
    record: Mapping[str, Any], *, file: str, offset: int, length: int, split: str | None = None, eval_id: str = ""
) -> dict[str, Any]:
    """The index columns of one line of a rollout file (a `Rollout.to_dict()`).

    Raises LookupError, TypeError, ValueError or AttributeError for a line that is none.
    """
    usage = record.get("usage") or {}
    error = record.get("error") or {}
    tools = dict.fromkeys(clean(str(event.get("name")), 200) for event in record.get("tool_events") or ())
    discarded = record.get("discarded")
    return {
        "id": clean(record["id"], 80),
        "split": clean(split or record.get("split") or "eval", 40),
        "eval_id": eval_id,
        "step": checked_integer(record.get("step") or 0),
        "example_id": clean(record["example_id"], 80),
        "prompt_text": clean(_prompt_text(record)),
        "sample": checked_integer(record.get("sample", 0)),
        "reward": _optional_float(record.get("reward")),
        "components": {clean(str(name)): checked_float(value) for name, value in (record.get("rewards") or {}).items()},
        "termination": clean(record.get("termination", "unknown"), 40),
        "error_type": clean(error["type"], 100) if error.get("type") else None,
        "ok": bool(record.get("ok")),
        "discarded": None if discarded is None else clean(str(discarded)),
        "advantage": _optional_float(record.get("advantage")),
        "tokens": checked_integer(usage.get("completion_tokens", 0)),
        "turns": checked_integer(record.get("turns", 0)),
        "tools": list(tools),
        "started_at": checked_float(record.get("started_at", 0.0)),
        "seconds": checked_float((record.get("seconds") or {}).get("total", 0.0)),
        "file": file,
        "offset": offset,
        "length": length,
    }


def _optional_float(value: Any) -> float | None:
    return None if value is None else checked_float(value)


def logs_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The environment's log lines of one record, and its error, as rows for `add_logs`; raises like `row_of`."""
    start, step = record.get("started_at", 0.0), record.get("step")
    common = {"rollout_id": clean(record["id"], 80), "step": step, "traceback": None}
    rows = [
        common
        | {
            "time": checked_float(start + line["seconds"]),
            "level": clean(line["level"], 20),
            "message": clean(line["message"]),
        }
        for line in record.get("logs") or ()
    ]
    if error := record.get("error"):
        where = f" in {error['where']}" if error.get("where") else ""
        message = f"{error.get('type')}{where}: {error.get('message', '')}"
        ended = start + (record.get("seconds") or {}).get("total", 0.0)
        rows.append(common | {"time": checked_float(ended), "level": "ERROR", "message": clean(message)})
    return rows


def index(db: Session, run_id: str, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write index rows (`row_of`); a rollout that is known already is replaced. Returns the number of rows."""
    unique = {row["id"]: {"run_id": run_id, **row} for row in rows}
    upsert(db, RolloutRow, list(unique.values()), key=("run_id", "id"))
    return len(unique)


def add_logs(db: Session, run_id: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write environment log rows (`logs_of`)."""
    values = [{"run_id": run_id, **row} for row in rows]
    if values:
        db.execute(insert(EnvLog), values)


def drop_file(db: Session, run_id: str, file: str) -> None:
    """Delete all rollouts of one file, and their logs: the trainer moved it aside."""
    drop(db, run_id, RolloutRow.file == file)


def drop(db: Session, run_id: str, condition: ColumnElement[bool]) -> None:
    """Delete the rollouts that meet a condition, and their logs."""
    gone = and_(RolloutRow.run_id == run_id, condition)
    ids = select(RolloutRow.id).where(gone)
    db.execute(delete(EnvLog).where(EnvLog.run_id == run_id, EnvLog.rollout_id.in_(ids)))
    db.execute(delete(RolloutRow).where(gone))


# Reading


def get(db: Session, run_id: str, rollout_id: str) -> RolloutRow | None:
    query = select(RolloutRow).where(RolloutRow.run_id == run_id, RolloutRow.id == rollout_id)
    return db.scalars(query).one_or_none()


def read_body(run_dir: Path, row: RolloutRow) -> dict[str, Any] | None:
    """The whole record, from its file; None when the file is gone, moved, or is not the run's own."""
    try:
        with open_plain(run_dir, row.file) as file:
            file.seek(row.offset)
            record = clean_json(json.loads(file.read(row.length)))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record.get("id") == row.id else None


def matching(
    run_id: str,
    *,
    split: str,
    eval_id: str = "",
    step: int | None = None,
    example_id: str | None = None,
    termination: str | None = None,
    failed: bool | None = None,
    tool: str | None = None,
    discarded: bool | None = None,
    lowest: float | None = None,
    highest: float | None = None,
    component: str | None = None,
) -> ColumnElement[bool]:
    """What a list can filter on, as a condition; the bounds are of the reward, or of one `component` of it."""
    wanted = [of_split(run_id, split, eval_id)]
    equal = ((RolloutRow.step, step), (RolloutRow.example_id, example_id), (RolloutRow.termination, termination))
    wanted += [column == value for column, value in equal if value is not None]
    if failed is not None:
        wanted.append(RolloutRow.ok.is_(not failed))
    if tool is not None:
        wanted.append(cast(RolloutRow.tools, Text).contains(json.dumps(tool), autoescape=True))
    if discarded is not None:
        wanted.append(RolloutRow.discarded.is_not(None) if discarded else RolloutRow.discarded.is_(None))
    if lowest is not None:
        wanted.append(_reward(component) >= lowest)
    if highest is not None:
        wanted.append(_reward(component) <= highest)
    return and_(*wanted)


def _reward(component: str | None) -> ColumnElement[Any]:
    """The reward column: the total, or one component."""
    whole: ColumnElement[Any] = RolloutRow.reward.expression
    return whole if component is None else RolloutRow.components[component].as_float()


_NEWEST = (RolloutRow.step.desc(), RolloutRow.example_id, RolloutRow.sample)


def ordered(order: str, component: str | None = None) -> tuple[Any, ...]:
    """How a list can be ordered; what is unscored is neither good nor bad and comes last."""
    reward = _reward(component)
    orders = {
        "newest": (),
        "worst": (reward.is_(None), reward),
        "best": (reward.is_(None), reward.desc()),
        "longest": (RolloutRow.tokens.desc(),),
    }
    return (*orders[order], *_NEWEST)


def page(
    db: Session, run_id: str, *, order: str = "newest", limit: int = 50, offset: int = 0, **filters: Any
) -> list[RolloutRow]:
    """Index rows, newest step first or as `order` says, by what `matching` filters on."""
    query = select(RolloutRow).where(matching(run_id, **filters))
    query = query.order_by(*ordered(order, filters.get("component")))
    return list(db.scalars(query.limit(limit).offset(offset)))


def summary(
    db: Session, run_id: str, *, split: str, eval_id: str = "", limit: int = 50, offset: int = 0
) -> list[dict[str, Any]]:
    """`{promptMessageId, promptText, rewardHistory[{step, meanReward}]}` for each example, in the order first seen."""
    scope = of_split(run_id, split, eval_id)
    first = func.min(RolloutRow.n)
    listed = select(RolloutRow.example_id, first).where(scope).group_by(RolloutRow.example_id).order_by(first)
    examples = db.execute(listed.limit(limit).offset(offset)).all()
    history: dict[str, list[dict[str, Any]]] = defaultdict(list)
    means = (
        select(RolloutRow.example_id, RolloutRow.step, func.avg(RolloutRow.reward))
        .where(scope, RolloutRow.example_id.in_([example_id for example_id, _ in examples]))
        .group_by(RolloutRow.example_id, RolloutRow.step)
        .order_by(RolloutRow.example_id, RolloutRow.step)
    )
    for example_id, step, mean in db.execute(means):
        history[example_id].append({"step": step, "meanReward": mean})
    prompts = select(RolloutRow.n, RolloutRow.prompt_text).where(RolloutRow.n.in_([n for _, n in examples]))
    texts = {row.n: row.prompt_text for row in db.execute(prompts)}
    return [
        {"promptMessageId": example_id, "promptText": texts[n], "rewardHistory": history[example_id]}
        for example_id, n in examples
    ]


def examples(db: Session, run_id: str, *, split: str, eval_id: str = "", limit: int = 50, offset: int = 0) -> list[str]:
    """Ids of the examples, in the order first seen."""
    query = select(RolloutRow.example_id).where(of_split(run_id, split, eval_id)).group_by(RolloutRow.example_id)
    return list(db.scalars(query.order_by(func.min(RolloutRow.n)).limit(limit).offset(offset)))


def groups(
    db: Session, run_id: str, example_ids: Sequence[str], *, split: str, eval_id: str = ""
) -> list[dict[str, Any]]:
    """The rollouts of these examples at the split's latest step, one group for each example that has some."""
    latest = at_latest_step(db, run_id, split, eval_id)
    rows = db.scalars(
        select(RolloutRow).where(latest, RolloutRow.example_id.in_(example_ids)).order_by(RolloutRow.sample)
    )
    found: dict[str, list[RolloutRow]] = defaultdict(list)
    for row in rows:
        found[row.example_id].append(row)
    return [_group(example_id, found[example_id]) for example_id in example_ids if example_id in found]


def _group(example_id: str, rows: Sequence[RolloutRow]) -> dict[str, Any]:
    scored = [row.reward for row in rows if row.reward is not None]
    return {
        "prompt_message_id": example_id,
        "prompt_text": rows[0].prompt_text,
        "mean_reward": fmean(scored) if scored else None,
        "rollouts": [{"id": row.id, "step": row.step, "total_reward": row.reward} for row in rows],
        "components": _means(row.components for row in rows),
    }


def _means(rollouts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each reward component."""
    values: dict[str, list[float]] = defaultdict(list)
    for components in rollouts:
        for name, value in components.items():
            values[name].append(value)
    return {name: fmean(each) for name, each in sorted(values.items())}


def count_examples(db: Session, run_id: str, *, split: str, eval_id: str = "") -> int:
    query = select(func.count(RolloutRow.example_id.distinct())).where(of_split(run_id, split, eval_id))
    return db.scalar(query) or 0


def heatmap(db: Session, run_id: str, example_id: str, *, split: str, eval_id: str = "") -> list[dict[str, Any]]:
    """`[{id, step, totalReward}]`: every rollout of one example."""
    query = (
        select(RolloutRow.id, RolloutRow.step, RolloutRow.reward, RolloutRow.sample)
        .where(of_split(run_id, split, eval_id), RolloutRow.example_id == example_id)
        .order_by(RolloutRow.step, RolloutRow.sample)
        .limit(_MOST_CELLS)
    )
    return [
        {"id": each.id, "step": each.step, "totalReward": each.reward, "sample": each.sample}
        for each in db.execute(query)
    ]


def split_average(db: Session, run_id: str, *, split: str, eval_id: str = "") -> dict[str, Any]:
    """`{avg, count, scored, latestStep, latestAvg}`; an average of nothing is None."""
    scope = of_split(run_id, split, eval_id)
    counts = select(func.avg(RolloutRow.reward), func.count(), func.count(RolloutRow.reward), func.max(RolloutRow.step))
    average, count, scored, step = db.execute(counts.where(scope)).one()
    latest = db.scalar(select(func.avg(RolloutRow.reward)).where(scope, RolloutRow.step == step))
    return {"avg": average, "count": count, "scored": scored, "latestStep": step, "latestAvg": latest}


def component_averages(db: Session, run_id: str, *, split: str, eval_id: str = "") -> dict[str, float] | None:
    """The mean of each reward component at the latest step; None when there is no step."""
    found = db.scalars(select(RolloutRow.components).where(at_latest_step(db, run_id, split, eval_id))).all()
    return _means(found) if found else None


def scores(db: Session, run_id: str, *, split: str = "eval", eval_id: str = "") -> dict[str, list[dict[str, float]]]:
    """The scored rollouts of a split's latest step, by example, as `benchmax.evaluation.compare` compares them."""
    columns = select(RolloutRow.example_id, RolloutRow.reward, RolloutRow.components)
    query = columns.where(at_latest_step(db, run_id, split, eval_id), RolloutRow.reward.is_not(None))
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for example_id, reward, components in db.execute(query):
        assert reward is not None
        found[example_id].append({**components, TOTAL: reward})
    return dict(found)


def splits(db: Session, run_id: str) -> list[str]:
    """Splits that have rollouts, in order."""
    return list(db.scalars(_SPLITS, {"run_id": run_id}))


def logs(db: Session, run_id: str, *, rollout_id: str | None = None, limit: int = 1000, after: int = 0) -> list[EnvLog]:
    """Environment logs, oldest first."""
    query = select(EnvLog).where(EnvLog.run_id == run_id, EnvLog.id > after)
    if rollout_id is not None:
        query = query.where(EnvLog.rollout_id == rollout_id)
    return list(db.scalars(query.order_by(EnvLog.id).limit(limit)))


def _splits() -> Select[Any]:
    """One seek in the index for each split, where DISTINCT would read all rows of the run."""
    least = select(func.min(RolloutRow.split).label("split")).where(RolloutRow.run_id == bindparam("run_id"))
    found = least.cte("found", recursive=True)
    after = least.where(RolloutRow.split > found.c.split).scalar_subquery()
    found = found.union_all(select(after).where(found.c.split.is_not(None)))
    return select(found.c.split).where(found.c.split.is_not(None))


_SPLITS = _splits()


def of_split(run_id: str, split: str, eval_id: str) -> ColumnElement[bool]:
    return and_(RolloutRow.run_id == run_id, RolloutRow.split == split, RolloutRow.eval_id == eval_id)


def at_latest_step(db: Session, run_id: str, split: str, eval_id: str) -> ColumnElement[bool]:
    """The rollouts of the latest step of a split, as a condition."""
    scope = of_split(run_id, split, eval_id)
    step = db.scalar(select(func.max(RolloutRow.step)).where(scope))
    return and_(scope, RolloutRow.step == step)


def _prompt_text(record: Mapping[str, Any]) -> str:
    """The last user turn of the prompt: what distinguishes examples in a list."""
    prompt = list(record.get("messages") or ())[: record.get("completion_start")]
    text = last_user_text(prompt) or (content_text(prompt[-1].get("content")) if prompt else "")
    return text[:PROMPT_CHARS]
