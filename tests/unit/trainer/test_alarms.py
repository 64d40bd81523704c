"""Each alarm rings for its own trouble and stays quiet in a healthy run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.types import ToolCall, ToolDefinition
from benchmax.models.base import Reply, TokenSegment, Usage
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts import EnvHost, RolloutSettings, run_rollout
from benchmax.rollouts.record import Failure, Rollout, Termination
from benchmax.trainer.config import WatchConfig
from benchmax.trainer.learning.advantage import assign_advantages
from benchmax.trainer.sampling.step_metrics import rollout_metrics
from benchmax.trainer.watch.monitor import ALARMS, HELD_OUT_ALARMS, Monitor
from benchmax.trainer.watch.response_alarms import is_repetitive

DOCS = Path(__file__).parents[3] / "docs" / "training.md"


def rollout(reward: float | None = 0.5, tokens: list[int] | None = None, **rewards: float) -> Rollout:
    segments = [TokenSegment([1], False), TokenSegment(tokens or [1, 2, 3], True)]
    return Rollout(f"r{reward}", "e", reward=reward, rewards=rewards, tokens=segments)


def ring(history: list[dict[str, float]], *rollouts: Rollout, **config) -> dict[str, object]:
    monitor = Monitor(WatchConfig(**config))
    found = {}
    for step, values in enumerate(history):
        for alert in monitor.check_step(step, {"groups/used": 4.0, **values}, [rollouts or (rollout(),)]):
            found.setdefault(alert.kind, alert)
            json.dumps(alert.to_dict(), allow_nan=False)
    return found


def group(*rewards: float | None) -> list[Rollout]:
    """Siblings as the trainer leaves them: what they earned, and why they were left out."""
    rollouts = [rollout(reward) for reward in rewards]
    for sample, one in enumerate(rollouts):
        one.sample, one.ok = sample, one.reward is not None
        one.error = None if one.ok else Failure("RewardError", "judge is down")
    assign_advantages(rollouts)
    return rollouts


def measured(groups: list[list[Rollout]], **values: float) -> dict[str, float]:
    used = sum(any(one.discarded is None for one in siblings) for siblings in groups)
    return rollout_metrics(groups) | {"groups/used": float(used)} | values


def watch(steps: list[tuple[dict[str, float], list[list[Rollout]]]]) -> dict[str, object]:
    """The first alert of each kind, of a run of these steps."""
    monitor, found = Monitor(), {}
    for step, (values, groups) in enumerate(steps):
        for alert in monitor.check_step(step, values, groups):
            found.setdefault(alert.kind, alert)
            json.dumps(alert.to_dict(), allow_nan=False)
    return found


def healthy(step: int) -> dict[str, float]:
    done = min(1.0, step / 20)
    return {
        "reward/mean": 0.1 + 0.85 * done, "reward/max": 1.0, "reward/std": 0.3, "entropy": 1.0 - 0.98 * done,
        "response_tokens/mean": 20 - 5 * done, "drift": 0.001, "lr": 5e-4,
        "reward_stats/format/reward/mean": min(1.0, 0.3 + 2 * done), "reward_stats/correct/reward/mean": done,
    }  # fmt: skip


def test_a_healthy_run_is_quiet():
    assert ring([healthy(step) for step in range(60)], rollout(format=1.0, correct=1.0)) == {}


def test_reward_collapse():
    alert = ring([{"reward/mean": mean} for mean in [0.2, 0.6, 0.8, 0.8, 0.8, 0.3, 0.2, 0.1]])["reward_collapse"]
    assert "best checkpoint" in alert.message
    assert alert.evidence["best"] == pytest.approx(0.8)
    assert alert.rollouts


def certain(first: list[list[Rollout]], later: list[list[Rollout]]) -> dict[str, object]:
    """A run whose entropy falls to nothing; its answers are the first ones for two steps, then the later ones."""
    steps = [(max(0.001, 1 - step / 8), first if step < 2 else later) for step in range(14)]
    return watch([(measured(groups, entropy=entropy), groups) for entropy, groups in steps])


@pytest.mark.parametrize("scale", [1.0, 0.01, 100.0])
def test_entropy_collapse_only_when_the_model_earns_less_than_was_seen(scale):
    mixed = [group(0.0, scale, 0.0, 0.0), group(0.0, 0.0, scale, 0.0)]
    failed, solved = group(*[0.0] * 4), group(*[scale] * 4)
    alert = certain(mixed, [solved, failed, failed, failed, failed])["entropy_collapse"]
    assert alert.evidence["reward"] == pytest.approx(0.2 * scale)
    assert alert.evidence["best"] == scale
    assert "entropy_collapse" not in certain(mixed, [solved] * 9 + [failed])


@pytest.mark.parametrize(("low", "best"), [(0.0, 0.5), (-1.0, 0.0), (0.0, 40.0)])
def test_a_model_certain_of_the_best_answers_there_are_has_not_collapsed(low, best):
    assert "entropy_collapse" not in certain([group(low, best, low, low)], [group(*[best] * 4)])


SCALES = [(0.0, 1.0), (-1.0, 0.0), (0.0, 0.05), (-100.0, 0.0), (0.0, 100.0)]


@pytest.mark.parametrize(("low", "high"), SCALES)
def test_a_collapse_is_one_on_every_scale(low, high):
    def curve(*shares):
        means = [low + share * (high - low) for share in shares]
        return ring([{"reward/mean": mean, "reward/min": low, "reward/max": high} for mean in means])

    assert "reward_collapse" in curve(0.2, 0.6, 0.8, 0.8, 0.8, 0.3, 0.2, 0.1)
    assert "reward_collapse" not in curve(0.9, 0.95, 0.95, 0.95, 0.9, 0.8, 0.8, 0.8)
    assert "reward_collapse" not in curve(0.05, 0.08, 0.08, 0.08, 0.02, 0.01, 0.01, 0.01)


@pytest.mark.parametrize(("low", "high"), SCALES)
def test_longer_answers_that_earn_more_are_no_blow_up_on_any_scale(low, high):
    steps = [
        {"response_tokens/mean": 20 + 4 * n, "reward/mean": low + n / 20 * (high - low)}
        | {"reward/min": low, "reward/max": high}
        for n in range(12)
    ]
    assert "length_blow_up" not in ring(steps)
    assert "length_blow_up" in ring([values | {"reward/mean": low} for values in steps])


def test_length_blow_up():
    growing = [{"response_tokens/mean": 10.0 + 4 * step, "reward/mean": 0.3} for step in range(12)]
    assert "length_blow_up" in ring(growing)
    earned = [values | {"reward/mean": 0.3 + 0.05 * step} for step, values in enumerate(growing)]
    assert "length_blow_up" not in ring(earned)
    cut = ring([values | {"truncated": min(1.0, step / 5)} for step, values in enumerate(earned)])["length_blow_up"]
    assert "100% are cut off" in cut.message, "paid for length, until no answer comes to its end"


def test_answers_that_are_all_cut_off():
    shares = [0.0, 0.4, 0.97, 1.0, 1.0]
    alert = ring([{"truncated": share} for share in shares])["all_cut_off"]
    assert (alert.step, alert.evidence) == (4, {"truncated": 1.0})
    assert "99% of the answers of the last 3 steps were cut off at rollouts.max_new_tokens" in alert.message
    assert "all_cut_off" not in ring([{"truncated": 0.9} for _ in range(20)])


ASKED = make_example([{"role": "user", "content": "?"}])


class Asking(BaseEnv):
    async def list_tools(self):
        return [ToolDefinition("ask", "Asks.")]

    async def run_tool(self, rollout_id, tool_name, **args):
        return "yes"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"said": 1.0}


async def play(*replies: Reply, **settings) -> Rollout:
    async with EnvHost(Asking) as host:
        return await run_rollout(host, ASKED, ScriptedModel(replies), RolloutSettings(**settings))


async def test_answers_cut_at_the_budget_of_a_rollout_are_cut_off():
    calls = [ToolCall("ask", {}, "1").to_dict()]
    asks = Reply({"role": "assistant", "content": "", "tool_calls": calls}, "tool_calls", Usage(1, 5))
    cut = Reply({"role": "assistant", "content": "and"}, "length", Usage(1, 5))
    by_turn, by_budget = await play(cut), await play(cut, max_tokens=5)
    later, between = await play(asks, cut, max_tokens=10), await play(asks, asks, max_tokens=10)
    assert by_turn.termination is Termination.OUTPUT_EXCEEDED
    assert {one.termination for one in (by_budget, later, between)} == {Termination.TOKEN_BUDGET}
    shares = [rollout_metrics([[one]])["truncated"] for one in (by_turn, by_budget, later, between)]
    assert shares == [1.0, 1.0, 1.0, 0.0], "whose last turn was whole was not cut off"

    def told(*rollouts: Rollout) -> str:
        groups = [list(rollouts)]
        return watch([(rollout_metrics(groups), groups)] * 3)["all_cut_off"].message

    assert "steps were cut off at rollouts.max_tokens. Raise it" in told(by_budget, later)
    assert "steps were cut off at rollouts.max_new_tokens. Raise it" in told(by_turn)
    assert "cut off at rollouts.max_new_tokens or rollouts.max_tokens. Raise" in told(by_turn, by_budget)


def test_entropy_blow_up_rings_for_what_was_lost():
    def entropies(first, last, vocabulary):
        monitor = Monitor()
        monitor.history.vocabulary = vocabulary
        values = [{"entropy": first}] * 4 + [{"entropy": last}] * 4
        found = [alert for step, value in enumerate(values) for alert in monitor.check_step(step, value, [])]
        return [alert for alert in found if alert.kind == "entropy_blow_up"]

    (alert,) = entropies(0.33, 10.79, 49_152)
    assert "entropy 0.33 → 7.30; evenly over its vocabulary is 10.80" in alert.message
    assert entropies(10.78, 10.79, 49_152) == [], "it began at random"
    assert entropies(0.3, 1.5, 49_152) == []


def test_held_out_collapse():
    monitor = Monitor(WatchConfig(window=5))
    assert monitor.check_evaluation(0, None, 0.36, []) == []
    assert monitor.check_evaluation(4, 0.36, 0.3, []) == []
    assert monitor.check_evaluation(9, 0.36, 0.0, [[rollout(0.0)]] * 7) == [], "of seven rows that may be chance"
    (alert,) = monitor.check_evaluation(9, 0.36, 0.0, [[rollout(0.0)]] * 40)
    assert (alert.kind, alert.step, set(alert.rollouts)) == ("held_out_collapse", 9, {"r0.0"})
    assert "held-out reward fell from 0.36 to 0.00" in alert.message
    assert monitor.check_evaluation(10, 0.36, 0.0, []) == [], "once per window"
    assert monitor.check_evaluation(14, 0.36, None, []) == []


def test_held_out_rows_without_a_reward():
    monitor = Monitor(WatchConfig(window=5))
    assert monitor.check_evaluation(0, None, 1.0, [group(1.0, 1.0, 1.0, None)]) == []
    assert monitor.check_evaluation(0, None, None, []) == []
    (alert,) = monitor.check_evaluation(3, 1.0, 1.0, [group(1.0, 1.0), group(None, None)])
    assert (alert.kind, alert.step, alert.rollouts) == ("held_out_unscored", 3, ["rNone", "rNone"])
    assert alert.evidence == {"share": 0.5}
    assert "50% of the held-out rollouts got no reward" in alert.message
    assert "The most common reason: RewardError: judge is down." in alert.message
    assert monitor.check_evaluation(4, 1.0, None, [group(None, None)]) == [], "once per window"
    (alert,) = monitor.check_evaluation(8, 1.0, None, [group(None, None)])
    assert "100% of the held-out rollouts" in alert.message


def test_the_form_is_learned_and_the_answer_is_not():
    """What is right earns a little by chance, and not always the same."""
    noise = [0.02, 0.03, 0.026, 0.021, 0.03]
    history = [
        {"reward_stats/form/reward/mean": 0.5 if step < 4 else 1.0, "reward_stats/right/reward/mean": noise[step % 5]}
        for step in range(20)
    ]
    alert = ring(history, rollout(1.02, form=1.0, right=0.045))["component_saturated"]
    assert alert.step == 13
    assert "form is paid in full for 10 steps while right does not move" in alert.message
    rising = [values | {"reward_stats/right/reward/mean": 0.005 * step} for step, values in enumerate(history)]
    assert "component_saturated" not in ring(rising, rollout(1.02, form=1.0, right=1.0))


def test_the_empty_tags_story():
    """Format paid in full, correctness at nothing: the model writes empty tags for ever."""
    history = [
        {"reward_stats/format/reward/mean": min(0.2, 0.02 * step), "reward_stats/correct/reward/mean": 0.0}
        for step in range(30)
    ]
    alert = ring(history, rollout(0.2, format=0.2, correct=0.0))["component_saturated"]
    assert "format is paid in full" in alert.message
    assert "correct does not move" in alert.message
    assert alert.rollouts == ["r0.2"]


def test_repetition():
    loop = [5, 6, 7] * 12
    assert is_repetitive(loop)
    assert not is_repetitive(list(range(40)))
    assert not is_repetitive([5, 6] * 5), "short answers may repeat"
    assert "repetition" in ring([{}], rollout(tokens=loop), rollout(tokens=loop), rollout())


def silent(*groups: list[Rollout], steps: int = 4) -> dict[str, object]:
    return watch([(measured(list(groups)), list(groups))] * steps)


def test_equal_groups():
    alert = silent(group(0.0, 0.0), steps=20)["no_signal"]
    assert "For 20 steps the samples of each prompt got equal rewards (all 0), so nothing was learned." in alert.message
    assert "partial credit" in alert.message
    assert "no_signal" not in silent(group(0.0, 0.0), steps=19)


@pytest.mark.parametrize("earned", [1.0, 0.5, 0.0, -1.0, 30.0])
def test_equal_rewards_are_told_without_a_guess_at_their_scale(earned):
    alerts = silent(group(*[earned] * 4), steps=20)
    for message in (alerts["nothing_learned"].message, alerts["no_signal"].message):
        assert f"equal rewards (all {earned:g})" in message
        assert "solved" not in message, "whether there is more to earn cannot be seen"
        assert "harder rows" in message
        assert "group_size" in message


def test_a_start_without_any_signal_is_told_after_four_steps_and_once():
    alert = silent(group(0.0, 0.0))["nothing_learned"]
    assert (alert.step, alert.rollouts, alert.evidence["highest"]) == (3, ["r0.0", "r0.0"], 0.0)
    assert "in all 4 steps the samples of each prompt got equal rewards (all 0), so no update has" in alert.message
    assert "group_size" in alert.message
    assert "rollouts." not in alert.message, "the words fit a launch too"
    assert "equal rewards (from 0 to 1)" in silent(group(0.0, 0.0), group(1.0, 1.0))["nothing_learned"].message
    assert "nothing_learned" not in silent(group(0.0, 0.0), steps=3)
    steps = [[group(0.0, 1.0)], *[[group(0.0, 0.0)]] * 4]
    assert "nothing_learned" not in watch([(measured(groups), groups) for groups in steps]), "an update has happened"
    assert "nothing_learned" not in silent(group(None, None)), "another alarm tells that"
    monitor, groups = Monitor(), [group(0.0, 0.0)]
    rang = [alert.kind for step in range(40) for alert in monitor.check_step(step, measured(groups), groups)]
    assert rang.count("nothing_learned") == 1


def test_groups_with_too_few_rewards_are_not_called_equal():
    alerts = silent(group(0.0, 1.0, None, None), steps=20)
    for message in (alerts["nothing_learned"].message, alerts["no_signal"].message):
        assert "steps too few samples of each prompt got a reward, so" in message
        assert "equal" not in message
        assert "The most common reason: RewardError: judge is down." in message
        assert "group_size" not in message
    assert alerts["nothing_learned"].evidence["groups"] == {"unscored": 4}
    both = silent(group(0.0, 1.0, None, None), group(1.0, 1.0, 1.0, None), group(None, None))["nothing_learned"]
    assert "too few samples of 8 of 12 prompts got a reward, the samples of 4 of 12 prompts got equal" in both.message
    assert "judge is down" in both.message
    mostly = silent(group(0.0, 0.0), group(1.0, 1.0), group(None, None))["nothing_learned"]
    assert "the samples of 8 of 12 prompts got equal rewards, too few samples of 4 of 12 prompts" in mostly.message
    assert "group_size" in mostly.message
    empty = group(0.0, 1.0)
    for one in empty:
        one.tokens = []
    assign_advantages(empty)
    assert "too few samples of each prompt have tokens to learn from" in silent(empty)["nothing_learned"].message


def test_why_a_run_has_no_signal_survives_a_resume():
    monitor, groups = Monitor(), [group(0.0, 1.0, None, None)]
    for step in range(3):
        monitor.check_step(step, measured(groups), groups)
    again = Monitor()
    again.restore(json.loads(json.dumps(monitor.state())))
    found = {alert.kind: alert for alert in again.check_step(3, measured(groups), groups)}
    assert found["nothing_learned"].evidence["groups"] == {"unscored": 4}


def test_drift_nan_and_unscored():
    assert "drift" in ring([{"drift": 0.2}])
    assert "weights are unharmed" in ring([{"skipped_updates": 1.0}])["not_finite"].message
    failed = rollout(None)
    failed.error = Failure("RewardError", "judge is down")
    assert "reason: RewardError: judge is down." in ring([{"unscored": 0.5}], failed)["unscored"].message
    failed.error = Failure.of(KeyError("missing"), "compute_reward")
    assert "reason: KeyError: 'missing'." in ring([{"unscored": 0.5}], failed)["unscored"].message
    failed.error = Failure.of(TimeoutError(), "compute_reward")
    assert "reason: TimeoutError." in ring([{"unscored": 0.5}], failed)["unscored"].message
    failed.error = Failure("ValueError", "x" * 5000)
    assert len(ring([{"unscored": 0.5}], failed)["unscored"].message) < 1000, "an environment's words are bounded"
    nan = rollout(None)
    nan.unscored = {"r": "Reward 'r' is nan; return a finite number."}
    assert "'r' is nan; return" in ring([{"unscored": 0.5}], nan)["unscored"].message


def plateau(*groups: list[Rollout], lr: float = 2e-5) -> dict[str, object]:
    return watch([(measured(list(groups), lr=lr), list(groups))] * 20)


@pytest.mark.parametrize("scale", [1.0, 0.01, 100.0])
def test_a_flat_reward(scale):
    rewards = group(scale, *[0.0] * 4)
    flat = plateau(rewards)["not_moving"]
    assert f"has not moved for 20 steps (at {0.2 * scale:.3g} on average; the best answer earned {scale:.3g})" in (
        flat.message
    )
    assert "6.0e-05" in flat.message
    high = plateau(rewards, lr=3e-2)["not_moving"]
    assert "9.0e-02" not in high.message
    assert "optim.lr is high already (3.0e-02)" in high.message
    rising = [[group(*[scale] * (1 + step // 4), *[0.0] * (30 - step // 4))] for step in range(20)]
    assert "not_moving" not in watch([(measured(groups, lr=2e-5), groups) for groups in rising])


@pytest.mark.parametrize(("worse", "best"), [(-0.1, 0.0), (0.0, 1.0), (-5.0, -1.0), (0.0, 0.01)])
def test_a_reward_that_stays_near_the_best_there_is_need_not_move(worse, best):
    assert "not_moving" not in plateau(group(*[best] * 99, worse))


def test_an_alarm_rings_once_per_window_and_survives_a_resume():
    monitor = Monitor(WatchConfig(window=5))
    rang = [len(monitor.check_step(step, {"drift": 1.0, "groups/used": 1.0}, [])) for step in range(6)]
    assert rang == [1, 0, 0, 0, 0, 1]
    again = Monitor(WatchConfig(window=5))
    again.restore(json.loads(json.dumps(monitor.state())))
    assert again.check_step(6, {"drift": 1.0, "groups/used": 1.0}, []) == []


def test_prompts_that_do_not_fit_raise_an_alarm():
    def group(reason):
        return [Rollout(id=f"r{i}", example_id="x", sample=i, termination=reason) for i in range(4)]

    over, fine = group(Termination.CONTEXT_EXCEEDED), group(Termination.FINISHED)
    alert = ring([{}], *over)["too_long"]
    assert "did not fit the model's context" in alert.message
    assert "too_long" not in ring([{}], *fine, *fine, *fine, *over)
    assert "unscored" not in ring([{"unscored": 1.0}], *over), "one alarm for one trouble"


def test_every_alert_is_documented():
    documented = DOCS.read_text()
    alarms = [*ALARMS, *HELD_OUT_ALARMS]
    assert [alarm.__name__ for alarm in alarms if f"`{alarm.__name__}`" not in documented] == []
