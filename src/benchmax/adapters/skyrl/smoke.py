"""`--smoke`: one training step of SkyRL on a CPU, all of it real but the model's size, its engine and its workers.

The settings are parsed and checked by SkyRL, its dataset is read, its trainer's batch is made, our generator plays it
with the environment's own tools, and SkyRL's checks, advantages and loss see the result. A toy model with fresh weights
stands for the policy: a third of its rollouts begin with a call of the first tool and a third answer with the
environment's own solution, if it has one, since the toy would find neither.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from benchmax import extras
from benchmax.adapters.example_rows import carried
from benchmax.adapters.skyrl.entrypoint import read_config
from benchmax.adapters.skyrl.generator import BenchmaxGenerator, OpenEnv, make_generator
from benchmax.doctor.tool_arguments import arguments_for
from benchmax.envs.base_env import with_system_prompt
from benchmax.envs.types import Example, ToolDefinition
from benchmax.errors import NotFoundError, RolloutError
from benchmax.prompts.tools import render_tool_call
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.settings import RolloutSettings

PROMPTS = 2
SAMPLES = 3
NEW_TOKENS = 24
CONTEXT = 16_384


def smoke(envs: Mapping[str, OpenEnv], words: Sequence[str], settings: RolloutSettings) -> None:
    """Raises when anything on the way to a step of training does not work."""
    cfg = read_config([*words, "trainer.logger=console"])
    for path in (*cfg.data.train_data, *cfg.data.val_data):
        if not Path(path).expanduser().is_file():
            raise NotFoundError(f"There is no dataset at {path}. Write it with benchmax_data_process.py first.")
    cfg.generator.sampling_params.max_generate_length = NEW_TOKENS
    cfg.generator.n_samples_per_prompt = SAMPLES
    cfg.generator.max_input_length = CONTEXT - NEW_TOKENS
    with tempfile.TemporaryDirectory() as folder:
        _Smoke(cfg, envs, settings, Path(folder)).run()


class _Smoke:
    def __init__(self, cfg: Any, envs: Mapping[str, OpenEnv], settings: RolloutSettings, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from benchmax.trainer.tiny_model import make_tiny

        extras.require("The smoke test", "data")
        make_tiny(folder, hidden=32, layers=2, context=CONTEXT)
        self.cfg = cfg
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder)
        self.engine = CpuEngine(self.model, self.tokenizer)
        self.generator: BenchmaxGenerator = make_generator(
            envs, cfg.generator, self.engine, self.tokenizer, policy_model_name="toy", settings=settings
        )

    def run(self) -> None:
        try:
            batch, uids = self._batch()
            given = asyncio.run(self._generate(batch))
            loss = self._learn(given, uids)
        finally:
            self.generator.close()
        played = self.generator.last
        calls = [event for rollout in played for event in rollout.tool_events]
        ok = sum(call.ok for call in calls)
        _say(f"{len(played)} rollouts of {PROMPTS} prompts, {len(calls)} tool calls, {ok} of them ok")
        _say(f"rewards: {', '.join('none' if r.reward is None else f'{r.reward:g}' for r in played)}")
        _say(f"one step of the toy model with SkyRL's advantages and loss: {loss:.2f}, summed over tokens")
        if failed := [rollout.error for rollout in played if rollout.error is not None]:
            raise RolloutError(f"{len(failed)} of {len(played)} rollouts failed; the first: {failed[0].message}")

    def _batch(self) -> tuple[Any, list[str]]:
        """The first rows, as SkyRL's trainer makes a batch of them."""
        from skyrl.train.dataset import PromptDataset
        from skyrl.train.generators.utils import prepare_generator_input

        rows = PromptDataset(self.cfg.data.train_data, self.tokenizer, max_prompt_length=CONTEXT, num_workers=1)
        _say(f"{len(rows)} rows to train on")
        prompts = rows.collate_fn([rows[index] for index in range(min(PROMPTS, len(rows)))])
        params = {"temperature": 1.0, "max_tokens": NEW_TOKENS, "logprobs": 1}
        made: tuple[Any, list[str]] = prepare_generator_input(prompts, SAMPLES, params, "", "train", 0)
        return made

    async def _generate(self, batch: Any) -> Any:
        from skyrl.train.utils.trainer_utils import validate_generator_output

        name = batch["env_classes"][0]
        host = (await self.generator.session(name)).host
        tools = (await host.toolbox()).tools
        if tools:
            self.engine.call = render_tool_call(tools[0].name, json.dumps(arguments_for(tools[0], word="2 + 2")))
        for extra, prompt in zip(batch["env_extras"], batch["prompts"], strict=True):
            self._learn_gold(carried(extra, prompt), host, tools)
        _say(f"{name} is open, with {len(tools)} tools: {', '.join(tool.name for tool in tools)}")
        given = await self.generator.generate(batch)
        validate_generator_output(len(batch["prompts"]), given, step_wise=self.cfg.generator.step_wise_trajectories)
        return given

    def _learn_gold(self, example: Example, host: EnvHost, tools: Sequence[ToolDefinition]) -> None:
        if gold := host.env.gold_completion(example):
            messages = with_system_prompt(example["prompt_messages"], host.env.system_prompt)
            self.engine.gold[tuple(self.generator.chat.prompt(messages, tools))] = gold

    def _learn(self, given: Any, uids: Sequence[str]) -> float:
        """One step with SkyRL's advantages and loss."""
        import numpy as np
        import torch
        from skyrl.backends.skyrl_train.utils.ppo_utils import compute_grpo_outcome_advantage, ppo_policy_loss

        names = ("rewards", "loss_masks", "rollout_logprobs")
        rewards, mask, old = (torch.tensor(_padded(given[name], 0.0)) for name in names)
        advantages, _ = compute_grpo_outcome_advantage(rewards, mask, np.array(list(uids)[: len(rewards)]))
        new = torch.zeros_like(old)
        for index, (prompt, response) in enumerate(zip(given["prompt_token_ids"], given["response_ids"], strict=True)):
            new[index, : len(response)] = logprobs_of(self.model, prompt, response)
        loss, _ = ppo_policy_loss(new, old, advantages, self.cfg.trainer.algorithm, mask)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        loss.backward()
        optimizer.step()
        return float(loss.detach())


class CpuEngine:
    """What SkyRL's generators need of an engine, over a small model of transformers."""

    weight_version = 0

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer
        self.call: str | None = None
        """A tool call, the first turn of every third conversation."""
        self.gold: dict[tuple[int, ...], str] = {}
        """Good answers by their prompt."""
        self._number = count()
        self._sessions: set[str] = set()

    async def generate(self, input_batch: Mapping[str, Any], model: str | None = None) -> dict[str, Any]:
        (prompt,), (session,) = input_batch["prompt_token_ids"], input_batch["session_ids"]
        first = session not in self._sessions
        self._sessions.add(session)
        scripted = (self.call, self.gold.get(tuple(prompt)), None)[next(self._number) % SAMPLES] if first else None
        if scripted:
            ids = [*self._tokenizer.encode(scripted, add_special_tokens=False), self._tokenizer.eos_token_id]
        else:
            ids = self._draw(prompt, input_batch["sampling_params"]["max_tokens"])
        ended = ids[-1] == self._tokenizer.eos_token_id
        return {
            "responses": [self._tokenizer.decode(ids, skip_special_tokens=True)],
            "response_ids": [ids],
            "stop_reasons": ["stop" if ended else "length"],
            "response_logprobs": [logprobs_of(self._model, prompt, ids).tolist()],
        }

    def _draw(self, prompt: list[int], most: int) -> list[int]:
        import torch

        with torch.no_grad():
            whole = self._model.generate(torch.tensor([prompt]), do_sample=True, max_new_tokens=most)
        drawn: list[int] = whole[0, len(prompt) :].tolist()
        return drawn

    async def finish_session(self, session_id: str) -> None:
        self._sessions.discard(session_id)


def logprobs_of(model: Any, prompt: Sequence[int], response: Sequence[int]) -> Any:
    """The log-probability of each token of a response under the model."""
    import torch

    ids = torch.tensor([[*prompt, *response]])
    logits = model(ids).logits[0, len(prompt) - 1 : -1].float()
    return logits.log_softmax(-1).gather(-1, ids[0, len(prompt) :, None])[:, 0]


def _padded(rows: Sequence[Sequence[float]], filler: float) -> list[list[float]]:
    longest = max(map(len, rows))
    return [[*map(float, row), *[filler] * (longest - len(row))] for row in rows]


def _say(line: str) -> None:
    sys.stdout.write(f"smoke: {line}\n")
    sys.stdout.flush()
