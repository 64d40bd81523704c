"""Statistics, reports and comparisons, against numbers worked out by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations
from statistics import fmean

import pytest

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets import load_examples
from benchmax.envs.example_id import make_example
from benchmax.errors import RecordError, UsageError
from benchmax.evaluation import compare, evaluate, summarise
from benchmax.evaluation.resume import EvalSpec
from benchmax.evaluation.statistics import estimate, estimate_difference, estimate_share, max_at_k, pass_at_k, quantile
from benchmax.models.base import Usage
from benchmax.models.http import HttpModel
from benchmax.models.registry import open_model
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Failure, Rollout, Termination, ToolEvent
from benchmax.rollouts.record_files import read_rollouts
from benchmax.testing import FakeModelServer


def rollout(example="a", sample=0, reward=1.0, **fields) -> Rollout:
    rewards = fields.pop("rewards", {} if reward is None else {"x": reward})
    fields.setdefault("termination", Termination.FINISHED)
    return Rollout(id=f"{example}{sample}", example_id=example, sample=sample, reward=reward, rewards=rewards, **fields)


def test_an_interval_is_students():
    got = estimate([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    assert got is not None
    assert got.mean == pytest.approx(2 / 3)
    assert got.mean - got.low == pytest.approx(2.5706 * 0.5164 / 6**0.5, rel=2e-3)
    assert estimate([]) is None
    assert estimate([0.9, 1.0, 1.0]).high == 1.0, "no mean of rewards from 0 to 1 is above 1"
    assert estimate([0.9, 1.0, 1.1]).high > 1.1
    sure, wide = estimate_difference([(1, 0), (1, 0.1)]), estimate_difference([(1.5, 0), (1, 0.1)])
    assert (sure.low, sure.high) == (pytest.approx(0.315, abs=0.001), 1.0)
    assert wide.high > 1.4
    assert estimate([1.0]).low == float("-inf")


def test_a_share_of_one_is_not_certain():
    got = estimate_share([1.0] * 10)
    assert got.mean == 1.0
    assert got.low == pytest.approx(0.7225, abs=1e-3)
    assert got.high == 1.0


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_at_k_agrees_with_counting_every_draw(k):
    values = [0.0, 0.2, 0.2, 1.0, 0.7]
    draws = list(combinations(values, k))
    assert max_at_k(values, k) == pytest.approx(fmean(max(draw) for draw in draws))
    assert pass_at_k(4, 5, k) == pytest.approx(fmean(any(v > 0 for v in draw) for draw in draws))


def test_quantile():
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([], 0.5) == 0.0


def test_unscored_samples_are_counted_and_leave_the_means():
    report = summarise(
        [
            rollout("a", 0, 1.0),
            rollout("a", 1, None, unscored={"x": "judge away"}, termination=Termination.FINISHED),
            rollout("b", 0, 0.0),
            rollout("b", 1, 0.5),
            rollout("c", 0, None, termination=Termination.MODEL_ERROR, error=Failure("ModelTimeout", "late")),
        ]
    )
    assert (report.examples, report.rollouts, report.scored) == (3, 5, 3)
    assert report.reward.mean == pytest.approx((1.0 + 0.25) / 2)
    assert report.reward.n == 2
    assert report.unscored == {"x": 1}
    assert report.errors == {"ModelTimeout": 1}
    assert report.terminations == {"finished": 4, "model_error": 1}
    assert sorted(report.pass_at) == [1]


def test_the_primary_component_decides_what_is_solved():
    rollouts = [
        rollout("a", s, 0.2 + 0.8 * (s == 0), rewards={"format": 1.0, "correct": float(s == 0)}) for s in range(4)
    ]
    report = summarise(rollouts, primary="correct")
    assert report.solve_rate.mean == 0.25
    assert report.pass_at[1].mean == 0.25
    assert report.pass_at[4].mean == 1.0
    assert report.pass_at[2].mean == pytest.approx(0.5)
    assert report.max_at[4].mean == 1.0
    assert report.components["format"].mean == 1.0


def test_lengths_tools_tokens_and_cost_add_up():
    events = [ToolEvent(1, "t", True, 0.1), ToolEvent(1, "t", False, 0.1)]
    report = summarise(
        [
            rollout("a", 0, usage=Usage(10, 4, 0.5), turns=2, tool_events=events, seconds={"total": 1.0}),
            rollout("a", 1, usage=Usage(10, 8, 0.5), turns=1, seconds={"total": 3.0}),
        ]
    )
    assert report.completion_tokens == 6
    assert report.prompt_tokens_total == 20
    assert report.cost_usd == 1.0
    assert report.turns == 1.5
    assert (report.tool_calls, report.tool_errors) == (1.0, 1)
    assert report.seconds_p95 == 3.0


def test_an_empty_report_is_plain_json():
    import json

    json.dumps(summarise([]).to_dict(), allow_nan=False)
    json.dumps(summarise([rollout()]).to_dict(), allow_nan=False)


def test_comparison_pairs_by_example_and_sorts_by_regression():
    base = [rollout(e, s, 0.5) for e in "abcd" for s in range(2)]
    other = [rollout(e, 0, v) for e, v in zip("bcde", (0.9, 0.1, 0.5, 1.0), strict=True)]
    got = compare(base, other)
    assert [(p.example_id, round(p.delta, 3)) for p in got.pairs] == [("c", -0.4), ("d", 0.0), ("b", 0.4)]
    assert (got.only_in_base, got.only_in_other) == (1, 1)
    assert got.reward.mean == pytest.approx(0.0)
    assert got.verdict == "no clear difference"
    assert got.components["x"].mean == pytest.approx(0.0)


def test_comparison_verdicts():
    many = "abcdefghijkl"
    base = [rollout(e, 0, 0.2) for e in many]
    better = [rollout(e, 0, 0.9 if i % 4 else 0.3) for i, e in enumerate(many)]
    assert compare(base, better).verdict == "better"
    assert compare(better, base).verdict == "worse"
    assert "nothing to compare" in compare(base, [rollout("z")]).verdict


def test_the_most_common_message_of_each_kind_is_told():
    failed = [rollout(str(i), error=Failure("OSError", "disk\nfull" if i else "x" * 500)) for i in range(3)]
    report = summarise([*failed, rollout("u", 0, None, unscored={"x": "judge away"})])
    assert report.to_dict()["error_reasons"] == {"OSError": {"message": "disk full", "count": 2}}
    assert report.to_dict()["unscored_reasons"] == {"x": {"message": "judge away", "count": 1}}
    assert len(summarise(failed[:1]).error_reasons["OSError"].message) == 200


def test_comparison_counts_unscored_apart_from_absent():
    got = compare(
        [rollout("a"), rollout("b"), rollout("c", 0, None), rollout("d", 0, None)],
        [rollout("a"), rollout("b", 0, None), rollout("c"), rollout("d", 0, None), rollout("e")],
    )
    assert (got.only_in_base, got.only_in_other) == (0, 1)
    assert (got.scored_only_in_base, got.scored_only_in_other, got.scored_in_neither) == (1, 1, 1)


def test_comparison_lists_new_and_gone_components():
    got = compare([rollout("a", rewards={"x": 1.0, "old": 0.0})], [rollout("a", rewards={"x": 1.0, "new": 0.0})])
    assert (got.new_components, got.gone_components) == (["new"], ["old"])


class Right(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"x": float(messages[-1]["content"] == "right")}


class Left(Right):
    pass


async def test_a_folder_belongs_to_one_environment_model_and_group_size(tmp_path):
    examples = load_examples([{"prompt": "hm", "ground_truth": "right"}])
    folder = str(tmp_path / "run")

    async def play(env, answer, name="a", size=1):
        async with EnvHost(env) as host:
            model = ScriptedModel(answer, name=name)
            return await evaluate(host, examples, model, group_size=size, directory=folder)

    assert (await play(Right, "wrong")).report.reward.mean == 0.0
    for other, says in (
        ((Right, "right", "b"), "holds an evaluation of model a, and this one is of model b"),
        ((Left, "wrong"), "of env Right, and this one is of env Left"),
        ((Right, "wrong", "a", 2), "of group size 1, and this one is of group size 2"),
        ((Right, "right"), "of script"),
    ):
        with pytest.raises(UsageError, match=says) as caught:
            await play(*other)
        assert "Choose another folder" in str(caught.value)
    assert len((await play(Right, "wrong")).rollouts) == 1
    (tmp_path / "run" / "eval.json").unlink()  # a folder of an older version: its rollouts tell
    with pytest.raises(UsageError, match="of model a"):
        await play(Right, "right", "b")


def test_gold_needs_answers_to_give():
    known, unknown = {"prompt": "a", "ground_truth": "b"}, {"prompt": "c"}
    with pytest.raises(UsageError, match="has no gold answer for 2 of 2 examples"):
        open_model("scripted:gold", env_class=Right, examples=load_examples([unknown, {"prompt": "d"}]))
    open_model("scripted:gold", env_class=Right, examples=load_examples([known, unknown]))


async def test_gold_answers_whatever_turn_the_prompt_ends_with():
    class Gold(BaseEnv):
        @classmethod
        def gold_completion(cls, example):
            return example["task"]["gold"]

        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"right": float(messages[-1]["content"] == task["gold"])}

    asked, answered = {"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "Let me see."}
    prompts = [[asked], [asked, answered], [asked, answered, {"role": "user", "content": "Well?"}]]
    examples = [make_example(prompt, {"gold": f"answer {index}"}) for index, prompt in enumerate(prompts)]
    async with EnvHost(Gold) as host:
        result = await evaluate(host, examples, open_model("scripted:gold", env_class=Gold, examples=examples))
    assert result.report.reward.mean == 1.0


def test_a_located_model_means_the_same_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("smollm2-135m", "mine", "adapter", "org/name"):
        (tmp_path / folder).mkdir(parents=True)
    located = {
        "smollm2-135m": "smollm2-135m",  # the known model wins over a folder of its name
        "./smollm2-135m": f"{tmp_path}/smollm2-135m",
        "mine": f"{tmp_path}/mine",
        "org/name": f"{tmp_path}/org/name",
        "org/other": "org/other",
        "smollm2-135m:adapter": f"smollm2-135m:{tmp_path}/adapter",
        "mine:adapter": f"{tmp_path}/mine:{tmp_path}/adapter",
        "scripted:mine": "scripted:mine",
    }
    assert {spec: EvalSpec("math", model=spec).located().model for spec in located} == located
    assert EvalSpec("math", model="mine", base_url="http://localhost/v1").located().model == "mine"


def test_an_example_set_is_short_to_look_at():
    rows = [{"prompt": f"question {i}" * 50, "ground_truth": "x"} for i in range(1200)]
    assert repr(load_examples(rows)) == "<ExampleSet: 1,200 examples from rows, 0 errors, 0 warnings>"


async def test_a_server_that_tells_an_endless_cost_does_not_end_the_evaluation(tmp_path):
    def answer(body):
        message = {"role": "assistant", "content": "4"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "cost": float("inf")}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}

    examples = [make_example([{"role": "user", "content": "2 + 2?"}], {"gold": "4"})]
    async with FakeModelServer(answer) as server, HttpModel("m", server.base_url) as model, EnvHost(Right) as host:
        done = await evaluate(host, examples, model, directory=tmp_path)
    assert done.report.cost_usd == 0.0
    assert [rollout.ok for rollout in read_rollouts(tmp_path)] == [True]


def test_files_are_utf8_whatever_the_locale(tmp_path):
    program = (
        "import sys; from pathlib import Path; from benchmax.evaluation.resume import read_config, save_config\n"
        "path = Path(sys.argv[1]); save_config(path, {'model': '\\xe8 \\udcff \\u6a21'})\n"
        "print(ascii(read_config(path)))"
    )
    locale = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=locale, capture_output=True, text=True)
    assert done.stdout.strip() == ascii({"model": "è ? 模"}), done.stderr


def test_a_file_of_something_else_is_told_by_its_line(tmp_path):
    file = tmp_path / "rows.jsonl"
    for line in ('{"prompt": "2 + 2?"}', "[1]", '{"id": "a", "example_id": "b", "usage": [1]}', '{"v": "x"}'):
        file.write_text(line + "\n")
        with pytest.raises(RecordError, match=r"rows\.jsonl:1 .*rollout.*Give"):
            list(read_rollouts(file))


def test_fields_of_a_later_benchmax_are_left_alone_at_any_depth():
    record = Rollout(id="r", example_id="e", error=Failure("ToolError", "no"), usage=Usage(1, 2)).to_dict()
    for part in ("error", "usage"):
        record[part]["later"] = 1
    record["tool_events"] = [{"turn": 1, "name": "add", "ok": True, "seconds": 0.1, "later": 1}]
    record["tokens"] = [{"ids": [1], "sampled": True, "later": 1}]
    record["logs"] = [{"level": "INFO", "message": "m", "seconds": 0.1, "later": 1}]
    read = Rollout.from_dict(record)
    assert (read.error.message, read.usage.completion_tokens) == ("no", 2)
    assert (read.tool_events[0].name, read.tokens[0].ids, read.logs[0].message) == ("add", [1], "m")


async def test_an_evaluation_is_not_kept_in_a_file(tmp_path):
    class Env(BaseEnv):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            return {"a": 1.0}

    (tmp_path / "file").write_text("x")
    async with EnvHost(Env) as host:
        with pytest.raises(UsageError, match="is a file"):
            await evaluate(host, [], ScriptedModel("x"), directory=tmp_path / "file")
