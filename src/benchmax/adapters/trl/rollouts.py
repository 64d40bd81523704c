"""`rollout_func` for TRL's GRPOTrainer: every rollout of a batch is played at once, its tools with them.

    rollouts = BenchmaxRollouts(MyEnv, rows)
    trainer = GRPOTrainer(
        model=…, args=GRPOConfig(…), train_dataset=rollouts.dataset(),
        rollout_func=rollouts, reward_funcs=rollouts.reward,
    )

TRL's own loop runs the tools of one rollout after those of another. Here the rollouts of a batch share an event loop,
and everything that waits for the model is generated in one call.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.adapters.batched_engine import BatchedEngine
from benchmax.adapters.batches import FailedBatches, play_batch, summary
from benchmax.adapters.engine_model import EngineModel, Sample
from benchmax.adapters.env_session import EnvSession
from benchmax.adapters.example_rows import ExampleIndex, prompt_of
from benchmax.adapters.trajectory import Trajectory, trajectory_of
from benchmax.adapters.trl.sampling import generate_with, sampling_of
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.loading import make_env
from benchmax.envs.types import Example
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.record_files import RolloutLog
from benchmax.rollouts.settings import RolloutSettings

REWARD = "benchmax_reward"
TERMINATION = "benchmax_termination"


class BenchmaxRollouts:
    """One environment and its rows for a GRPOTrainer."""

    def __init__(
        self,
        env: type[BaseEnv],
        rows: Any,
        *,
        env_args: Mapping[str, Any] | None = None,
        settings: RolloutSettings = RolloutSettings(),
        concurrency: int = limits.ROLLOUTS_AT_ONCE,
        sample: Sample | None = None,
        record: str | Path | None = None,
    ) -> None:
        """`settings` has the budgets; how a turn is sampled is the trainer's to say.

        `sample` replaces the trainer's own generation. `record` is a file to which every rollout is appended, for
        `benchmax show`.
        """
        self.env = env
        self.examples: list[Example] = list(load_examples(rows, env))
        self.settings, self.concurrency = settings, concurrency
        self.last: list[Rollout] = []
        """The rollouts of the last batch."""
        self._index = ExampleIndex(self.examples, env)
        self._open = partial(make_env, env, dict(env_args or {}))
        self._sample, self._log = sample, RolloutLog(record) if record else None
        self._failed = FailedBatches()
        self._session: EnvSession | None = None
        self._chat: tuple[Any, ChatTokens] | None = None

    def dataset(self, rows: Any = None) -> Any:
        """The rows as a dataset for the trainer; or other `rows`, such as those to evaluate on."""
        from datasets import Dataset

        examples = self.examples if rows is None else list(load_examples(rows, self.env))
        self._index.add(examples)
        return Dataset.from_list([{"prompt": prompt_of(example, self.env)} for example in examples])

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """TRL's `rollout_func`: one row for each prompt, in their order."""
        trajectories = self._play([self._index.find(prompt) for prompt in prompts], trainer)
        self.last = [each.rollout for each in trajectories]
        if self._log:
            for rollout in self.last:
                self._log.append(rollout)
        self._failed.observe(self.last)
        logprobs = [each.logprobs for each in trajectories]
        return {
            "prompt_ids": [each.prompt_ids for each in trajectories],
            "completion_ids": [each.response_ids for each in trajectories],
            "logprobs": None if any(each is None for each in logprobs) else logprobs,
            "env_mask": [each.mask for each in trajectories],
            REWARD: [each.reward if each.scored else None for each in trajectories],
            TERMINATION: [each.stop_reason for each in trajectories],
        }

    def reward(self, prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        """TRL's reward function: the environment's rewards; None, which TRL leaves out, for rollouts without one."""
        if log := columns.get("log_metric"):
            for name, value in summary(self.last).items():
                log(name, value)
        rewards: list[float | None] = columns[REWARD]
        return rewards

    def close(self) -> None:
        """Release the environment. It is opened again when it is needed."""
        if self._session:
            self._session.close()
            self._session = None

    def _play(self, rows: Sequence[Example], trainer: Any) -> list[Trajectory]:
        self._session = session = self._session or EnvSession(self._open)
        chat, training = self._chat_of(trainer), trainer.model.training
        engine = BatchedEngine(generate_with(trainer, chat), in_play=lambda: len(rows) - model.finished)
        model = EngineModel(
            chat,
            self._sample or engine.sample,
            name=getattr(trainer.model.config, "name_or_path", "") or "trl",
            context=getattr(trainer.model.config.get_text_config(), "max_position_embeddings", None),
            max_response=trainer.max_completion_length,
        )
        size = trainer.num_generations if training else trainer.num_generations_eval
        work = play_batch(
            session.host,
            rows,
            model,
            replace(self.settings, sampling=sampling_of(trainer)),
            groups=_groups(rows, size),
            concurrency=self.concurrency,
            split="train" if training else "eval",
            step=trainer.state.global_step,
        )
        return [trajectory_of(rollout, chat) for rollout in engine.play(session, work)]

    def _chat_of(self, trainer: Any) -> ChatTokens:
        tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        if self._chat is None or self._chat[0] is not tokenizer:
            stops = list(getattr(trainer, "eos_token_ids", ()))
            self._chat = tokenizer, ChatTokens.of_tokenizer(tokenizer, stop_ids=stops)
        return self._chat[1]


def _groups(rows: Sequence[Example], size: int) -> list[Hashable] | None:
    """TRL repeats a prompt `size` times in a row: each such run is a group, even when a prompt comes twice."""
    runs = [rows[start : start + size] for start in range(0, len(rows), size)]
    if any(len(run) != size or len({row["id"] for row in run}) > 1 for run in runs):
        return None
    return [index // size for index in range(len(rows))]
