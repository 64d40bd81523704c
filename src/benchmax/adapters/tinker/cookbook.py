"""Our environments in tinker-cookbook: its `EnvGroupBuilder`, `Env` and `RLDataset`, for those who train with its loop.

    builder = dataset_builder(MyEnv, examples, held_out, model_name="Qwen/Qwen3-8B", batch_size=16, group_size=8)
    config = tinker_cookbook.rl.train.Config(dataset_builder=builder, model_name="Qwen/Qwen3-8B", …)

The cookbook samples and keeps tokens and log-probs; an observation is the ids of the whole conversation so far, so that
its turns join into one datum. The reward comes at the end, for a whole group (`compute_group_rewards`), with that of
`compute_group_reward`. A rollout without a reward gets the mean of its siblings: its advantage is 0, and theirs stay.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from statistics import fmean
from types import SimpleNamespace
from typing import Any

from benchmax import limits
from benchmax.adapters.env_session import EnvSession, shared_session
from benchmax.adapters.tinker import ADAPTER
from benchmax.adapters.tinker.token_rollout import TokenRollout, score_together
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import Example
from benchmax.errors import UsageError
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.rollouts.record import Rollout, Termination
from benchmax.rollouts.settings import RolloutSettings

TERMINATIONS: Mapping[str, Termination] = {
    "max_turns": Termination.MAX_TURNS,
    "max_sampled_tokens": Termination.TOKEN_BUDGET,
    "rollout_timeout": Termination.TIME_BUDGET,
}
"""The cookbook's own reasons to end a rollout, in our words; all others are a matter of its length."""


@dataclass(frozen=True)
class Source:
    """What the groups of a dataset have in common. It can be pickled: groups may be played in other processes."""

    env: type[BaseEnv] | Callable[[], BaseEnv]
    """What makes the environment."""
    key: str
    """The same in every process, so that each opens one environment."""
    model_name: str
    settings: RolloutSettings
    context: int | None


def dataset_builder(
    env: type[BaseEnv] | Callable[[], BaseEnv],
    examples: Sequence[Example],
    held_out: Sequence[Example] = (),
    *,
    model_name: str,
    batch_size: int = 16,
    group_size: int = 8,
    epochs: int = 1,
    seed: int = 0,
    settings: RolloutSettings = RolloutSettings(),
    context: int | None = None,
) -> Any:
    """A `RLDatasetBuilder` for the cookbook's `train.Config`; held-out rows are its test set, one sample each.

    `context` is the most tokens of a conversation; a longer one ends as `context_exceeded`.
    """
    _check_installed()
    settings = replace(settings, model_seconds=limits.ROLLOUT_SECONDS)  # a turn waits for the cookbook's whole batch
    source = Source(env, uuid.uuid4().hex, model_name, settings, context)
    test = Rows(source, tuple(held_out), len(held_out) or 1, 1) if held_out else None
    train = Rows(source, tuple(examples), batch_size, group_size, epochs, seed)
    return _classes().DatasetBuilder(train=train, test=test)


@dataclass(frozen=True)
class Rows:
    """Examples in batches of groups, in another order in each epoch."""

    source: Source
    examples: tuple[Example, ...]
    batch_size: int
    group_size: int
    epochs: int = 1
    seed: int = 0

    def __len__(self) -> int:
        return self.epochs * -(-len(self.examples) // self.batch_size)

    def batch(self, index: int) -> list[Example]:
        each = len(self) // self.epochs
        epoch, number = divmod(index, each)
        order = list(range(len(self.examples)))
        random.Random(f"{self.seed}:{epoch}").shuffle(order)
        return [self.examples[place] for place in order[number * self.batch_size :][: self.batch_size]]


def group_builder(source: Source, example: Example, group_size: int) -> Any:
    """An `EnvGroupBuilder` for the siblings of one example."""
    return _classes().GroupBuilder(source, example, group_size)


class Group:
    """What `GroupBuilder` adds to the cookbook's `EnvGroupBuilder`."""

    def __init__(self, source: Source, example: Example, group_size: int) -> None:
        self.source, self.example, self.group_size = source, example, group_size
        self._made: list[Any] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return group_builder, (self.source, self.example, self.group_size)

    async def make_envs(self) -> Sequence[Any]:
        source = self.source
        session = await asyncio.to_thread(shared_session, source.key, partial(EnvSession, source.env))
        chat = await asyncio.to_thread(_chat, source.model_name)
        made = [_classes().Env(self, session, chat, sample) for sample in range(self.group_size)]
        self._made += made  # called again, the cookbook replaces one that failed
        return made

    async def compute_group_rewards(
        self, trajectory_group: list[Any], env_group: Sequence[Any]
    ) -> list[tuple[float, dict[str, float]]]:
        session: EnvSession = env_group[0].session
        for env, trajectory in zip(env_group, trajectory_group, strict=True):
            reason = TERMINATIONS.get(trajectory.stop_reason or "", Termination.CONTEXT_EXCEEDED)
            session.loop.call_soon_threadsafe(env.rollout.stop, reason)
        pushed = [env.rollout for env in env_group]
        records = await session.outcome(score_together(session.host, pushed, self.source.settings))
        paid = [record.reward for record in records if record.reward is not None]
        mean = fmean(paid) if paid else 0.0
        return [(mean if record.reward is None else record.reward, _numbers(record)) for record in records]

    async def cleanup(self) -> None:
        """Release what was given up."""
        for env in self._made:
            await env.session.outcome(env.rollout.close())
        self._made = []

    def logging_tags(self) -> list[str]:
        return [self._made[0].session.host.name] if self._made else ["benchmax"]


class Sibling:
    """What `Env` adds to the cookbook's: one rollout."""

    def __init__(self, group: Group, session: EnvSession, chat: ChatTokens, sample: int) -> None:
        source = group.source
        self.session, self._stop = session, list(chat.stop_ids)
        self.rollout = TokenRollout(
            session.host, group.example, chat, source.settings,
            name=source.model_name, sample=sample, context=source.context,
        )  # fmt: skip

    async def initial_observation(self) -> Any:
        import tinker
        from tinker_cookbook.rl.types import InitialObservationOverflow

        prompt = await self.session.outcome(self.rollout.begin())
        if prompt is None:
            return InitialObservationOverflow(0.0, metrics=self._ended(), logs=self._logs())
        return tinker.ModelInput.from_ints(prompt), self._stop

    async def step(self, action: list[int], *, extra: Mapping[str, Any] | None = None) -> Any:
        import tinker
        from tinker_cookbook.rl.types import StepResult

        cut = (extra or {}).get("stop_reason") == "length"
        prompt = await self.session.outcome(self.rollout.turn(action, "length" if cut else "stop"))
        metrics, logs = ({}, {}) if prompt is not None else (self._ended(), self._logs())
        observation = tinker.ModelInput.from_ints(prompt or [])
        return StepResult(0.0, prompt is None, observation, self._stop, metrics, logs)

    def _ended(self) -> dict[str, float]:
        """Why it ended, as the cookbook reads it into `Trajectory.stop_reason`: our termination reason."""
        return {f"stop/{self.rollout.record.termination.value}": 1.0}

    def _logs(self) -> dict[str, str]:
        error = self.rollout.record.error
        return {} if error is None else {"error": str(error)}


@cache
def _classes() -> SimpleNamespace:
    """Subclasses of the cookbook's own, made when it is there."""
    import chz
    from tinker_cookbook.rl import types

    class Env(Sibling, types.Env):  # type: ignore[misc]
        pass

    class GroupBuilder(Group, types.EnvGroupBuilder):  # type: ignore[misc]
        pass

    class Dataset(types.RLDataset):  # type: ignore[misc]
        def __init__(self, rows: Rows) -> None:
            self.rows = rows

        def get_batch(self, index: int) -> Sequence[Any]:
            rows = self.rows
            return [group_builder(rows.source, example, rows.group_size) for example in rows.batch(index)]

        def __len__(self) -> int:
            return len(self.rows)

    class DatasetBuilder(types.RLDatasetBuilder):  # type: ignore[misc]
        train: Rows
        test: Rows | None = None

        async def __call__(self) -> tuple[Any, Any]:
            return Dataset(self.train), None if self.test is None else Dataset(self.test)

    return SimpleNamespace(Env=Env, GroupBuilder=GroupBuilder, DatasetBuilder=chz.chz(DatasetBuilder))


@cache
def _chat(model_name: str) -> ChatTokens:
    from tinker_cookbook.tokenizer_utils import get_tokenizer

    return ChatTokens.of_tokenizer(get_tokenizer(model_name))


def _numbers(record: Rollout) -> dict[str, float]:
    """Numbers for the cookbook's log."""
    numbers = {f"reward/{name}": value for name, value in record.rewards.items()}
    ended = {"unscored": float(record.reward is None), "turns": float(record.turns)}
    return {**numbers, **ended, "tool_calls": float(len(record.tool_events))}


def _check_installed() -> None:
    if find_spec("tinker_cookbook") is None:
        raise UsageError(
            "Tinker's cookbook is not installed. Run, in a virtual environment of its own: "
            f"pip install 'tinker-cookbook==0.5.8' '{ADAPTER.pin}'"
        )
