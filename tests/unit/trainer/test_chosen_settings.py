"""What the trainer decides by itself: sizes nobody gave, what a cut-off answer is worth, when a task is solved."""

import pytest
import torch

from benchmax.errors import ConfigError
from benchmax.memory import out_of_memory
from benchmax.models.base import TokenSegment
from benchmax.rollouts.record import Rollout, Termination
from benchmax.trainer.config import OptimConfig, build_config
from benchmax.trainer.config.chosen_settings import fit_to_device, fit_to_size, fit_to_solutions
from benchmax.trainer.learning.advantage import CUT_OFF, NO_SIGNAL, AdvantageRule, CutOff, assign_advantages
from benchmax.trainer.learning.gpu import retry_without_memory
from benchmax.trainer.learning.optim import Optimizer
from benchmax.trainer.progress import Progress
from benchmax.trainer.sampling.prompt_selection import PromptStream
from broken_envs import Good


def answer(reward, length=4, cut=False, turns=1):
    why = Termination.OUTPUT_EXCEEDED if cut else Termination.FINISHED
    tokens = [TokenSegment([1], False), TokenSegment(list(range(length)), True)]
    return Rollout("r", "e", reward=reward, tokens=tokens, termination=why, ok=True, turns=turns)


# --- cut off


def test_a_cut_off_answer_loses_its_share_and_one_near_the_limit_a_part_of_it():
    rule = CutOff("penalise", 0.5, limit=100)
    assert rule.worth(answer(1.0, 100, cut=True)) == 0.5
    assert rule.worth(answer(1.0, 80)) == 1.0
    assert rule.worth(answer(1.0, 90)) == pytest.approx(0.75)
    assert CutOff("keep", 0.5, limit=100).worth(answer(1.0, 100, cut=True)) == 1.0


def test_only_pay_is_lost_not_a_penalty_of_the_rewards_own():
    rule = CutOff("penalise", 0.5, limit=100, floor=-1.0)
    assert rule.worth(answer(-1.0, 100, cut=True)) == -1.0
    assert rule.worth(answer(1.0, 100, cut=True)) == 0.0


def test_an_answer_that_ends_is_preferred_to_the_same_that_does_not():
    group = [answer(1.0), answer(1.0, 64, cut=True), answer(1.0), answer(1.0, 64, cut=True)]
    assert not assign_advantages(group, AdvantageRule(cut_off=CutOff("keep", 0.5, 64)))
    assert {rollout.discarded for rollout in group} == {NO_SIGNAL}
    assert assign_advantages(group, AdvantageRule(cut_off=CutOff("penalise", 0.5, 64)))
    assert [rollout.advantage > 0 for rollout in group] == [True, False, True, False]


def test_masked_answers_count_as_judged_and_are_left_out():
    group = [answer(1.0), answer(0.0), answer(1.0, 64, cut=True), answer(1.0, 64, cut=True)]
    assert assign_advantages(group, AdvantageRule(cut_off=CutOff("mask", 0.5, 64)))
    assert [rollout.discarded for rollout in group] == [None, None, CUT_OFF, CUT_OFF]


# --- settings nobody gave


def chosen(found):
    return {each.name: each.value for each in found}


def test_a_step_is_larger_on_a_gpu_and_a_run_on_a_cpu_ends():
    assert chosen(fit_to_device(build_config({}), "cuda")) == {
        "rollouts.prompts_per_step": 16,
        "rollouts.group_size": 16,
    }
    assert chosen(fit_to_device(build_config({}), "cpu")) == {"limits.seconds": 720.0}
    assert fit_to_device(build_config({"limits": {"steps": 9}}), "cpu") == []
    given = build_config({"rollouts": {"group_size": 4, "prompts_per_step": 4}})
    assert fit_to_device(given, "cuda") == []
    assert fit_to_device(build_config({"recipe": "plain"}), "cuda") == []


def test_rollouts_may_be_as_long_as_solutions_ask_for():
    config = build_config({})
    found = chosen(fit_to_solutions(config, Good(), [answer(1.0, 9, turns=3), answer(1.0, 20)], "cpu"))
    assert found == {"rollouts.max_turns": 5, "rollouts.max_new_tokens": 96}
    assert (config.rollouts.max_turns, config.rollouts.max_new_tokens) == (5, 96)
    given = build_config({"rollouts": {"max_turns": 2, "max_new_tokens": 256}})
    assert fit_to_solutions(given, Good(), [answer(1.0, turns=3)], "cpu") == []
    assert fit_to_solutions(build_config({}), Good(), [], "cpu") == []


def test_a_long_step_on_a_cpu_takes_fewer_prompts():
    assert chosen(fit_to_size(build_config({}), 6_000, "cpu")) == {"rollouts.prompts_per_step": 4}
    assert fit_to_size(build_config({}), 2_000, "cpu") == []
    assert fit_to_size(build_config({}), 60_000, "cuda") == []


@pytest.mark.parametrize("wrong", ["golden", "none"])
def test_a_warm_start_that_is_neither_a_way_nor_a_file_is_refused(wrong):
    with pytest.raises(ConfigError, match=f"'{wrong}' is neither auto, off, gold, hint nor a file"):
        build_config({"warm_start": wrong})
    assert build_config({"warm_start": "chats.jsonl"}).warm_start == "chats.jsonl"


def test_what_is_given_stands_over_the_plain_recipe():
    plain = build_config({"recipe": "plain", "warm_start": "gold", "watch": {"mends": 1}})
    assert (plain.warm_start, plain.watch.mends, plain.algorithm.cut_off) == ("gold", 1, "keep")


# --- solved


def test_solved_is_what_known_solutions_earn_unless_more_was_seen():
    progress = Progress(step=1, gold=0.9)
    progress.observe_evaluation(0.9, 0.9)
    progress.step = 2
    progress.observe_evaluation(0.9, 0.9)
    assert progress.all_solved
    more = Progress(step=1, gold=0.5)
    for step in (1, 2):
        more.step = step
        more.observe_evaluation(0.6, 1.0)
    assert not more.all_solved, "an answer earned 1"


# --- memory


def test_memory_outside_of_torch_runs_out_in_other_words():
    for words in ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "CUDA out of memory"):
        assert out_of_memory(RuntimeError(words))
    assert not out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"))


def test_what_does_not_fit_now_is_tried_again(monkeypatch):
    waited, tries = [], []
    monkeypatch.setattr("benchmax.trainer.learning.gpu.wait_for_memory", waited.append)

    def work():
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError("CUDA out of memory")
        return "done"

    assert retry_without_memory(work, torch.device("cuda")) == "done"
    assert len(waited) == 2
    with pytest.raises(RuntimeError, match="shape"):
        retry_without_memory(lambda: (_ for _ in ()).throw(RuntimeError("shape")), torch.device("cuda"))


# --- curriculum


def example(number):
    return {"id": str(number), "prompt_messages": [], "task": {}}


def test_the_curriculum_begins_once_rows_are_seen_to_differ():
    rows = [example(number) for number in range(40)]
    even, uneven = PromptStream(rows, 0, "auto"), PromptStream(rows, 0, "auto")
    for row in rows:
        even.observe(row["id"], 0.5)
        uneven.observe(row["id"], 1.0 if int(row["id"]) < 20 else 0.5)
    drawn = [example["id"] for _ in range(20) for example in uneven.take(4)]
    same = [example["id"] for _ in range(20) for example in even.take(4)]
    assert sum(int(each) >= 20 for each in drawn) > 0.6 * len(drawn)
    assert 0.35 * len(same) < sum(int(each) >= 20 for each in same) < 0.65 * len(same)


# --- smaller steps


def test_a_run_is_stuck_after_two_evaluations_that_are_no_better():
    progress = Progress(step=5)
    for step, reward in ((5, 0.5), (10, 0.4), (15, 0.5)):
        progress.step = step
        progress.observe_evaluation(reward)
        assert progress.is_stuck == (step == 15)
    progress.idle = 0
    assert not progress.is_stuck
    assert progress.stale == 2, "patience counts on"
    progress.step = 16
    assert not progress.is_stuck, "only where it was evaluated"


def test_a_cooled_learning_rate_does_not_rise_again():
    optimizer = Optimizer({"w": torch.nn.Parameter(torch.zeros(2))}, OptimConfig(), lr=1e-3, total=10)
    optimizer.lower_ceiling(0.5, 0.1)
    optimizer.adapt(4.0)
    assert optimizer.current_lr() == pytest.approx(5e-4)
    for _ in range(9):
        optimizer.lower_ceiling(0.5, 0.1)
    assert optimizer.current_lr() == pytest.approx(1e-4), "a tenth at least"
