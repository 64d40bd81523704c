"""Triton kernels that draw a token from each row of logits and advance the row's state.

Two launches: one over all chunks of all rows at once, which sums each chunk up, and one that picks a
chunk by those sums and a token inside it. The draw is that of `sampling.rollout_settings` without truncation: the
first token whose running sum passes a uniform number made of seed and position.
"""

# Triton is no dependency (torch for CUDA brings it) and its functions are a language of their own.
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-def, no-untyped-call"
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from benchmax.inference.kernels.layers import power_of_two

CHUNK = 4096


@triton.jit
def _summarise(
    logits, rows, floats, peaks, totals, bests, vocab, FLOATS: tl.constexpr, CHUNK: tl.constexpr, PAD: tl.constexpr
):
    """One chunk of one row: its largest score, where that is, and its mass relative to it."""
    reader, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    temperature = tl.load(floats + tl.load(rows + reader).to(tl.int64) * FLOATS)
    scale = 1.0 / tl.where(temperature <= 0.0, 1.0, temperature)
    at = chunk * CHUNK + tl.arange(0, CHUNK)
    z = tl.load(logits + reader * vocab + at, mask=at < vocab, other=float("-inf")).to(tl.float32) * scale
    peak = tl.maximum(tl.max(z, 0), -3.0e38)
    place = reader * PAD + chunk
    tl.store(peaks + place, peak)
    tl.store(totals + place, tl.sum(tl.exp(z - peak), 0))
    tl.store(bests + place, chunk * CHUNK + tl.argmax(z, 0))


@triton.jit
def _uniform(seed, position):
    """The same number in (0, 1) as `sampling.uniforms`."""
    x = seed.to(tl.uint64) + (position + 1).to(tl.uint64) * 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    x = x ^ (x >> 31)
    return ((x >> 41).to(tl.int32).to(tl.float32) + 0.5) * 1.1920928955078125e-07


@triton.jit
def _pick(
    logits, rows, ints, floats, peaks, totals, bests, tokens, logprobs, step, stride_out, vocab, chunks,
    INTS: tl.constexpr, FLOATS: tl.constexpr, STOPS: tl.constexpr, STOP_COUNT: tl.constexpr,
    CHUNK: tl.constexpr, PAD: tl.constexpr,
):  # fmt: skip
    """Columns of `ints`: token, position, active, limit, seed, top_k, stops…; of `floats`: temperature, top_p."""
    reader = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + reader).to(tl.int64)
    state = ints + row * INTS
    position = tl.load(state + 1) + 1
    temperature = tl.load(floats + row * FLOATS)
    greedy = temperature <= 0.0
    scale = 1.0 / tl.where(greedy, 1.0, temperature)

    part = tl.arange(0, PAD)
    there = part < chunks
    tops = tl.load(peaks + reader * PAD + part, mask=there, other=float("-inf"))
    peak = tl.max(tops, 0)
    masses = tl.load(totals + reader * PAD + part, mask=there, other=0.0) * tl.exp(tops - peak)
    total = tl.sum(masses, 0)
    target = _uniform(tl.load(state + 4), position) * total
    leader = tl.argmax(tops, 0)
    chunk = tl.min(tl.where((tl.cumsum(masses, 0) > target) & (masses > 0.0), part, PAD), 0)
    chunk = tl.where(greedy | (chunk == PAD), leader, chunk)
    before = tl.sum(tl.where(part < chunk, masses, 0.0), 0)

    source = logits + reader * vocab
    lane = tl.arange(0, CHUNK)
    at = chunk * CHUNK + lane
    mass = tl.exp(tl.load(source + at, mask=at < vocab, other=float("-inf")).to(tl.float32) * scale - peak)
    hit = tl.min(tl.where((before + tl.cumsum(mass, 0) > target) & (mass > 0.0), lane, CHUNK), 0)
    # Rounding may leave the target just past the chunk's last sum: then its likeliest token is as good.
    best = tl.load(bests + reader * PAD + chunk)
    token = tl.minimum(tl.where(greedy | (hit == CHUNK), best, chunk * CHUNK + hit), vocab - 1)
    logprob = tl.load(source + token).to(tl.float32) * scale - peak - tl.log(total)

    stops = tl.load(state + STOPS + tl.arange(0, STOP_COUNT))
    stopped = tl.max((stops == token).to(tl.int32), 0) > 0
    ended = stopped | (position + 1 >= tl.load(state + 3))
    running = tl.load(state + 2) > 0
    place = tl.load(step) * stride_out + reader
    tl.store(tokens + place, tl.where(running, token, -1).to(tl.int64))
    tl.store(logprobs + place, logprob)
    tl.store(state, token.to(tl.int64), mask=running)
    tl.store(state + 1, position, mask=running)
    tl.store(state + 2, tl.where(ended, 0, 1).to(tl.int64), mask=running)


def sample(
    logits: Tensor, rows: Tensor, ints: Tensor, floats: Tensor, out: tuple[Tensor, Tensor], step: Tensor, stops: int
) -> None:
    """Draw one token per row of `logits` for the state rows `rows`; write it out and advance the state."""
    (readers, vocab), (tokens, logprobs) = logits.shape, out
    chunk = min(CHUNK, power_of_two(vocab))
    chunks = triton.cdiv(vocab, chunk)
    pad = max(2, power_of_two(chunks))
    peaks, totals = torch.empty(2, readers, pad, device=logits.device)
    bests = torch.empty(readers, pad, dtype=torch.int32, device=logits.device)
    _summarise[(readers, chunks)](
        logits, rows, floats, peaks, totals, bests, vocab, FLOATS=floats.shape[1], CHUNK=chunk, PAD=pad
    )
    _pick[(readers,)](
        logits, rows, ints, floats, peaks, totals, bests, tokens, logprobs, step, tokens.stride(0), vocab, chunks,
        INTS=ints.shape[1], FLOATS=floats.shape[1], STOPS=stops, STOP_COUNT=ints.shape[1] - stops,
        CHUNK=chunk, PAD=pad, num_warps=8,
    )  # fmt: skip
