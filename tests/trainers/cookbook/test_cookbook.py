"""Our environments as the cookbook's own: played by its rollout functions, turned into data by its data processing."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import re
from concurrent.futures import ProcessPoolExecutor

import pytest
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.rollout_limits import RolloutLimits
from tinker_cookbook.rl.rollout_runner import run_rollout
from tinker_cookbook.rl.rollout_strategy import FailFast, MinViableGroup, RetryOnFailure
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder
from tinker_cookbook.tokenizer_utils import register_tokenizer

from benchmax import limits
from benchmax.adapters.tinker.cookbook import dataset_builder
from benchmax.rollouts import RolloutSettings
from trainer_pages import check_install, page
from trainer_world import CASES, TEMPLATES, RankedSumEnv, Script, SumEnv, expected, tokenizer

RELEASED: list[str] = []
for _template in TEMPLATES:
    register_tokenizer(f"scripted/{_template.name}", lambda template=_template: tokenizer(template))


class Scripted(TokenCompleter):
    """Plays a script in the model's place; some of its calls fail."""

    def __init__(self, script: Script, failing: int = 0) -> None:
        self.script, self.failing = script, failing

    async def __call__(self, model_input, stop, *, max_tokens=None):
        await asyncio.sleep(0)
        if self.failing:
            self.failing -= 1
            raise ConnectionError("the sampler is gone")
        ids, logprobs = self.script.next_turn(model_input.to_ints())
        assert ids[-1] in stop
        return TokensWithLogprobs(ids, logprobs)


def made(case, env=None, **given):
    settings = RolloutSettings(max_turns=case.max_turns)
    return dataset_builder(
        env or case.env, [case.example], model_name=f"scripted/{case.template.name}", group_size=len(case.samples),
        **{"settings": settings, **given},
    )  # fmt: skip


async def group_of(case, env=None, **given) -> EnvGroupBuilder:
    train, _ = await made(case, env, **given)()
    (builder,) = train.get_batch(0)
    return builder


def ids_of(trajectory) -> list[int]:
    last = trajectory.transitions[-1]
    return last.ob.to_ints() + last.ac.tokens


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_the_cookbook_receives_the_truth(case):
    builder = await group_of(case)
    assert isinstance(builder, EnvGroupBuilder)
    group = await do_group_rollout(builder, Scripted(Script([case])))
    truths = expected(case)
    paid = [truth.reward for truth in truths if truth.reward is not None]
    mean = sum(paid) / len(paid)
    advantages = compute_advantages([group])
    data, places = assemble_training_data([group], advantages)
    assert [place["traj_idx"] for place in places] == [0, 1, 2, 3]  # one datum each: turns join
    order = sorted(range(4), key=lambda index: ids_of(group.trajectories_G[index]))
    for index, truth in zip(order, truths, strict=True):
        inputs = {name: value.to_numpy() for name, value in data[index].loss_fn_inputs.items()}
        whole, before = truth.prompt_ids + truth.response_ids, [0.0] * (len(truth.prompt_ids) - 1)
        assert data[index].model_input.to_ints() == whole[:-1]
        assert inputs["target_tokens"].tolist() == whole[1:]
        assert inputs["logprobs"].tolist() == pytest.approx(before + truth.logprobs, abs=1e-6)
        worth = 0.0 if truth.reward is None else truth.reward - mean
        assert float(advantages[0][index]) == pytest.approx(worth, abs=1e-6)
        assert group.get_total_rewards()[index] == pytest.approx(mean if truth.reward is None else truth.reward)
        assert group.metrics_G[index]["unscored"] == (truth.reward is None)
        assert group.trajectories_G[index].stop_reason == truth.ends


RANKED = next(case for case in CASES if case.env is RankedSumEnv)
TOOLS = next(case for case in CASES if case.env is SumEnv and case.name == "tools")


class Releasing(RankedSumEnv):
    """Notes which rollouts are released."""

    async def init_rollout(self, rollout_id, **kwargs):
        pass

    async def release_rollout(self, rollout_id):
        RELEASED.append(rollout_id)


class BadStart(SumEnv):
    """One rollout in four cannot begin."""

    started = 0

    async def init_rollout(self, rollout_id, **kwargs):
        BadStart.started += 1
        if BadStart.started == 2:
            raise RuntimeError("no room")


class BadReward(SumEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        raise RuntimeError("the judge is out")


@pytest.mark.parametrize("strategy", [MinViableGroup(min_successful=3, max_retries=0), RetryOnFailure(max_retries=1)])
async def test_a_sampler_that_fails_costs_one_rollout_and_nothing_is_left_open(strategy):
    RELEASED.clear()
    builder = await group_of(RANKED, Releasing)
    script = Script([RANKED, RANKED])
    group = await do_group_rollout(builder, Scripted(script, failing=1), strategy=strategy)
    size = 3 if isinstance(strategy, MinViableGroup) else 4
    assert len(group.trajectories_G) == size
    assert max(group.metrics_G[index]["reward/longest"] for index in range(size)) == 0.5  # scored together
    assert len(set(RELEASED)) == size + 1  # the one that failed, too
    assert [error.error_type for error in group.rollout_errors] == ["ConnectionError"]


async def test_a_group_that_fails_as_a_whole_is_released():
    RELEASED.clear()
    builder = await group_of(RANKED, Releasing)
    with pytest.raises(ConnectionError):
        await do_group_rollout(builder, Scripted(Script([RANKED]), failing=1), strategy=FailFast())
    assert len(set(RELEASED)) == 4


async def test_failures_arrive_as_our_reasons():
    BadStart.started = 0
    group = await do_group_rollout(await group_of(TOOLS, BadStart), Scripted(Script([TOOLS])))
    reasons = [trajectory.stop_reason for trajectory in group.trajectories_G]
    assert sorted(reasons) == ["env_error", "finished", "finished", "finished"]
    lost = reasons.index("env_error")
    assert float(compute_advantages([group])[0][lost]) == pytest.approx(0.0, abs=1e-6)
    assert "no room" in group.trajectories_G[lost].transitions[0].logs["error"]

    group = await do_group_rollout(await group_of(TOOLS, BadReward), Scripted(Script([TOOLS])))
    assert {trajectory.stop_reason for trajectory in group.trajectories_G} == {"reward_error"}
    assert group.get_total_rewards() == [0.0] * 4

    prompt = len(expected(TOOLS)[0].prompt_ids)
    group = await do_group_rollout(await group_of(TOOLS, context=prompt - 1), Scripted(Script([TOOLS])))
    assert {trajectory.stop_reason for trajectory in group.trajectories_G} == {"context_exceeded"}
    assert [record["unscored"] for record in group.metrics_G] == [1.0] * 4

    group = await do_group_rollout(await group_of(TOOLS, context=prompt + 80), Scripted(Script([TOOLS])))
    assert "context_exceeded" in {trajectory.stop_reason for trajectory in group.trajectories_G}


async def test_a_limit_of_the_cookbook_ends_a_rollout_that_is_scored():
    builder = await group_of(TOOLS)
    envs = await builder.make_envs()
    policy = Scripted(Script([TOOLS]))
    played = [await run_rollout(policy, env, limits=RolloutLimits(max_turns=1)) for env in envs]
    rewards = await builder.compute_group_rewards(played, envs)
    await builder.cleanup()
    assert "max_turns" in {trajectory.stop_reason for trajectory in played}
    assert {env.rollout.record.termination.value for env in envs} == {"finished", "max_turns_exceeded"}
    assert all(numbers["unscored"] == 0 for _, numbers in rewards)


async def test_batches_hold_every_example_once_in_each_epoch():
    rows = [SumEnv.dataset_preprocess({"prompt": f"{n}?", "ground_truth": str(n)}) for n in range(10)]
    builder = dataset_builder(SumEnv, rows[:7], rows[7:], model_name="scripted/chatml", batch_size=3, epochs=2)
    assert isinstance(builder, RLDatasetBuilder)
    train, test = await builder()
    assert isinstance(train, RLDataset)
    assert (len(train), len(test)) == (6, 1)
    epochs = [
        [each.example["id"] for index in part for each in train.get_batch(index)] for part in ((0, 1, 2), (3, 4, 5))
    ]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(row["id"] for row in rows[:7])
    assert epochs[0] != epochs[1]
    assert [each.group_size for each in test.get_batch(0)] == [1, 1, 1]
    again = pickle.loads(pickle.dumps(train.get_batch(0)[0]))
    assert isinstance(again, EnvGroupBuilder)
    assert again.example == train.get_batch(0)[0].example


def _reward_elsewhere(builder) -> list[float]:
    return asyncio.run(do_group_rollout(builder, Scripted(Script([RANKED])))).get_total_rewards()


async def test_groups_play_in_other_processes():
    builder = await group_of(RANKED)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        rewards = await asyncio.get_running_loop().run_in_executor(pool, _reward_elsewhere, builder)
    assert sorted(rewards) == pytest.approx(sorted(sample.reward for sample in RANKED.samples))


def test_a_turn_waits_as_long_as_a_rollout():
    assert made(TOOLS).train.source.settings.model_seconds == limits.ROLLOUT_SECONDS


def test_the_page_installs_what_is_tested_here():
    (line,) = re.findall(r"`(pip install [^`]*tinker-cookbook[^`]*)`", page("tinker"))
    check_install(line, "cookbook")


async def test_the_code_of_the_page_runs(monkeypatch, tmp_path):
    """It builds the dataset; the training itself needs Tinker's server."""
    (block,) = re.findall(r"```py\n(.*?)```", page("tinker"), re.DOTALL)
    (tmp_path / "main.py").write_text("from trainer_world import SumEnv as MyEnv\n")
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"prompt": "{n}?", "ground_truth": "{n}"}}\n' for n in range(20)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    space: dict = {}
    exec(block, space)
    train, test = await space["config"].dataset_builder()
    assert (len(train), len(test)) == (1, 1)
    assert len(train.get_batch(0)) == 16
