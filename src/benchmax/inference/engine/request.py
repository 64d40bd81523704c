"""A generation asked for: its prompt, its settings, and what has been sampled so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from benchmax.errors import ContextExceeded, UsageError
from benchmax.inference.engine.sampling import MAX_STOPS, Generation, SamplingParams

ShouldStop = Callable[[list[int]], "bool | int | None"]
OnTokens = Callable[[list[int], list[float]], None]
"""Called with sampled ids and their log-probs as they come, in the engine's thread."""


class GenerationFuture(Future[Generation]):
    """A future whose cancellation can be read without its lock."""

    dropped = False

    def cancel(self) -> bool:
        cancelled = super().cancel()
        self.dropped = self.dropped or cancelled
        return cancelled


@dataclass(slots=True, eq=False)
class Request:
    """One generation under way."""

    prompt: list[int]
    params: SamplingParams
    seed: int
    limit: int
    """Tokens at which it ends, prompt included."""
    should_stop: ShouldStop | None = None
    on_tokens: OnTokens | None = None
    future: GenerationFuture = field(default_factory=GenerationFuture)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    row: int = -1
    launched: int = 0
    """Tokens that the device was asked to sample, whether read or not."""
    reused: int = 0
    begun: bool = False
    """Whether a chunk of its prompt is computed already."""

    @property
    def context(self) -> list[int]:
        """What must be computed before the next token: after a restart, the sampled tokens too."""
        return self.prompt + self.ids if self.ids else self.prompt

    @property
    def listens(self) -> bool:
        """Whether the host handles every token: the caller gets each, or is asked, or the device lacks a stop."""
        has_callback = self.should_stop is not None or self.on_tokens is not None
        return has_callback or len(self.params.stop_token_ids) > MAX_STOPS

    @property
    def length(self) -> int:
        """Positions that are in use or about to be."""
        return len(self.prompt) + self.launched

    @property
    def remaining(self) -> int:
        return self.limit - self.length


@dataclass(slots=True)
class Counters:
    """Totals since the engine started."""

    requests: int = 0
    generated: int = 0
    prefilled: int = 0
    prefix_hits: int = 0
    prefix_tokens: int = 0
    steps: int = 0
    rows_stepped: int = 0
    preempted: int = 0
    busy_seconds: float = 0.0


def check_prompt(prompt: Sequence[int], vocab: int, max_len: int) -> list[int]:
    """The prompt as plain integers, or an error that says what is wrong with it."""
    if not len(prompt):
        raise UsageError("The prompt has no tokens. Give at least one, such as the BOS token.")
    if len(prompt) < max_len and set(map(type, prompt)) == {int} and min(prompt) >= 0 and max(prompt) < vocab:
        return list(prompt)
    try:
        ids = np.asarray(prompt)
    except ValueError:
        ids = np.zeros(0)  # lists of different lengths
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise UsageError("A prompt is a flat list of token ids. Encode the text with the model's tokenizer first.")
    if ids.min() < 0 or ids.max() >= vocab:
        raise UsageError(f"Token ids go from 0 to {vocab - 1}; the prompt has {int(ids.min())}…{int(ids.max())}.")
    if len(ids) >= max_len:
        raise ContextExceeded(
            f"The prompt has {len(ids)} tokens; this engine holds {max_len}, the reply included. "
            "Shorten the prompt, or open the engine with a larger max_len."
        )
    plain: list[int] = ids.tolist()
    return plain
