"""The scored rollouts of runs and evals, as `benchmax.evaluation.compare` compares them."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import select
from sqlalchemy.orm import Session

from benchmax.evaluation.compare import TOTAL, Difference
from benchmax.platform.store.runs.rollouts import at_latest_step
from benchmax.platform.store.tables import RolloutRow


def scores(db: Session, run_id: str, *, split: str = "eval", eval_id: str = "") -> dict[str, list[dict[str, float]]]:
    """The scored rollouts of a split's latest step."""
    columns = select(RolloutRow.example_id, RolloutRow.reward, RolloutRow.components)
    query = columns.where(at_latest_step(db, run_id, split, eval_id), RolloutRow.reward.is_not(None))
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for example_id, reward, components in db.execute(query):
        assert reward is not None
        found[example_id].append({**components, TOTAL: reward})
    return dict(found)


def label(found: Difference) -> str:
    """The verdict on the run against the other model, in the words of published clients."""
    unclear = "closing in" if found.delta.mean < 0 else found.verdict
    return {"better": "outperformed", "worse": "comparison leads"}.get(found.verdict, unclear)
