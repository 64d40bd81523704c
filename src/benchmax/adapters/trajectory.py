"""A rollout as outside trainers take it: token ids, masks, log-probs and rewards, all of one length.

    prompt_ids     everything before the first sampled token
    response_ids   everything after: what was sampled, and what tools answered in between
    mask           1 where the model sampled, 0 where it observed
    logprobs       the sampler's, 0.0 where it observed
    token_rewards  the total on the last sampled token, 0.0 elsewhere

A rollout without a reward is not worth 0: it keeps its place in the group, its mask is 0 throughout, and `reward` is
None. A rollout that failed before its first token has a single end-of-turn token as its response, masked. For step-wise
training, each turn is a trajectory by itself, with all that came before it as its prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from benchmax.errors import ModelError
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.models.base import TokenSegment
from benchmax.rollouts.record import Rollout


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One rollout in tokens, or one turn of it."""

    rollout: Rollout
    prompt_ids: list[int]
    response_ids: list[int]
    mask: list[int]
    logprobs: list[float] | None
    """None when the engine reported none."""
    token_rewards: list[float]
    last: bool = True
    """Whether the rollout ends with it."""

    @property
    def reward(self) -> float | None:
        return self.rollout.reward

    @property
    def scored(self) -> bool:
        """Whether it can be learned from; if not, its mask is 0 and it has no reward."""
        return self.rollout.ok and self.rollout.reward is not None

    @property
    def stop_reason(self) -> str:
        """Why it ended, as our termination reason."""
        return self.rollout.termination.value


def trajectory_of(rollout: Rollout, chat: ChatTokens) -> Trajectory:
    """The rollout in tokens, whatever became of it."""
    if not any(segment.sampled and segment.ids for segment in rollout.tokens):
        return _without_tokens(rollout, chat)
    sampled = [index for index, segment in enumerate(rollout.tokens) if segment.sampled]
    prompt = [token for segment in rollout.tokens[: sampled[0]] for token in segment.ids]
    rest = rollout.tokens[sampled[0] : sampled[-1] + 1]
    scored = rollout.ok and rollout.reward is not None
    ids = [token for segment in rest for token in segment.ids]
    mask = [int(segment.sampled and scored) for segment in rest for _ in segment.ids]
    rewards = [0.0] * len(ids)
    if scored and rollout.reward is not None:
        rewards[-1] = rollout.reward
    return Trajectory(rollout, prompt, ids, mask, _logprobs(rest), rewards)


def fill_unscored(siblings: Sequence[Trajectory]) -> None:
    """Give unscored ones the mean reward of their siblings, the one value that leaves the baseline alone: for trainers
    that have no word for "unscored"."""
    scored = [each.reward for each in siblings if each.scored and each.reward is not None]
    for each in siblings:
        if not each.scored:
            each.token_rewards[-1] = fmean(scored) if scored else 0.0


def steps_of(whole: Trajectory) -> list[Trajectory]:
    """The turns of a trajectory, each a sample of its own; the reward is on the last one."""
    prompt = len(whole.prompt_ids)
    spans = list(_sampled_spans(whole.rollout.tokens)) or [(prompt, prompt + len(whole.response_ids))]
    return [_step(whole, start - prompt, end - prompt, last=end == spans[-1][1]) for start, end in spans]


def _step(whole: Trajectory, start: int, end: int, *, last: bool) -> Trajectory:
    """One turn, at this span of the response."""
    return replace(
        whole,
        prompt_ids=whole.prompt_ids + whole.response_ids[:start],
        response_ids=whole.response_ids[start:end],
        mask=whole.mask[start:end],
        logprobs=whole.logprobs and whole.logprobs[start:end],
        token_rewards=whole.token_rewards[start:end],
        last=last,
    )


def _sampled_spans(segments: Sequence[TokenSegment]) -> Iterator[tuple[int, int]]:
    at = 0
    for segment in segments:
        if segment.sampled and segment.ids:
            yield at, at + len(segment.ids)
        at += len(segment.ids)


def _logprobs(segments: Sequence[TokenSegment]) -> list[float] | None:
    if any(segment.sampled and segment.ids and not segment.logprobs for segment in segments):
        return None
    return [value for segment in segments for value in (segment.logprobs or [0.0] * len(segment.ids))]


def _without_tokens(rollout: Rollout, chat: ChatTokens) -> Trajectory:
    end = chat.end_of_turn[-1]
    try:
        prompt = chat.prompt(rollout.prompt)
    except ModelError:  # the template refuses the messages, which is perhaps why there are no tokens
        prompt = [end]
    return Trajectory(rollout, prompt, [end], [0], [0.0], [0.0])
