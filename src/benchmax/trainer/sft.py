"""A supervised warm start: show the model good answers before it searches for better ones.

Rows are chats that end with an assistant turn (`messages`), or what a training row holds with a `completion` (or
`ground_truth`). The latter are asked as a rollout asks them: the environment turns them into a prompt, and its system
prompt and tools stand before it. Chats stay as given, with the tools. Only the last answer is learned; what comes
before is context. The tokens go through the same packing as rollouts do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from benchmax.envs.base_env import BaseEnv, overrides, with_system_prompt
from benchmax.envs.datasets import DatasetReport, load_examples
from benchmax.envs.readers import Source, read_rows, source_name
from benchmax.envs.rows import Finding, Row, RowFault, check_messages, check_shape, kind
from benchmax.envs.types import Messages, ToolDefinition
from benchmax.errors import DatasetError, ModelRejected
from benchmax.inference.tokens import ChatTokens
from benchmax.models.hermes import as_text, plain_text
from benchmax.rollouts.host import EnvHost
from benchmax.trainer.batch import Batch, TokenSequence
from benchmax.trainer.config import OptimConfig, SftConfig
from benchmax.trainer.learner import Aborted, Learner
from benchmax.trainer.optim import Optimizer

OnStep = Callable[[int, int, float], None]
"""Told the step, the number of steps and the loss."""
OnNote = Callable[[str], None]
"""Told what a person should know about the rows."""

CHAT_COLUMNS = ("messages", "prompt_messages")
ANSWER_COLUMNS = ("completion", "ground_truth")


class Lesson(NamedTuple):
    """What the model is shown."""

    prompt: Messages
    answer: str
    is_chat: bool
    """The prompt is as the row gives it."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What rollouts put around the prompt of a row; nothing without an environment."""

    env: BaseEnv | None = None
    tools: Sequence[ToolDefinition] = ()

    @classmethod
    async def of(cls, host: EnvHost) -> Scene:
        return cls(host.env, (await host.toolbox()).tools)

    @property
    def system_prompt(self) -> str:
        return self.env.system_prompt if self.env else ""

    def prompt_of(self, row: Mapping[str, Any]) -> Messages:
        """What a rollout of the row begins with; RowFault when the environment can make nothing of it."""
        try:
            (example,) = load_examples([row], type(self.env) if self.env else None, lenient=True)
        except DatasetError as error:
            found = [Finding(each.column, each.reason, each.fix) for each in error.issues if each.severity == "error"]
            if self.env and overrides(self.env, "dataset_preprocess"):
                advice = "give the columns it reads beside the completion, or the whole chat as `messages`"
                found = [finding._replace(fix=advice) for finding in found]
            raise RowFault(*found) from error
        return with_system_prompt(example["prompt_messages"], self.system_prompt)


def sft_sequences(
    source: Source,
    chat: ChatTokens,
    scene: Scene = Scene(),
    *,
    lenient: bool = False,
    on_note: OnNote = lambda note: None,
) -> list[TokenSequence]:
    """The rows as token sequences. Every unusable row is named; `lenient` leaves such rows out."""
    report = DatasetReport(source_name(source), lenient)
    sequences: list[TokenSequence] = []
    chats_without_system = 0
    for row in read_rows(source):
        report.rows += 1
        try:
            lesson = _lesson(row, scene)
            sequences.append(_sequence(chat, lesson, scene.tools))
        except RowFault as fault:
            report.bad_rows += 1
            for finding in fault.findings:
                report.add(row.issue(finding))
            continue
        report.kept += 1
        chats_without_system += lesson.is_chat and all(turn["role"] != "system" for turn in lesson.prompt)
    report.raise_if_bad()
    if report.bad_rows:
        on_note(f"{report.bad_rows} of {report.rows} rows of {report.source} cannot be used: left out.")
    if chats_without_system and scene.system_prompt:
        on_note(
            f"{chats_without_system} of {report.rows} rows of {report.source} are `messages` without a system message, "
            "and are shown like that; rollouts begin with the environment's system prompt."
        )
    return sequences


def _lesson(row: Row, scene: Scene) -> Lesson:
    """What a row teaches; RowFault when that is nothing."""
    if fault := row.fault or check_shape(row.data):
        raise RowFault(fault)
    for column in CHAT_COLUMNS:
        if row.data.get(column):
            return _chat(column, row.data[column])
    return Lesson(scene.prompt_of(row.data), _answer(row.data), is_chat=False)


def _chat(column: str, messages: Any) -> Lesson:
    errors = [finding for finding in check_messages(column, messages) if finding.severity == "error"]
    if errors:
        raise RowFault(*errors)
    *prompt, last = cast(Messages, messages)
    says_something = last.get("content") is not None or last.get("tool_calls")
    if last["role"] != "assistant" or not prompt or not says_something:
        shape = 'write [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]'
        raise RowFault(Finding(column, "does not end with an assistant turn that answers", shape))
    (spoken,) = as_text([last])
    return Lesson(prompt, plain_text(spoken.get("content")), is_chat=True)


def _answer(row: Mapping[str, Any]) -> str:
    for column in ANSWER_COLUMNS:
        answer = row.get(column)
        if answer is None:
            continue
        if isinstance(answer, bool) or not isinstance(answer, str | int | float):
            raise RowFault(Finding(column, f"is {kind(answer)}, not text", "write the answer as text"))
        return str(answer)
    reason = "the row has neither `messages` nor a `completion` to learn"
    raise RowFault(Finding(None, reason, 'write {"prompt": "…", "completion": "…"}'))


def warm_start(
    learner: Learner,
    sequences: Sequence[TokenSequence],
    config: SftConfig,
    *,
    seed: int = 0,
    on_step: OnStep = lambda step, steps, loss: None,
    abort: Callable[[], bool] = lambda: False,
) -> list[float]:
    """Train on the sequences; gives the loss of each step. Raises Aborted between two of them when asked to."""
    batches = [
        order[start : start + config.batch]
        for epoch in range(config.epochs)
        for order in [random.Random(f"{seed} sft {epoch}").sample(list(sequences), len(sequences))]
        for start in range(0, len(sequences), config.batch)
    ]
    lr = config.lr or learner.optimizer.lr
    optimizer = Optimizer(learner.policy.parameters(), OptimConfig(schedule="linear"), lr=lr, total=len(batches))
    losses: list[float] = []
    for step, chosen in enumerate(batches):
        if abort():
            raise Aborted
        batch = Batch.of(chosen)
        losses.append(learner.with_memory(partial(_backward, learner, batch)))
        learner.apply(optimizer)
        on_step(step, len(batches), losses[-1])
    return losses


def _backward(learner: Learner, batch: Batch) -> float:
    """Accumulate the gradient of the mean loss of the batch's tokens, which is given."""
    policy = learner.policy
    learner.optimizer.clear()
    weight = batch.weights("token", 1).to(policy.device)
    total = torch.zeros((), device=policy.device)
    for micro in batch.micro_batches(learner.token_budget, learner.row_tokens):
        micro = micro.to(policy.device)
        loss = -(policy.logprobs(micro, temperature=1.0)[0] * weight[micro.token]).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total.item()


def _sequence(chat: ChatTokens, lesson: Lesson, tools: Sequence[ToolDefinition]) -> TokenSequence:
    try:
        asked = chat.prompt(lesson.prompt, tools)
    except ModelRejected as error:
        raise RowFault(Finding(None, str(error), "change its messages")) from error
    said = [*chat.encode(lesson.answer), *chat.end_of_turn]
    ids = np.asarray(asked + said, np.int64)
    if len(ids) > chat.context:
        reason = f"has {len(ids):,} tokens with its answer; the model takes {chat.context:,}"
        raise RowFault(Finding(None, reason, "shorten it, or train a model with a longer context"))
    targets = np.arange(len(asked), len(ids))
    return TokenSequence(ids, targets, np.full(len(said), np.nan, np.float32), 1.0)
