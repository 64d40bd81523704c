"""Each alarm rings for its own trouble and stays quiet in a healthy run."""

from __future__ import annotations

import json

import pytest

from benchmax.models.base import TokenSegment
from benchmax.rollouts.record import Failure, Rollout
from benchmax.trainer.config import WatchConfig
from benchmax.trainer.watchdogs import Watchdogs, is_repetitive


def rollout(reward: float | None = 0.5, tokens: list[int] | None = None, **rewards: float) -> Rollout:
    segments = [TokenSegment([1], False), TokenSegment(tokens or [1, 2, 3], True)]
    return Rollout(f"r{reward}", "e", reward=reward, rewards=rewards, tokens=segments)


def ring(history: list[dict[str, float]], *rollouts: Rollout, **config) -> dict[str, object]:
    dogs = Watchdogs(WatchConfig(**config))
    found = {}
    for step, values in enumerate(history):
        for alert in dogs.look(step, {"groups/used": 4.0, **values}, [rollouts or (rollout(),)]):
            found.setdefault(alert.kind, alert)
            json.dumps(alert.to_dict(), allow_nan=False)
    return found


def healthy(step: int) -> dict[str, float]:
    done = min(1.0, step / 20)
    return {
        "reward/mean": 0.1 + 0.85 * done, "reward/max": 1.0, "solve_rate": done, "entropy": 1.0 - 0.98 * done,
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


def test_entropy_collapse_only_when_nothing_is_solved():
    falling = [{"entropy": max(0.001, 1 - step / 8), "solve_rate": 0.2} for step in range(14)]
    assert "entropy_collapse" in ring(falling)
    assert "entropy_collapse" not in ring([values | {"solve_rate": 0.95} for values in falling])


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


def test_entropy_blow_up_rings_for_what_was_lost():
    def entropies(first, last, vocabulary):
        dogs = Watchdogs()
        dogs.vocabulary = vocabulary
        values = [{"entropy": first}] * 4 + [{"entropy": last}] * 4
        found = [alert for step, value in enumerate(values) for alert in dogs.look(step, value, [])]
        return [alert for alert in found if alert.kind == "entropy_blow_up"]

    (alert,) = entropies(0.33, 10.79, 49_152)
    assert "entropy 0.33 → 7.30; evenly over its vocabulary is 10.80" in alert.message
    assert entropies(10.78, 10.79, 49_152) == [], "it began at random"
    assert entropies(0.3, 1.5, 49_152) == []


def test_held_out_collapse():
    dogs = Watchdogs(WatchConfig(window=5))
    assert dogs.look_at_held_out(0, None, 0.36, []) == []
    assert dogs.look_at_held_out(4, 0.36, 0.3, []) == []
    (alert,) = dogs.look_at_held_out(9, 0.36, 0.0, [[rollout(0.0)]])
    assert (alert.kind, alert.step, alert.rollouts) == ("held_out_collapse", 9, ["r0.0"])
    assert "held-out reward fell from 0.36 to 0.00" in alert.message
    assert dogs.look_at_held_out(10, 0.36, 0.0, []) == [], "once per window"
    assert dogs.look_at_held_out(14, 0.36, None, []) == []


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


def test_equal_groups():
    silent = [{"groups/used": 0.0, "reward/mean": 0.0} for _ in range(20)]
    assert "partial credit" in ring(silent)["no_signal"].message
    assert "harder rows" in ring([values | {"reward/mean": 1.0} for values in silent])["no_signal"].message
    assert "no_signal" not in ring(silent[:19])


def test_a_start_without_any_signal_is_told_after_four_steps_and_once():
    silent = [{"groups/used": 0.0, "reward/mean": 0.0, "reward/min": 0.0, "reward/max": 0.0} for _ in range(4)]
    alert = ring(silent, rollout(0.0))["nothing_learned"]
    assert (alert.step, alert.rollouts, alert.evidence["highest"]) == (3, ["r0.0"], 0.0)
    assert "equal rewards (all 0), so no update has happened" in alert.message
    assert "group_size" in alert.message
    assert "rollouts." not in alert.message, "the words fit a launch too"
    solved = [values | dict.fromkeys(("reward/mean", "reward/min", "reward/max"), 1.0) for values in silent]
    assert "harder rows" in ring(solved)["nothing_learned"].message
    assert "nothing_learned" not in ring(silent[:3])
    assert "nothing_learned" not in ring([{}, *silent]), "an update has happened"
    assert "nothing_learned" not in ring([{"groups/used": 0.0, "unscored": 1.0}] * 4), "another alarm tells that"
    dogs = Watchdogs()
    assert sum(alert.kind == "nothing_learned" for n in range(40) for alert in dogs.look(n, silent[0], [])) == 1


def test_drift_nan_unscored_and_a_flat_reward():
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
    flat = ring([{"reward/mean": 0.2, "reward/max": 1.0, "lr": 2e-5} for _ in range(20)])["not_moving"]
    assert "6.0e-05" in flat.message
    high = ring([{"reward/mean": 0.2, "reward/max": 1.0, "lr": 3e-2} for _ in range(20)])["not_moving"]
    assert "9.0e-02" not in high.message
    assert "optim.lr is high already (3.0e-02)" in high.message


def test_an_alarm_rings_once_per_window_and_survives_a_resume():
    dogs = Watchdogs(WatchConfig(window=5))
    rang = [len(dogs.look(step, {"drift": 1.0, "groups/used": 1.0}, [])) for step in range(6)]
    assert rang == [1, 0, 0, 0, 0, 1]
    again = Watchdogs(WatchConfig(window=5))
    again.restore(json.loads(json.dumps(dogs.state())))
    assert again.look(6, {"drift": 1.0, "groups/used": 1.0}, []) == []


def test_prompts_that_do_not_fit_raise_an_alarm():
    from benchmax.rollouts.record import Rollout, Termination
    from benchmax.trainer.watchdogs import too_long

    def group(reason):
        return [Rollout(id=f"r{i}", example_id="x", sample=i, termination=reason) for i in range(4)]

    over, fine = group(Termination.CONTEXT_EXCEEDED), group(Termination.FINISHED)
    (alert,) = too_long(None, 3, [over])
    assert alert.kind == "too_long"
    assert "did not fit the model's context" in alert.message
    assert not list(too_long(None, 3, [fine, fine, fine, over]))
    assert "unscored" not in ring([{"unscored": 1.0}], *over), "one alarm for one trouble"
