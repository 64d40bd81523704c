"""A group in which rollouts fail, in verl's own worker: all of it comes back, with our reasons."""

from __future__ import annotations

from statistics import fmean

import pytest
from test_agent_loop import play, rows_of

from trainer_failures import GROUP, ROUGH, Actor, RoughEnv


async def test_a_group_in_which_everything_happens_comes_back_whole(tmp_path, caplog):
    RoughEnv.start_anew()
    output, _ = await play(ROUGH, tmp_path, Actor(ROUGH.template).next_turn)
    rows = rows_of(output)
    found = [(row["ends"], row["reward"] if row["scored"] else None) for row in rows]
    assert sorted(found, key=str) == GROUP
    mean = fmean(reward for _, reward in GROUP if reward is not None)
    for row in rows:
        assert any(row["mask"]) == bool(row["scored"])
        assert row["scored"] or row["reward"] == pytest.approx(mean)
    assert sorted(RoughEnv.released) == sorted(RoughEnv.begun)
    assert "3 of 6 rollouts failed; the first: RuntimeError in init_rollout: no seat" in caplog.text
