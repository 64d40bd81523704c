"""Can this model learn from this environment? What the first samples say, and how a held interpreter is found."""

import json
import sys
import time

import pytest
from typer.testing import CliRunner

from benchmax.cli.app import app
from benchmax.doctor import CHECKS, examine_sync
from benchmax.doctor.findings import HOLDS, Diagnosis
from benchmax.doctor.interpreter_watch import InterpreterHeld, blocking_frame, run_in_child
from benchmax.doctor.learning_signal import Known, measure
from benchmax.errors import DatasetError
from benchmax.rollouts.record import Rollout, ToolEvent
from broken_envs import ROWS, Good


def rollout(reward, **more):
    return Rollout("r", "e", reward=reward, **more)


def groups(*rewards):
    return [[rollout(reward) for reward in group] for group in rewards]


SILENT = groups(*[[0.0] * 4] * 16)


def test_no_signal_is_said_with_the_help_that_is_known():
    signal = measure(SILENT, Known(gold=1.0))
    assert (signal.learns, signal.ready, signal.spread, signal.pass_at_k) == (False, False, 0.0, 0.0)
    assert signal.forecast == "No group in 16 had signal: GRPO will not move it."
    assert "warm_start = auto" in signal.advice
    assert "gold_completion or demonstrate" in measure(SILENT).advice, "where no solution is known"


def test_one_sample_of_a_prompt_has_nothing_to_differ_from():
    shown = "\n".join(measure(groups([1.0], [0.0], [0.0], [1.0]), Known(gold=1.0)).lines())
    assert shown.startswith("4 prompts × 1 sample\nreward 0.50 on average; a good answer earns 1.00\nsolved 50%\n")
    assert "difference" not in shown


def test_what_the_samples_missed_is_computed():
    """Of 64 samples none may be right though one in 500 is: in training that one comes soon."""
    signal = measure(SILENT, Known(gold=1.0, chance=2e-3))
    assert (signal.learns, signal.ready) == (True, False)
    assert "1 answer in 500 is a known good one" in signal.forecast
    assert not measure(SILENT, Known(gold=1.0, chance=1e-6)).learns


def test_signal_that_reaches_far_is_learned_from():
    signal = measure(groups([0.0, 1.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]), Known(gold=1.0))
    assert (signal.learns, signal.ready, signal.spread, signal.pass_at_k, signal.best) == (True, True, 0.5, 0.75, 0.75)
    assert signal.forecast == "50% of 4 groups had signal: it will learn."


def test_the_cheap_part_alone_is_told():
    signal = measure(groups(*[[0.0, 0.2]] * 8), Known(gold=1.0))
    assert not signal.learns
    assert (
        "earns 0.20 where a good answer earns 1.00: GRPO would learn the cheap part and stop there" in signal.forecast
    )


def test_a_lazy_strategy_that_tempts_is_told():
    lazy = {"repeating the question in the form": 0.42}
    signal = measure(groups([0.0, 1.0], [0.0, 0.0]), Known(gold=1.0, lazy=lazy))
    assert signal.learns
    assert "first to earn the 0.42 that repeating the question in the form pays" in signal.forecast


def test_what_is_solved_already_needs_no_help():
    signal = measure(groups([1.0, 1.0], [1.0, 1.0]), Known(gold=1.0))
    assert (signal.learns, signal.ready) == (False, True)
    assert "solves it already" in signal.forecast


def test_rewards_that_never_come_are_told():
    signal = measure([[rollout(None), rollout(None)]])
    assert (signal.unscored, signal.learns) == (1.0, False)
    assert signal.forecast == "No sample got a reward: nothing can be learned."


def test_first_tool_calls_are_looked_at():
    good, bad = ToolEvent(0, "t", True, 0.1), ToolEvent(0, "t", False, 0.1)
    played = [[rollout(0.0, tool_events=[good]), rollout(0.0, tool_events=[bad, good]), rollout(0.0)]]
    assert measure(played, tools=True).first_calls == pytest.approx(1 / 3)
    assert measure(played).first_calls is None


# --- an interpreter that is held


def test_work_done_apart_gives_what_it_gives_and_raises_what_it_raises():
    assert run_in_child(lambda: {"sum": 3}) == {"sum": 3}

    def fails():
        raise DatasetError("no rows")

    with pytest.raises(DatasetError, match="no rows"):
        run_in_child(fails)

    def fails_otherwise():
        raise KeyError("x")

    with pytest.raises(RuntimeError, match="KeyError: 'x'"):
        run_in_child(fails_otherwise)


def test_work_that_holds_the_interpreter_is_ended_with_its_place():
    import re

    def held():
        re.match(r"(a+)+$", "a" * 40 + "b")
        return {}

    began = time.monotonic()
    with pytest.raises(InterpreterHeld, match=r"test_doctor_signal\.py:\d+ in held held the interpreter for 2 s"):
        run_in_child(held, seconds=2.0)
    assert time.monotonic() - began < 60  # the expression itself would take days


def test_the_culprit_is_the_environments_own_code_wherever_it_lies():
    ours = sys.modules["benchmax.doctor"].__file__
    theirs = "/home/me/benchmax/re/env.py"
    dump = f'Thread 1:\n  File "{ours}", line 3 in examine\n  File "{theirs}", line 9 in compute_reward\n'
    assert blocking_frame(dump) == "/home/me/benchmax/re/env.py:9 in compute_reward"


HELD = r"""
import re
from benchmax import BaseEnv, extract_completion_text

class Held(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        said = extract_completion_text(messages) + " " + "a" * 40 + "!"
        return {"correct": float(bool(re.match(r"(\w+\s?)*$", said)))}
"""


def test_validate_ends_an_environment_that_holds_it(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmax.doctor.interpreter_watch.STALL_SECONDS", 3.0)
    (tmp_path / "held.py").write_text(HELD)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS[:12])))
    result = CliRunner().invoke(app, ["validate", str(tmp_path / "held.py"), "--data", str(tmp_path / "rows.jsonl")])
    assert result.exit_code == 1
    assert "held.py:8 in compute_reward" in result.stderr.replace("\n", " ")
    assert "regular expression" in result.stderr


def test_whether_an_interpreter_is_held_is_not_claimed_where_nobody_watches():
    lines = {line.id: line for line in examine_sync(Good, rows=ROWS, pace="quick").checks}
    assert lines[HOLDS].state == "skipped"
    assert "benchmax validate does" in lines[HOLDS].note


def test_a_diagnosis_travels_as_json():
    found = examine_sync(Good, rows=ROWS, pace="quick")
    again = Diagnosis.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.to_dict() == found.to_dict()
    assert {line.id for line in again.checks} == set(CHECKS)
