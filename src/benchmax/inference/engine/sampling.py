"""How a token is drawn: one uniform number per token, made from (seed, position) alone.

A request's samples depend on its seed and its own logits. The rest of its batch changes those by rounding at most,
which matters only where the number falls that close to the border between two tokens. The draw is inverse-CDF in two
levels (blocks of the vocabulary, then inside one block), which costs a fraction of `torch.multinomial`.

The log-probability reported for a token is `log_softmax(logits / temperature)[token]`, in float32, over the *whole*
vocabulary: top-p and top-k narrow what may be drawn, not what is reported. At temperature 0 the token is the argmax and
the log-probability is that of the raw logits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from benchmax.errors import ConfigError
from benchmax.models.base import is_whole, need_count, need_number

BLOCK = 256
NUCLEUS_CANDIDATES = 1024
"""Tokens among which a CPU searches the nucleus before it sorts the whole vocabulary."""
MIN_TEMPERATURE = 1e-30
"""A lower temperature counts as 0: a score divided by it overflows float32."""
MAX_STOPS = 8
"""Stop tokens checked on the device; the host checks further ones."""

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request is sampled. Temperature 0 is greedy."""

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None
    """The same seed, prompt and weights give the same tokens, but for rounding, in any batch. None: a fresh one."""
    stop_token_ids: tuple[int, ...] = ()
    """Sampling one of these ends the generation; the token itself is kept in `Generation.ids`."""

    def __post_init__(self) -> None:
        need_count("max_tokens", self.max_tokens)
        need_number("temperature", self.temperature, at_least=0)
        need_number("top_p", self.top_p, above=0, at_most=1)
        need_count("top_k", self.top_k, optional=True)
        need_count("seed", self.seed, least=None, optional=True)
        stops = self.stop_token_ids
        if not isinstance(stops, tuple) or not all(is_whole(stop) and 0 <= stop < 1 << 63 for stop in stops):
            raise ConfigError(f"stop_token_ids is {stops!r}; use a tuple of token ids.")
        if self.temperature < MIN_TEMPERATURE:
            object.__setattr__(self, "temperature", 0.0)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def truncated(self) -> bool:
        return not self.greedy and (self.top_p < 1 or self.top_k is not None)


@dataclass(slots=True)
class Generation:
    """What was sampled: exact tokens and their log-probabilities, one each."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Literal["stop", "length"] = "length"
    prefix: int = 0
    """Prompt tokens whose keys and values were reused."""


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def uniforms(seeds: Tensor, positions: Tensor) -> Tensor:
    """One number in (0, 1) per row: splitmix64 of (seed, position). 23 bits, so never 0 or 1 in float32."""
    x = seeds + (positions + 1) * _GOLDEN
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    x = x ^ _shift(x, 31)
    return (_shift(x, 41).float() + 0.5) * 2.0**-23


def draw(
    logits: Tensor, temperature: Tensor, uniform: Tensor, top_p: Tensor | None = None, top_k: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Token and log-probability for each row of `logits`, which is overwritten. Truncates only with `top_p`."""
    greedy = temperature <= 0
    scores = logits.float().div_(temperature.masked_fill(greedy, 1.0).unsqueeze(1))
    peaks = scores.argmax(-1) if logits.is_cuda else _greedy_peaks(scores, greedy)
    # In place: at 49,152 tokens a row, fresh memory costs more than the arithmetic.
    mass = scores.sub_(scores.amax(-1, keepdim=True)).exp_()
    kept = mass if top_p is None or top_k is None else truncate(mass, top_p, top_k)
    ids = torch.where(greedy, peaks, inverse_cdf(kept, uniform))
    chosen = mass.gather(1, ids.unsqueeze(1)).squeeze(1)
    return ids, chosen.log() - mass.sum(-1).log()


def _greedy_peaks(scores: Tensor, greedy: Tensor) -> Tensor:
    """Argmax of the greedy rows alone: on a CPU it is the most expensive pass."""
    peaks = torch.zeros(scores.shape[0], dtype=torch.int64)
    if bool(greedy.any()):
        peaks[greedy] = scores[greedy].argmax(-1)
    return peaks


def inverse_cdf(mass: Tensor, uniform: Tensor) -> Tensor:
    """The index at which the running sum of each row of `mass` passes `uniform` times its total."""
    rows, width = mass.shape
    if width % BLOCK:
        mass = torch.nn.functional.pad(mass, (0, BLOCK - width % BLOCK))
    blocks = mass.view(rows, -1, BLOCK)
    bounds = blocks.sum(-1).cumsum(-1)
    target = uniform.unsqueeze(1) * bounds[:, -1:]
    block = (bounds <= target).sum(-1, keepdim=True).clamp_(max=bounds.shape[1] - 1)
    before = bounds.gather(1, (block - 1).clamp(min=0)).masked_fill_(block == 0, 0.0)
    inside = blocks.gather(1, block.unsqueeze(2).expand(-1, 1, BLOCK)).squeeze(1)
    running = inside.cumsum(-1)
    # Rounding must not push the target past the block: an index of zero mass would have log-prob -inf.
    last = running[:, -1:]
    target = torch.minimum(target - before, torch.nextafter(last, torch.zeros_like(last)))
    offset = (running <= target).sum(-1, keepdim=True).clamp_(max=BLOCK - 1)
    safe = torch.where(inside.gather(1, offset) > 0, offset, inside.argmax(-1, keepdim=True))
    return (block * BLOCK + safe).squeeze(1)


def truncate(mass: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """`mass` with 0 outside the top-k most likely tokens, and of those outside the top-p nucleus.

    A row with top_p 1 and top_k 0 passes unchanged. Ties at the edge are kept.
    """
    if mass.is_cuda:  # inside a CUDA graph nothing may depend on a value: sort everything
        narrowed = _narrow(mass, mass.sort(dim=-1, descending=True).values, top_p, top_k)
        return torch.where(((top_p >= 1) & (top_k <= 0)).unsqueeze(1), mass, narrowed)
    picked = ((top_p < 1) | (top_k > 0)).nonzero().squeeze(1)
    if not len(picked):
        return mass
    part, top_p, top_k = mass[picked], top_p[picked], top_k[picked]
    few = min(NUCLEUS_CANDIDATES, mass.shape[1])
    ordered = part.topk(few, dim=-1).values
    covered = torch.where(top_k > 0, top_k <= few, ordered.sum(-1) >= top_p * part.sum(-1))
    if not bool(covered.all()):
        ordered = part.sort(dim=-1, descending=True).values
    return mass.index_copy(0, picked, _narrow(part, ordered, top_p, top_k))


def _narrow(mass: Tensor, ordered: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Cut `mass` at an edge found in `ordered`, its largest values in falling order."""
    width = ordered.shape[1]
    limit = top_k.masked_fill(top_k <= 0, width).clamp(max=width).unsqueeze(1)
    running = ordered.cumsum(-1)
    whole = torch.where(top_k.unsqueeze(1) > 0, running.gather(1, limit - 1), mass.sum(-1, keepdim=True))
    rank = torch.arange(width, device=mass.device)
    outside = (rank >= limit) | ((running - ordered >= whole * top_p.unsqueeze(1)) & (rank > 0))
    edge = ordered.masked_fill(outside, torch.inf).amin(-1, keepdim=True)
    return mass.masked_fill(mass < edge, 0.0)
