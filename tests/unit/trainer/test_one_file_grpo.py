"""The lesson in examples/ and the trainer compute the same loss and the same update."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmax.models.base import TokenSegment
from benchmax.rollouts.record import Rollout
from benchmax.trainer.config import build_config
from benchmax.trainer.learning.advantage import assign_advantages
from benchmax.trainer.learning.batch import Batch, sequence_of
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.learning.loss import LossStats
from benchmax.trainer.learning.policy import Policy
from benchmax.trainer.tiny_model import make_tiny

torch.set_num_threads(1)  # the models are tiny

LESSON = Path(__file__).parents[3] / "examples" / "grpo_from_scratch.py"


@pytest.fixture(scope="module")
def lesson():
    spec = importlib.util.spec_from_file_location("grpo_from_scratch", LESSON)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("tiny"), hidden=32, layers=2)


def make_groups(model, lesson):
    """Sampled by the lesson itself; rewards are drawn."""
    rng = random.Random(0)
    prompts = [[rng.randrange(60) for _ in range(rng.randrange(3, 9))] for _ in range(5)]
    generator = torch.Generator().manual_seed(0)
    answers = lesson.sample(model, prompts, 4, 8, stop_id=0, generator=generator)
    scores = [[rng.choice([0.0, 0.2, 1.0]) for _ in group] for group in answers]
    scores[2] = [0.2] * 4
    return list(zip(prompts, answers, scores, strict=True))


def as_rollouts(groups):
    made = []
    for prompt, answers, scores in groups:
        group = [
            Rollout(
                "r", "e", i, reward=score, ok=True, tokens=[TokenSegment(prompt, False), TokenSegment(answer, True)]
            )
            for i, (answer, score) in enumerate(zip(answers, scores, strict=True))
        ]
        assign_advantages(group)
        made.append(group)
    return made


def test_it_is_a_short_lesson_that_needs_no_benchmax():
    text = LESSON.read_text()
    assert len(text.splitlines()) < 300
    assert "import benchmax" not in text
    assert "from benchmax" not in text


@pytest.mark.parametrize("updates", [1, 3])
def test_the_same_loss_and_the_same_weights(lesson, directory, updates):
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    groups = make_groups(model, lesson)
    rollouts = as_rollouts(groups)
    policy = Policy.from_directory(directory, tune="full")
    config = build_config({"model": {"tune": "full"}, "optim": {"lr": 1e-2}, "algorithm": {"updates": updates}})
    learner = Learner(policy, config)
    kept = [sequence_of(r, g) for g, group in enumerate(rollouts) for r in group if r.discarded is None]
    part = learner._prepare(Batch.of(kept))
    ours, _ = learner._backward(part, LossStats(), lambda: False)
    learner.optimizer.clear()

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    theirs, used = lesson.learn(model, optimizer, groups, pad_id=0, updates=updates)
    assert used == 4, "the group of equal rewards is left out"
    assert ours == pytest.approx(theirs, abs=1e-5)

    learner.learn(rollouts)
    for name, weight in model.named_parameters():
        assert torch.allclose(weight, policy.parameters()[name], atol=2e-4), name


def test_its_sampling_stops_and_is_greedy_when_asked(lesson, directory):
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    prompts = [[5, 6, 7], [9, 8, 7, 6, 5, 4]]
    answers = lesson.sample(model, prompts, 1, 6, stop_id=0, temperature=0)
    for prompt, (answer,) in zip(prompts, answers, strict=True):
        wanted = model.generate(torch.tensor([prompt]), max_new_tokens=6, do_sample=False, pad_token_id=0)
        assert answer == wanted[0, len(prompt) :].tolist()[: len(answer)]


def test_its_reward(lesson):
    assert lesson.reward("3 + 4 = <answer>7</answer>", 3, 4) == 1.0
    assert lesson.reward("<answer>8</answer>", 3, 4) == 0.2
    assert lesson.reward("<answer></answer>", 3, 4) == 0.0


def test_its_tokenizer_use(lesson, directory):
    tokenizer = AutoTokenizer.from_pretrained(directory)
    text = tokenizer.decode(lesson.prompt_ids(tokenizer, 3, 4))
    assert text.endswith("[u]3 + 4?[e]\n[a]")
