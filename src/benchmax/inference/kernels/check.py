"""Compares every kernel with plain torch, on random input of the model's own shapes, before it is used."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from benchmax.inference.engine.forward import Plan, Span, TorchOps, forward
from benchmax.inference.engine.kv_cache import KVCache
from benchmax.inference.engine.runner import ACTIVE, LIMIT, POSITION, SEED, STOPS, TEMPERATURE, TOKEN, TOP_P, Runner
from benchmax.inference.kernels.decode import MANY_ROWS, Chain
from benchmax.inference.kernels.layers import query_blocks, relative_error
from benchmax.inference.kernels.sample import sample
from benchmax.inference.weights.llama import Layer, Weights

POSITIONS = (0, 63, 130)
"""Where the rows of the decode examples stand: at their start, at a block's edge, beyond several blocks."""


def check_kernels(runner: Runner, fused: TorchOps) -> None:
    """Raise when a kernel differs from plain torch."""
    weights = runner.weights
    spec, device, dtype = weights.spec, weights.device, weights.dtype
    generator = torch.Generator(device).manual_seed(7)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, generator=generator).to(dtype)

    layer = Layer(spec, device, dtype)
    x = noise(5, spec.hidden)
    _same("norm", fused.norm(x, layer.norm_1, spec.eps), runner.ops.norm(x, layer.norm_1, spec.eps))
    pair = noise(5, 2 * spec.intermediate)
    _same("swiglu", fused.swiglu(pair), runner.ops.swiglu(pair))
    caches = [KVCache(spec, device, dtype, 0) for _ in range(2)]
    filled = noise(2, 1, 3, spec.kv_heads, 256, spec.head_dim)
    for cache in caches:
        cache.data = filled.clone()
    for name, plan in (("prefill", _prefill_example(device)), ("decode", _decode_example(device, dtype))):
        qkv = noise(len(plan.tokens), spec.q_width + 2 * spec.kv_width)
        results = []
        for ops, cache in zip((fused, runner.ops), caches, strict=True):
            q = ops.rotate_and_store(qkv, layer, cache.layer(0), plan)
            results.append((q, cache.data, ops.attend(q, cache.layer(0), plan)))
        for part, value, reference in zip(("rotation", "cache", "attention"), *results, strict=True):
            _same(f"{name} {part}", value, reference)
    _check_sampling(runner, noise(3, spec.vocab))


def check_chain(weights: Weights, ops: TorchOps) -> None:
    """Raise when the chained layers differ from plain torch: two of them, random weights, both sizes of tiles."""
    spec = replace(weights.spec, layers=2, vocab=8)
    device, dtype = weights.device, weights.dtype
    generator = torch.Generator(device).manual_seed(11)
    small = Weights(spec, device, dtype)
    for view, _ in small.targets.values():
        spread = spec.hidden**-0.5 if view.dim() == 2 else 0.1
        view.copy_(torch.randn(view.shape, device=device, generator=generator) * spread + (view.dim() == 1))
    chain = Chain(small, ops.cos, ops.sin)
    ints = torch.zeros(len(POSITIONS), STOPS, dtype=torch.int64, device=device)
    ints[:, TOKEN], ints[:, ACTIVE] = torch.arange(len(POSITIONS), device=device), 1
    ints[:, POSITION] = torch.tensor(POSITIONS, device=device)
    plan = _decode_example(device, dtype)
    plan.tokens = ints[:, TOKEN]
    filled = torch.randn(2, 2, len(POSITIONS), spec.kv_heads, 256, spec.head_dim, device=device, generator=generator)
    caches = [KVCache(spec, device, dtype, 0) for _ in range(3)]
    for cache in caches:
        cache.data, cache.length = filled.to(dtype, copy=True), 256
    truth = forward(small, caches[0], plan, TorchOps(spec, ops.cos, ops.sin))
    for cache, chain.many_rows in zip(caches[1:], (MANY_ROWS, 0), strict=True):
        _same("chained layers", chain.forward(ints, cache, len(POSITIONS)), truth)
        _same("chained cache", cache.data, caches[0].data)


def _prefill_example(device: torch.device) -> Plan:
    spans = [Span(1, 0, 40, 0), Span(2, 40, 37, 70)]
    rows = torch.tensor([1] * 40 + [2] * 37, device=device)
    places = torch.tensor([*range(40), *range(70, 107)], device=device)
    blocks = torch.tensor(query_blocks(spans), dtype=torch.int32, device=device)
    return Plan(rows, rows, places, places, spans=spans, blocks=blocks)


def _decode_example(device: torch.device, dtype: torch.dtype) -> Plan:
    places = torch.tensor(POSITIONS, device=device)
    lengths = places + 1
    hidden = torch.arange(131, device=device) >= lengths.unsqueeze(1)
    mask = torch.zeros(3, 131, device=device, dtype=dtype).masked_fill_(hidden, -torch.inf)
    rows = torch.arange(3, device=device)
    return Plan(rows, rows, places, places, lengths=lengths, trims=[131], mask=mask[:, None, None], chunk=3)


def _check_sampling(runner: Runner, scores: Tensor) -> None:
    device = scores.device
    ints = torch.zeros(3, runner.ints.shape[1], dtype=torch.int64, device=device)
    ints[:, ACTIVE], ints[:, LIMIT], ints[:, SEED] = 1, 100, torch.tensor([11, 12, 13], device=device)
    floats = torch.ones(3, 2, device=device)
    floats[:, TEMPERATURE], floats[:, TOP_P] = torch.tensor([0.0, 0.7, 1.0], device=device), 1.0
    tokens = torch.empty(1, 3, dtype=torch.int64, device=device)
    logprobs = torch.empty(1, 3, device=device)
    fused_ints, step = ints.clone(), torch.zeros(1, dtype=torch.int64, device=device)
    rows = torch.arange(3, device=device)
    sample(scores, rows, fused_ints, floats, (tokens, logprobs), step, STOPS)
    own = runner.ints, runner.floats
    runner.ints, runner.floats = ints, floats
    expected, _ = Runner.sample(runner, scores.clone(), rows, False)
    runner.ints, runner.floats = own
    _same("sampled tokens", tokens[0], expected)
    _same("row state", fused_ints, ints)
    temperatures = torch.where(floats[:, :1] > 0, floats[:, :1], 1.0)
    truth = (scores.float() / temperatures).log_softmax(-1).gather(1, tokens.t()).squeeze(1)
    _same("log-probabilities", logprobs[0], truth)


def _same(what: str, value: Tensor, reference: Tensor) -> None:
    error = relative_error(value, reference)
    if not error < 2e-2:
        raise ValueError(f"the {what} kernel is off by {error:.3g} of the reference")
