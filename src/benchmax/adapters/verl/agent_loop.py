"""An agent loop for verl: our rollouts on its inference servers, token ids in and token ids out.

verl makes one object for each rollout and runs all of a batch at once. Those with the same `uid` are siblings: they are
gathered, as far as verl's worker has them, and played and scored as one group.

verl has no word for "unscored". A rollout that could not be scored is masked out of the loss and carries the mean
reward of its siblings, so that it neither teaches nor moves their baseline.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from benchmax.adapters.batches import failures, play_batch
from benchmax.adapters.engine_model import Ask, Drawn, EngineModel
from benchmax.adapters.env_session import named_session
from benchmax.adapters.example_rows import COLUMN, carried
from benchmax.adapters.trajectory import Trajectory, fill_unscored, trajectory_of
from benchmax.envs.types import Example
from benchmax.errors import ContextExceeded
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.models.base import Sampling
from benchmax.rollouts.settings import RolloutSettings

logger = logging.getLogger(__name__)

_chats: dict[int, tuple[Any, ChatTokens]] = {}


class BenchmaxAgentLoop:
    """One rollout, as verl makes it from `agent_loop_config_path`. verl asks for no base class."""

    _waiting: dict[Hashable, list[tuple[Example, asyncio.Future[Trajectory]]]] = {}  # noqa: RUF012  of all rollouts
    """By group: rollouts that have been asked for and not been begun."""

    def __init__(
        self,
        trainer_config: Any,
        server_manager: Any,
        tokenizer: Any,
        *,
        env: str,
        env_args: Mapping[str, Any] | None = None,
        max_turns: int | None = None,
        max_tool_calls: int | None = None,
        **more: Any,
    ) -> None:
        """`env` and what follows come from the YAML file; the rest from verl."""
        self.config = trainer_config.config.actor_rollout_ref.rollout
        self.server, self.env, self.env_args = server_manager, env, dict(env_args or {})
        self.chat = _chat_of(tokenizer)
        self.settings = RolloutSettings(max_turns=max_turns, max_tool_calls=max_tool_calls)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """The rollout of a row, in verl's types."""
        example = carried({COLUMN: row[COLUMN]} if COLUMN in row else {}, [dict(each) for each in row["raw_prompt"]])
        key = (str(row.get("uid", example["id"])), self.env, json.dumps(sampling_params, sort_keys=True, default=str))
        trajectory = await self._gathered(key, example, sampling_params)
        return self._output(trajectory, bool(sampling_params.get("logprobs")))

    async def _gathered(self, key: Hashable, example: Example, params: Mapping[str, Any]) -> Trajectory:
        """The trajectory of one member of a group; the first of them plays all."""
        done: asyncio.Future[Trajectory] = asyncio.get_running_loop().create_future()
        group = self._waiting.setdefault(key, [])
        group.append((example, done))
        if len(group) > 1:
            return await done
        members = group
        try:
            try:
                await asyncio.sleep(0)  # verl starts all rollouts of a batch in one go: the siblings are here now
            finally:
                del self._waiting[key]
            played = await self._play([example for example, _ in members], params)
        except BaseException as error:
            for _, each in members[1:]:
                if not each.done():
                    each.set_exception(error) if isinstance(error, Exception) else each.cancel()
            raise
        for (_, each), trajectory in zip(members, played, strict=True):
            if not each.done():
                each.set_result(trajectory)
        return played[0]

    async def _play(self, rows: Sequence[Example], params: Mapping[str, Any]) -> list[Trajectory]:
        session = await asyncio.to_thread(named_session, self.env, self.env_args)
        sampling = Sampling(temperature=float(params.get("temperature", 1.0)), max_tokens=None, logprobs=True)
        settings = replace(self.settings, sampling=sampling)
        sample = partial(self._sample, params, set())
        model = EngineModel(self.chat, sample, name="verl", max_response=self.config.response_length)
        rollouts = await play_batch(session.host, rows, model, settings, groups=[0] * len(rows))
        if says := failures(rollouts):
            logger.warning("%s", says)
        trajectories = [trajectory_of(rollout, self.chat) for rollout in rollouts]
        fill_unscored(trajectories)
        return trajectories

    async def _sample(self, params: Mapping[str, Any], begun: set[str], ask: Ask) -> Drawn:
        most = self.config.prompt_length
        if ask.session not in begun and len(ask.prompt) > most:
            raise ContextExceeded(
                f"The prompt has {len(ask.prompt)} tokens; prompt_length of verl's rollout is {most}. Raise it."
            )
        begun.add(ask.session)
        limit = ask.sampling.max_tokens or self.config.response_length
        given = await self.server.generate(
            request_id=ask.session, prompt_ids=ask.prompt, sampling_params={**params, "max_tokens": limit}
        )
        cut = len(given.token_ids) >= limit and given.token_ids[-1] not in self.chat.stop_ids
        return Drawn(given.token_ids, given.log_probs, "length" if cut else "stop")

    def _output(self, each: Trajectory, logprobs: bool) -> Any:
        from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

        rollout, most = each.rollout, self.config.response_length
        kept = (each.logprobs or [0.0] * len(each.response_ids))[:most]
        numbers = {
            "benchmax_scored": float(each.scored),
            "benchmax_turns": float(rollout.turns),
            "benchmax_tool_calls": float(len(rollout.tool_events)),
        }
        ending = {"termination": each.stop_reason, "rewards": dict(rollout.rewards), "unscored": dict(rollout.unscored)}
        return AgentLoopOutput(
            prompt_ids=each.prompt_ids[-self.config.prompt_length :],
            response_ids=each.response_ids[:most],
            response_mask=each.mask[:most],
            response_logprobs=kept if logprobs else None,
            reward_score=sum(each.token_rewards),
            num_turns=len(rollout.messages),
            metrics=AgentLoopMetrics(
                generate_sequences=rollout.seconds.get("model", 0.0), tool_calls=rollout.seconds.get("tools", 0.0)
            ),
            extra_fields={
                "reward_extra_info": numbers,
                "benchmax": ending,
                "turn_scores": [],
                "tool_rewards": [],
            },
        )


def _chat_of(tokenizer: Any) -> ChatTokens:
    """The tokenizer's chat template, read once."""
    if id(tokenizer) not in _chats:
        _chats[id(tokenizer)] = tokenizer, ChatTokens.of_tokenizer(tokenizer)
    return _chats[id(tokenizer)][1]
