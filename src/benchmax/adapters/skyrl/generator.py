"""A generator for SkyRL: our rollouts on its inference engines, token ids in and token ids out.

SkyRL hands over a batch of prompts, each as often as there are samples; we return ids, masks, log-probs and rewards for
each token, in the same order, or one sample for each turn with `generator.step_wise_trajectories`.

SkyRL has no word for "unscored". A rollout that could not be scored is masked out of the loss and carries the mean
reward of its siblings, so that it neither teaches nor moves their baseline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmax import limits
from benchmax.adapters.batches import FailedBatches, in_places, places_of, play_batch, summary
from benchmax.adapters.engine_model import Ask, Drawn, EngineModel
from benchmax.adapters.env_session import EnvSession
from benchmax.adapters.example_rows import carried
from benchmax.adapters.trajectory import Trajectory, fill_unscored, steps_of, trajectory_of
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import Example
from benchmax.errors import ContextExceeded, UsageError
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.models.base import Sampling
from benchmax.rollouts.record import Rollout, Termination
from benchmax.rollouts.settings import RolloutSettings

OpenEnv = Callable[[], BaseEnv]
STOP = "stop"
"""SkyRL's word for a response that ended by itself; every other reason is ours."""


class BenchmaxGenerator:
    """Plays SkyRL's batches; `make_generator` makes it one of SkyRL's generators."""

    def __init__(
        self,
        envs: Mapping[str, OpenEnv],
        generator_cfg: Any,
        inference_engine_client: Any,
        tokenizer: Any,
        *,
        policy_model_name: str | None = None,
        settings: RolloutSettings = RolloutSettings(),
        concurrency: int = limits.ROLLOUTS_AT_ONCE,
    ) -> None:
        """`envs` has a function that makes the environment for each `env_class` of the dataset."""
        self.envs = dict(envs)
        self.cfg, self.engine, self.policy_model_name = generator_cfg, inference_engine_client, policy_model_name
        self.chat = ChatTokens.of_tokenizer(tokenizer)
        self.settings, self.concurrency = settings, concurrency
        self.last: list[Rollout] = []
        """The rollouts of the last batch."""
        self._sessions: dict[str, EnvSession] = {}
        self._opening = asyncio.Lock()
        self._failed = FailedBatches()

    async def generate(self, input_batch: Mapping[str, Any], disable_tqdm: bool = False) -> dict[str, Any]:
        """One trajectory for each prompt, in their order."""
        stepwise = self.cfg.step_wise_trajectories
        if stepwise and input_batch.get("trajectory_ids") is None:
            raise UsageError("Step-wise training needs trajectory_ids. Let SkyRL's trainer make the batch.")
        rollouts = await self._play(input_batch)
        self.last = rollouts
        self._failed.observe(rollouts)
        trajectories = [trajectory_of(rollout, self.chat) for rollout in rollouts]
        for at in places_of(_groups(input_batch) or [rollout.example_id for rollout in rollouts]).values():
            fill_unscored([trajectories[index] for index in at])
        if not stepwise:
            return self._output(trajectories, rollouts) | {"trajectory_ids": None, "is_last_step": None}
        steps = [steps_of(each) for each in trajectories]
        return self._output([step for turns in steps for step in turns], rollouts) | {
            "trajectory_ids": [
                name for name, turns in zip(input_batch["trajectory_ids"], steps, strict=True) for _ in turns
            ],
            "is_last_step": [step.last for turns in steps for step in turns],
        }

    async def _play(self, batch: Mapping[str, Any]) -> list[Rollout]:
        """The rows of each environment together, all environments at once."""
        extras = batch.get("env_extras") or [{}] * len(batch["prompts"])
        rows = [carried(extra, prompt) for extra, prompt in zip(extras, batch["prompts"], strict=True)]
        places: dict[str, list[int]] = places_of(batch["env_classes"])
        groups = _groups(batch)
        parts = await asyncio.gather(*(self._play_part(name, at, rows, groups, batch) for name, at in places.items()))
        return in_places(places.values(), parts)

    async def _play_part(
        self,
        name: str,
        indices: Sequence[int],
        rows: Sequence[Example],
        groups: Sequence[Hashable] | None,
        batch: Mapping[str, Any],
    ) -> list[Rollout]:
        session = await self.session(name)
        about = batch.get("batch_metadata")
        params = self._params(batch.get("sampling_params"))
        return await play_batch(
            session.host,
            [rows[index] for index in indices],
            self._model(params),
            self._settings(params),
            groups=None if groups is None else [groups[index] for index in indices],
            concurrency=self.concurrency,
            split="eval" if about is not None and about.training_phase == "eval" else "train",
            step=None if about is None else about.global_step,
        )

    async def session(self, name: str) -> EnvSession:
        """The environment of that name, opened when it is first asked for."""
        if name not in self.envs:
            known = ", ".join(sorted(self.envs))
            raise UsageError(f"The dataset names the environment {name!r}; known are: {known}. Register it as one.")
        async with self._opening:  # an environment may start a hundred servers: once, and not on this loop
            if name not in self._sessions:
                self._sessions[name] = await asyncio.to_thread(EnvSession, self.envs[name])
        return self._sessions[name]

    def close(self) -> None:
        """Release the environments."""
        while self._sessions:
            self._sessions.popitem()[1].close()

    # Sampling

    def _params(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """The engine's sampling parameters; SkyRL sends None where it means its configuration."""
        if given is not None:
            return dict(given)
        own = self.cfg.sampling_params
        params = {"max_tokens": own.max_generate_length, "temperature": own.temperature, "top_p": own.top_p}
        params |= {"top_k": own.top_k, "min_p": own.min_p, "logprobs": own.logprobs, "stop": own.stop}
        return {**params, **(own.additional_kwargs or {})}

    def _settings(self, params: Mapping[str, Any]) -> RolloutSettings:
        sampling = Sampling(
            temperature=float(params.get("temperature", 1.0)),
            max_tokens=params.get("max_tokens") or self.cfg.sampling_params.max_generate_length,
            stop=tuple(params.get("stop") or ()),
            logprobs=True,
        )
        return replace(self.settings, max_turns=self.cfg.max_turns, sampling=sampling)

    def _model(self, params: Mapping[str, Any]) -> EngineModel:
        most_input = self.cfg.max_input_length
        turn = params.get("max_tokens") or self.cfg.sampling_params.max_generate_length
        salt = self._cache_salt()

        async def sample(ask: Ask) -> Drawn:
            if most_input is not None and len(ask.prompt) > most_input:
                raise ContextExceeded(
                    f"The conversation has {len(ask.prompt)} tokens; generator.max_input_length is {most_input}. "
                    "Raise it, or shorten the tool output."
                )
            request = {
                "prompt_token_ids": [ask.prompt],
                "session_ids": [ask.session],
                "sampling_params": {**params, "max_tokens": ask.sampling.max_tokens},
                "cache_salt": salt,
            }
            return _drawn(await self.engine.generate(request, model=self.policy_model_name))

        return EngineModel(
            self.chat,
            sample,
            name=self.policy_model_name or "skyrl",
            context=None if most_input is None else most_input + turn,
            end_session=getattr(self.engine, "finish_session", None),
        )

    def _cache_salt(self) -> str | None:
        """Keeps cached keys and values of older weights apart, as SkyRL's own generator does."""
        version = getattr(self.engine, "weight_version", None)
        if not self.cfg.use_cache_salt or version is None:
            return None
        from skyrl.train.generators.utils import build_vllm_cache_salt

        salt: str = build_vllm_cache_salt(version, self.policy_model_name)
        return salt

    # Output

    def _output(self, rows: Sequence[Trajectory], rollouts: Sequence[Rollout]) -> dict[str, Any]:
        """What SkyRL takes of each row, a whole rollout or one turn of it."""
        finished = Termination.FINISHED
        reasons = [STOP if row.rollout.termination is finished else row.stop_reason for row in rows]
        logprobs = [row.logprobs for row in rows]
        masks, rewards = [row.mask for row in rows], [row.token_rewards for row in rows]
        for index, reason in enumerate(reasons):
            if reason != STOP and self.cfg.apply_overlong_filtering:
                masks[index] = [0] * len(masks[index])
            if reason != STOP and self.cfg.zero_reward_on_non_stop:
                rewards[index] = [0.0] * len(rewards[index])
        return {
            "prompt_token_ids": [row.prompt_ids for row in rows],
            "response_ids": [row.response_ids for row in rows],
            "rewards": rewards,
            "loss_masks": masks,
            "stop_reasons": reasons,
            "rollout_metrics": self._metrics(rows, masks, rewards, rollouts),
            "rollout_logprobs": None if any(each is None for each in logprobs) else logprobs,
            "trajectory_generation_times": [row.rollout.seconds.get("total", 0.0) for row in rows],
            "trajectory_time_splits": _time_splits([row.rollout for row in rows]),
            "rollout_expert_indices": None,
            "rollout_sample_support": None,
            "env_metrics": [dict(row.rollout.rewards) for row in rows],
        }

    def _metrics(
        self, rows: Sequence[Trajectory], masks: Any, rewards: Any, rollouts: Sequence[Rollout]
    ) -> dict[str, Any]:
        from skyrl.train.generators.utils import get_rollout_metrics

        found: dict[str, Any] = get_rollout_metrics(
            [row.response_ids for row in rows],
            rewards,
            loss_masks=masks,
            trajectory_completion_times=[rollout.seconds.get("total", 0.0) for rollout in rollouts],
            trajectory_time_splits=_time_splits(rollouts),
        )
        return found | summary(rollouts)


def make_generator(*given: Any, **options: Any) -> Any:
    """A `BenchmaxGenerator` that is also one of SkyRL's `GeneratorInterface`."""
    from skyrl.train.generators.base import GeneratorInterface

    kind: Any = type("SkyRLBenchmaxGenerator", (BenchmaxGenerator, GeneratorInterface), {})
    return kind(*given, **options)


def _groups(batch: Mapping[str, Any]) -> list[Hashable] | None:
    ids = batch.get("trajectory_ids")
    return None if ids is None else [each.instance_id for each in ids]


def _drawn(answer: Mapping[str, Any]) -> Drawn:
    logprobs = answer.get("response_logprobs")
    finish = "length" if answer["stop_reasons"][0] == "length" else "stop"
    return Drawn(answer["response_ids"][0], logprobs[0] if logprobs else None, finish)  # type: ignore[arg-type]


def _time_splits(rollouts: Sequence[Rollout]) -> dict[str, list[float]]:
    """SkyRL's two kinds of time: with the model, and with the environment."""
    parts = ("init", "tools", "reward")
    return {
        "llm": [rollout.seconds.get("model", 0.0) for rollout in rollouts],
        "env": [sum(rollout.seconds.get(part, 0.0) for part in parts) for rollout in rollouts],
    }
