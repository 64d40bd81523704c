"""How runs end and what they name as their best: stopped early, evaluated on rows that got no reward, cut off."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import threading

import pytest
import torch

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.errors import ConfigError, NotFoundError, RecordError, UsageError
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.rollouts.record_files import read_rollouts
from benchmax.trainer import interrupts, start
from benchmax.trainer.checkpoint import choose_checkpoint
from benchmax.trainer.config import build_config
from benchmax.trainer.learning import learner as learners
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.learning.optim import Optimizer
from benchmax.trainer.learning.policy import Policy
from benchmax.trainer.loop import Trainer
from benchmax.trainer.rundir import RunDir, read_config, read_metrics, read_status
from benchmax.trainer.start import resume, train
from benchmax.trainer.task import Task
from benchmax.trainer.tiny_model import make_tiny
from benchmax.trainer.warm_start import warm_start
from benchmax.trainer.warm_start.sft_rows import sft_sequences
from benchmax.trainer.warm_start.supervised_steps import train_epochs
from runner_world import wait_until
from training_world import config, go

torch.set_num_threads(1)  # the models are tiny


class DigitsEnv(BaseEnv):
    """Pays for digits; rows that say so get no reward."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        if "no judge" in messages[0]["content"]:
            raise RuntimeError("the judge is down")
        text = extract_completion_text(messages)
        return {"digits": sum(letter.isdigit() for letter in text) / max(1, len(text))}


def rows(*texts):
    return [make_example(prompt_messages=[{"role": "user", "content": text}]) for text in texts]


TRAIN = rows(*(f"{i}?" for i in range(4)))
HELD_OUT = rows(*(f"{i}!" for i in range(4)))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=2)


def series(path, split):
    return [line["step"] for line in read_metrics(path) if line["split"] == split]


def test_a_run_whose_held_out_rows_get_no_reward_has_no_best(model, tmp_path):
    done = go(train(config(model, tmp_path), task=Task(DigitsEnv, TRAIN, rows("no judge 1", "no judge 2"))))
    assert not (done.path / "checkpoints" / "best").exists()
    assert choose_checkpoint(done.path).step == 4, "the export is what was trained"


def test_a_few_scored_held_out_rows_decide_nothing(model, tmp_path):
    held_out = [*HELD_OUT[:1], *rows("no judge 1", "no judge 2")]
    tree = config(model, tmp_path, eval={"target": 0.0, "patience": 1})
    done = go(train(tree, task=Task(DigitsEnv, TRAIN, held_out)))
    assert (done.reason, done.step) == ("steps", 4)


def test_no_prompt_comes_twice_in_a_step(model, tmp_path):
    tree = config(model, tmp_path, rollouts={"prompts_per_step": 3, "group_size": 2, "max_new_tokens": 1})
    done = go(train(tree, task=Task(DigitsEnv, TRAIN, [])))
    sizes = set()
    for step in range(4):
        played = list(read_rollouts(done.path / "rollouts" / f"train-{step}.jsonl"))
        assert len({(each.example_id, each.id) for each in played}) == len(played)
        assert len(played) == 2 * len({each.example_id for each in played})
        sizes.add(len(played))
    assert max(sizes) == 8, "a silent group was replaced"


def test_a_best_that_is_not_kept_is_not_exported(model, tmp_path):
    tree = config(model, tmp_path, checkpoint={"every": 1, "keep_last": 1, "keep_best": False})
    done = go(train(tree, task=Task(DigitsEnv, TRAIN, HELD_OUT)))
    assert choose_checkpoint(done.path).step == 4


def test_a_kill_before_the_best_is_named_is_made_good(model, tmp_path):
    tree = config(model, tmp_path, eval={"every": 1}, limits={"steps": 2})
    done = go(train(tree, task=Task(DigitsEnv, TRAIN, HELD_OUT)))
    folder = done.path / "checkpoints"
    state = json.loads((folder / "step-2" / "state.json").read_text())
    state["progress"] |= {"best_step": 2, "best": 0.9, "evaluated": 2}
    (folder / "step-2" / "state.json").write_text(json.dumps(state))
    (folder / "best").write_text("step-0")
    go(resume(done.path, task=Task(DigitsEnv, TRAIN, HELD_OUT)))
    assert (folder / "best").read_text() == "step-2"


def test_a_run_stopped_in_its_last_evaluation_can_be_resumed(model, tmp_path, monkeypatch):
    evaluate = Trainer.evaluate

    async def stop(self):
        if self.progress.step:
            self.interrupt()
            await asyncio.sleep(60)
        return await evaluate(self)

    monkeypatch.setattr(interrupts, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(Trainer, "evaluate", stop)
    task = Task(DigitsEnv, TRAIN, HELD_OUT)
    done = go(train(config(model, tmp_path, eval={"every": 0}), task=task))
    assert (done.reason, read_status(done.path)["state"]) == ("interrupted", "interrupted")
    monkeypatch.setattr(Trainer, "evaluate", evaluate)
    assert go(resume(done.path, task=task)).reason == "steps"
    assert series(done.path, "eval") == [0, 4]


def test_the_status_counts_the_steps_that_are_done(model, tmp_path):
    seen = []

    def look(kind, data):
        if kind == "group" and data["split"] == "train":
            seen.append((data["rollouts"][0].step, read_status(tmp_path / "run")["step"]))

    go(train(config(model, tmp_path), task=Task(DigitsEnv, TRAIN, []), on_event=look))
    assert {step for step, _ in seen} == {0, 1, 2, 3}
    assert all(step == done for step, done in seen)


@pytest.mark.parametrize("dropout", [pytest.param(0.0, marks=pytest.mark.slow), 0.3])
def test_a_step_that_was_given_up_is_done_again_with_the_same_chance(model, tmp_path, monkeypatch, dropout):
    tree = {"model": {"tune": "lora"}, "lora": {"dropout": dropout, "rank": 4}, "eval": {"every": 0}}
    task = Task(DigitsEnv, TRAIN, [])
    whole = go(train(config(model, tmp_path / "whole", **tree), task=task)).path
    backward, calls = Learner._backward, iter(range(100))

    def give_up(self, part, stats, abort):
        result = backward(self, part, stats, abort)
        if next(calls) == 1:
            trainer.interrupt()
            raise learners.Aborted
        return result

    made = start.Trainer

    def remember(*arguments):
        nonlocal trainer
        trainer = made(*arguments)
        return trainer

    trainer: Trainer
    monkeypatch.setattr(start, "Trainer", remember)
    monkeypatch.setattr(Learner, "_backward", give_up)
    broken = go(train(config(model, tmp_path / "broken", **tree), task=task)).path
    assert read_status(broken)["step"] == 1
    go(resume(broken, task=task))

    def numbers(path):
        kept = ("reward/mean", "loss", "grad_norm", "entropy")
        return [{name: line["values"].get(name) for name in kept} for line in read_metrics(path)]

    assert numbers(broken) == numbers(whole)


# The warm start


@pytest.fixture
def shown(tmp_path):
    file = tmp_path / "sft.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{i}?", "completion": "12345"}) + "\n" for i in range(16)))
    return {"data": str(file), "epochs": 40, "batch": 4, "lr": 1e-2}


def warmed(path):
    """What held-out rows earned after the warm start."""
    (warm,) = [line["values"] for line in read_metrics(path) if line["split"] == "warm_start"]
    return warm["reward/mean"]


def test_a_run_stopped_in_its_warm_start_begins_again(model, tmp_path, shown, monkeypatch):
    task, steps, trainers = Task(DigitsEnv, TRAIN, HELD_OUT), [], []
    made = start.Trainer

    def remember(*arguments):
        trainers.append(made(*arguments))
        return trainers[-1]

    def look(kind, data):
        if kind == "sft":
            steps.append(data["step"])
            if len(steps) == 3:
                trainers[0].interrupt()

    def held(*arguments, abort, **options):
        """After the third step nothing more happens, however late the loop hears that it is to end."""
        begun = itertools.count()
        return train_epochs(*arguments, abort=lambda: next(begun) == 3 and wait_until(abort), **options)

    monkeypatch.setattr(start, "Trainer", remember)
    with monkeypatch.context() as patch:
        patch.setattr(interrupts, "GRACE_SECONDS", 0.0)
        patch.setattr(warm_start, "train_epochs", held)
        done = go(train(config(model, tmp_path, sft=shown, limits={"steps": 1}), task=task, on_event=look))
    assert done.reason == "interrupted"
    assert len(steps) == 3, "it was given up"
    assert not (done.path / "checkpoints" / "latest").exists()
    again = go(resume(done.path, task=task))
    assert again.reason == "steps"
    assert warmed(again.path) > 0.9


def test_a_warm_start_that_is_done_is_kept(model, tmp_path, shown, monkeypatch):
    async def fail(self):
        raise OSError("the power went")

    monkeypatch.setattr(Trainer, "step", fail)
    tree, task = config(model, tmp_path, sft=shown, limits={"steps": 1}), Task(DigitsEnv, TRAIN, HELD_OUT)
    with pytest.raises(OSError, match="the power went"):
        go(train(tree, task=task))
    monkeypatch.undo()
    monkeypatch.setattr(warm_start, "train_epochs", None)
    assert go(resume(tmp_path / "run", task=task)).reason == "steps"
    assert warmed(tmp_path / "run") > 0.9


def test_the_loop_is_free_during_a_warm_start(model, tmp_path, shown):
    here, threads = threading.current_thread(), set()
    told = []

    def look(kind, data):
        if kind == "sft":
            threads.add(threading.current_thread())
            told.append(data["step"])

    go(train(config(model, tmp_path, sft=shown, limits={"steps": 1}), task=Task(DigitsEnv, TRAIN, []), on_event=look))
    assert (threads, told) == ({here}, list(range(160)))


def test_answers_end_as_the_chat_template_ends_them(tmp_path):
    model = make_tiny(tmp_path / "model")
    settings = json.loads((model / "generation_config.json").read_text())
    wanted = ChatTokens(model).stop_ids[0]
    other = ChatTokens(model).encode("t")[0]
    (model / "generation_config.json").write_text(json.dumps(settings | {"eos_token_id": [other, wanted]}))
    chat = ChatTokens(model)
    assert chat.stop_ids[0] == other
    (lesson,) = sft_sequences([{"prompt": "1?", "completion": "5"}], chat)
    assert lesson.ids[-1] == wanted


def test_a_warm_start_is_plain_cross_entropy_whatever_the_temperature(model):
    losses = []
    for temperature in (0.5, 2.0):
        policy = Policy.from_directory(model, tune="full", temperature=temperature)
        tree = build_config({"sft": {"epochs": 1, "batch": 4}})
        sequences = sft_sequences([{"prompt": "1?", "completion": "5"}], ChatTokens(model))
        losses.append(train_epochs(Learner(policy, tree), sequences, tree.sft)[0])
    assert losses[0] == losses[1]


def test_a_warm_start_goes_on_in_smaller_batches_when_memory_runs_out(model, monkeypatch):
    policy = Policy.from_directory(model, tune="full")
    teacher = Learner(policy, build_config({}))
    sequences = sft_sequences([{"prompt": f"{i}" * 30, "completion": "5"} for i in range(8)], ChatTokens(model))
    logprobs = policy.logprobs

    def small(micro, temperature=None):
        if micro.input_ids.numel() > 80:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return logprobs(micro, temperature)

    monkeypatch.setattr(policy, "logprobs", small)
    losses = train_epochs(teacher, sequences, build_config({"sft": {"epochs": 2, "batch": 8}}).sft)
    assert len(losses) == 2
    assert teacher.token_budget < 512
    monkeypatch.setattr(Optimizer, "step", lambda self: (_ for _ in ()).throw(torch.OutOfMemoryError("out of memory")))
    with pytest.raises(UsageError, match="Out of memory in the optimizer"):
        train_epochs(teacher, sequences, build_config({}).sft)


# Before the first step, and going on


def test_runs_that_begin_in_the_same_second_have_names_of_their_own(model, tmp_path):
    async def both():
        tree = {"output": {"name": ""}, "limits": {"steps": 1}, "data": {"env": "main.py:DigitsEnv"}}
        return [await train(config(model, tmp_path, **tree), task=Task(DigitsEnv, TRAIN, [])) for _ in range(3)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start.time, "strftime", lambda form: "20260101-000000")
        names = [done.path.name for done in go(both())]
    assert names == ["main-20260101-000000", "main-20260101-000000-2", "main-20260101-000000-3"]


def test_a_run_stopped_while_it_loads_leaves_its_name_free(model, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(start, "load_learner", stop)
    with pytest.raises(KeyboardInterrupt):
        go(train(config(model, tmp_path), task=Task(DigitsEnv, TRAIN, [])))
    assert list(tmp_path.iterdir()) == []


def test_a_model_the_engine_cannot_run_is_told_before_it_is_loaded(model, tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(model, folder)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"model_type": "mamba"}))
    with pytest.raises(UsageError, match="runs llama, qwen2, qwen3 models; this one is 'mamba'"):
        go(train(config(folder, tmp_path), task=Task(DigitsEnv, TRAIN, [])))


def test_a_weight_for_a_component_that_is_not_there_is_noted(model, tmp_path):
    tree = config(model, tmp_path, rollouts={"weights": {"digits": 1, "digts": 2}}, limits={"steps": 2})
    done = go(train(tree, task=Task(DigitsEnv, TRAIN, [])))
    told = [line for line in (done.path / "events.jsonl").read_text().splitlines() if '"note"' in line]
    assert len(told) == 1
    assert "names digts, which no reward of the first step has; there are: digits" in told[0]


def test_rows_that_do_not_fit_are_told_at_once_and_leave_the_means(model, tmp_path):
    half = [*TRAIN, *rows(*("x" * 2000 + str(i) for i in range(4)))]
    notes = []
    tree = config(model, tmp_path, rollouts={"prompts_per_step": 8}, limits={"steps": 1}, eval={"every": 0})
    task = Task(DigitsEnv, half, [])
    done = go(train(tree, task=task, on_event=lambda kind, data: notes.append(data) if kind == "note" else None))
    assert "4 of 8 rows looked at do not fit" in notes[0]["message"]
    (values,) = (line["values"] for line in read_metrics(done.path))
    assert (values["unscored"], values["turns/mean"]) == (0.5, 1.0)


def test_a_run_goes_on_from_an_earlier_checkpoint(model, tmp_path):
    task = Task(DigitsEnv, TRAIN, HELD_OUT)
    tree = config(model, tmp_path, checkpoint={"every": 1, "keep_last": 9})
    done = go(train(tree, task=task))
    before = read_metrics(done.path)
    (done.path / "checkpoints" / "step-4" / "weights.safetensors").write_bytes(b"")
    with pytest.raises(RecordError, match=r"Name another checkpoint: .*run:step-0, .*run:step-3\."):
        go(resume(done.path, task=task))
    go(resume(done.path, checkpoint="step-1", task=task))

    def numbers(lines):
        return [(line["step"], line["split"], line["values"]["reward/mean"]) for line in lines]

    assert numbers(read_metrics(done.path)) == numbers(before)


def test_a_kill_while_a_run_goes_back_is_made_good(model, tmp_path, monkeypatch):
    task = Task(DigitsEnv, TRAIN, HELD_OUT)
    tree = config(model, tmp_path, checkpoint={"every": 1, "keep_last": 9})
    done = go(train(tree, task=task))
    before = [(line["step"], line["split"], line["values"]["reward/mean"]) for line in read_metrics(done.path)]
    (done.path / "checkpoints" / "best").write_text("step-4")

    def killed(*_, **__):
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "rewind", killed)
        with pytest.raises(OSError, match="killed"):
            go(resume(done.path, checkpoint="step-1", task=task))
    assert read_status(done.path)["state"] == "running", "not complete any more"
    assert choose_checkpoint(done.path).step <= 1, "what is named is there"
    with pytest.raises(NotFoundError, match="no checkpoint step-9"):
        go(resume(done.path, checkpoint="step-9", task=task, changes={"limits": {"steps": 7}}))
    assert read_config(done.path).limits.steps == 4, "a refused resume changes nothing"
    go(resume(done.path, task=task))
    assert [(line["step"], line["split"], line["values"]["reward/mean"]) for line in read_metrics(done.path)] == before


def test_a_model_whose_sizes_do_not_fit_its_weights_is_told_in_a_line(model, tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(model, folder)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"vocab_size": 50}))
    with pytest.raises(UsageError, match=r"other cannot be loaded: .* again\.$"):
        go(train(config(folder, tmp_path), task=Task(DigitsEnv, TRAIN, [])))


def test_settings_that_made_the_run_may_be_given_again(model, tmp_path):
    task = Task(DigitsEnv, TRAIN, [])
    done = go(train(config(model, tmp_path, limits={"steps": 1}), task=task))
    same = {"seed": 0, "optim": {"lr": 1e-2}, "limits": {"steps": 2}}
    assert go(resume(done.path, task=task, changes=same)).step == 2
    for other in ({"seed": 9}, {"optim": {"lr": 1}}):
        with pytest.raises(ConfigError, match=f"^{next(iter(other))} cannot change when a run is resumed"):
            go(resume(done.path, task=task, changes=other))
    with pytest.raises(ConfigError, match="nonsense"):
        go(resume(done.path, task=task, changes={"nonsense": {"lr": 1}}))


def test_the_loss_of_a_warm_start_is_recorded_and_stays(model, tmp_path, shown):
    task = Task(DigitsEnv, TRAIN, [])
    done = go(train(config(model, tmp_path, sft=shown, limits={"steps": 2}), task=task))
    go(resume(done.path, task=task, changes={"limits": {"steps": 3}}))
    losses = [line["values"]["loss"] for line in read_metrics(done.path) if line["split"] == "sft"]
    assert len(losses) == 160
    assert losses[-1] < 0.1 < losses[0]
