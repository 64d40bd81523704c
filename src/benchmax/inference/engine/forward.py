"""One forward pass for prefill and decode alike: a flat list of tokens, each with its row and position.

The matrix products see all tokens of all requests as one batch. Only attention distinguishes requests: `attend`
reads a token's own row of the cache. `TorchOps` is the reference, used on CPUs and wherever its subclass with Triton
kernels is not; it materialises no repeated key-value heads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmax.inference.engine.kv_cache import KVCache
from benchmax.inference.weights.llama import Layer, ModelSpec, Weights

SHORT_LENGTH = 256
"""Up to this length plain matrix products beat the fused CPU attention."""
CHUNK_ROWS = 16
"""Decode rows that share one trimmed length when lengths differ a lot."""

Cache = tuple[Tensor, Tensor]


@dataclass(slots=True)
class Span:
    """New tokens of one row: `count` of them from `offset` of the batch, the first at position `start`."""

    row: int
    offset: int
    count: int
    start: int


@dataclass(slots=True)
class Plan:
    """What one forward pass computes."""

    tokens: Tensor
    rows: Tensor
    positions: Tensor
    write: Tensor
    """Where in its row a token's key and value go."""
    spans: list[Span] = field(default_factory=list)
    """Prefill: the tokens by row. Empty: decode, token `i` is the newest of row `i`."""
    lengths: Tensor | None = None
    """Decode: positions each row may attend to."""
    trims: list[int] = field(default_factory=list)
    """Decode without kernels: the longest length in each chunk of rows."""
    mask: Tensor | None = None
    """Decode without kernels: 0 or -inf, [rows, 1, 1, longest]."""
    chunk: int = 0
    """Decode without kernels: rows that share one trimmed length."""
    turn: tuple[Tensor, Tensor] | None = None
    """Cosine and sine of the positions, for all layers."""
    places: Tensor | None = None
    """Where each token's keys and values go in a layer's cache, for all layers."""
    blocks: Tensor | None = None
    """Prefill with kernels: (row, offset, count, start) of each block of queries."""


def forward(weights: Weights, kv: KVCache, plan: Plan, ops: TorchOps) -> Tensor:
    """The residual stream after the last layer, one row per token."""
    eps = weights.spec.eps
    x = F.embedding(plan.tokens, weights.embed)
    for index, layer in enumerate(weights.layers):
        cache = kv.layer(index)
        qkv = layer.qkv(ops.norm(x, layer.norm_1, eps))
        q = ops.rotate_and_store(qkv, layer, cache, plan)
        x = layer.o.add(x, ops.attend(q, cache, plan))
        hidden = layer.gate_up(ops.norm(x, layer.norm_2, eps))
        x = layer.down.add(x, ops.swiglu(hidden))
    return x


def logits(weights: Weights, x: Tensor, ops: TorchOps) -> Tensor:
    return weights.lm_head(ops.norm(x, weights.norm, weights.spec.eps))


class TorchOps:
    """The parts of a forward pass that have kernels, in plain torch, for any device."""

    def __init__(self, spec: ModelSpec, cos: Tensor, sin: Tensor) -> None:
        self.spec, self.cos, self.sin = spec, cos, sin

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        return scaled.to(x.dtype) * weight

    def rotate_and_store(self, qkv: Tensor, layer: Layer, cache: Cache, plan: Plan) -> Tensor:
        """Rotate queries and keys by their position and write keys and values; returns the queries."""
        spec = self.spec
        turning = spec.heads + spec.kv_heads
        heads = qkv.view(-1, turning + spec.kv_heads, spec.head_dim)
        qk, v = heads[:, :turning], heads[:, turning:]
        if layer.q_norm is not None and layer.k_norm is not None:
            q_part = self.norm(qk[:, : spec.heads], layer.q_norm, spec.eps)
            qk = torch.cat([q_part, self.norm(qk[:, spec.heads :], layer.k_norm, spec.eps)], 1)
        if plan.turn is None:
            plan.turn = self.cos[plan.positions].unsqueeze(1), self.sin[plan.positions].unsqueeze(1)
        cos, sin = plan.turn
        a, b = qk.float().chunk(2, dim=-1)
        qk = torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(qkv.dtype)
        keys, values = cache
        if plan.places is None:
            heads_at = plan.rows.unsqueeze(1) * spec.kv_heads + torch.arange(spec.kv_heads, device=qkv.device)
            plan.places = (heads_at * keys.shape[2] + plan.write.unsqueeze(1)).flatten()
        keys.view(-1, spec.head_dim).index_copy_(0, plan.places, qk[:, spec.heads :].reshape(-1, spec.head_dim))
        values.view(-1, spec.head_dim).index_copy_(0, plan.places, v.reshape(-1, spec.head_dim))
        return qk[:, : spec.heads]

    def attend(self, q: Tensor, cache: Cache, plan: Plan) -> Tensor:
        groups = q.view(q.shape[0], self.spec.kv_heads, -1, self.spec.head_dim)
        out = self._attend_spans(groups, cache, plan) if plan.spans else self._attend_rows(groups, cache, plan)
        return out.reshape(q.shape[0], -1)

    def _attend_rows(self, q: Tensor, cache: Cache, plan: Plan) -> Tensor:
        """Decode. The query heads that share a key head are the rows of one small matrix."""
        assert plan.mask is not None
        keys, values = cache
        if len(plan.trims) == 1:
            return self._attend_chunk(q, keys[: len(q)], values[: len(q)], plan.mask, plan.trims[0])
        out = torch.empty_like(q)
        for chunk, length in enumerate(plan.trims):
            rows = slice(chunk * plan.chunk, min((chunk + 1) * plan.chunk, q.shape[0]))
            out[rows] = self._attend_chunk(q[rows], keys[rows], values[rows], plan.mask[rows], length)
        return out

    def _attend_chunk(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, length: int) -> Tensor:
        k, v, mask = keys[:, :, :length], values[:, :, :length], mask[..., :length]
        if length > SHORT_LENGTH and not q.is_cuda:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(-1, 1, q.shape[2], -1))
        scores = torch.matmul(q, k.transpose(2, 3)).mul_(self.spec.head_dim**-0.5).add_(mask)
        return torch.matmul(scores.softmax(-1), v)

    def _attend_spans(self, q: Tensor, cache: Cache, plan: Plan) -> Tensor:
        """Prefill, one row after the other; a row's key heads are the batch, their query heads share them."""
        out = torch.empty_like(q)
        for span in plan.spans:
            end, part = span.start + span.count, slice(span.offset, span.offset + span.count)
            queries = q[part].permute(1, 2, 0, 3)
            shape = (*queries.shape[:2], end, queries.shape[3])
            k = cache[0][span.row, :, None, :end].expand(shape)
            v = cache[1][span.row, :, None, :end].expand(shape)
            if span.start == 0:
                mixed = F.scaled_dot_product_attention(queries, k, v, is_causal=True)
            else:
                seen = torch.ones(span.count, end, dtype=torch.bool, device=q.device).tril_(span.start)
                mixed = F.scaled_dot_product_attention(queries, k, v, attn_mask=seen)
            out[part] = mixed.permute(2, 0, 1, 3)
        return out

    def swiglu(self, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)
