"""Triton kernels for the parts of a forward pass that torch would spread over many launches.

RMS norm; rotation and cache write; attention of one new token (decode) and of a block of them
(prefill) straight from the cache; SwiGLU. Each has a twin in plain torch (`forward.TorchOps`), and so
have the kernels that sample (`kernels.sample`) and those that chain a decode step (`kernels.decode`).
`kernels.check` compares each with its twin before it is trusted, so a Triton that miscompiles or is
absent costs speed and nothing else.
"""

# Triton is no dependency (torch for CUDA brings it) and its functions are a language of their own.
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-def, no-untyped-call"
# ruff: noqa: ANN001, ANN201, ANN202

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from benchmax.inference.engine.forward import Cache, Plan, Span, TorchOps
from benchmax.inference.weights.llama import Layer, ModelSpec

QUERY_BLOCK = 32
KEY_BLOCK = 64
LOG2_E = 1.4426950408889634


@triton.jit
def _norm(x, weight, out, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    live = at < width
    value = tl.load(x + row * width + at, mask=live, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    gain = tl.load(weight + at, mask=live, other=0.0)
    tl.store(out + row * width + at, (value * scale).to(gain.dtype) * gain, mask=live)


@triton.jit
def _rotate(
    qkv, q_out, keys, values, rows, positions, write, cos, sin, q_gain, k_gain, eps,
    stride_row, stride_head, stride_position,
    HEADS: tl.constexpr, KV: tl.constexpr, HALF: tl.constexpr, PAD: tl.constexpr, KV_PAD: tl.constexpr,
    NORMED: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + token).to(tl.int64)
    position = tl.load(positions + token).to(tl.int64)
    slot = tl.load(write + token).to(tl.int64)
    head = tl.arange(0, PAD)[:, None]
    half = tl.arange(0, HALF)[None, :]
    source = qkv + token * (HEADS + 2 * KV) * 2 * HALF
    live = head < HEADS + KV
    a = tl.load(source + head * 2 * HALF + half, mask=live, other=0.0).to(tl.float32)
    b = tl.load(source + head * 2 * HALF + HALF + half, mask=live, other=0.0).to(tl.float32)
    if NORMED:
        scale = tl.rsqrt((tl.sum(a * a, 1) + tl.sum(b * b, 1)) / (2 * HALF) + eps)[:, None]
        gain_a = tl.where(head < HEADS, tl.load(q_gain + half), tl.load(k_gain + half))
        gain_b = tl.where(head < HEADS, tl.load(q_gain + HALF + half), tl.load(k_gain + HALF + half))
        a = ((a * scale).to(gain_a.dtype) * gain_a).to(tl.float32)
        b = ((b * scale).to(gain_b.dtype) * gain_b).to(tl.float32)
    c = tl.load(cos + position * HALF + half)
    s = tl.load(sin + position * HALF + half)
    first = (a * c - b * s).to(q_out.dtype.element_ty)
    second = (b * c + a * s).to(q_out.dtype.element_ty)
    target = q_out + token * HEADS * 2 * HALF + head * 2 * HALF + half
    tl.store(target, first, mask=head < HEADS)
    tl.store(target + HALF, second, mask=head < HEADS)
    at = row * stride_row + slot * stride_position
    is_key = (head >= HEADS) & live
    target = keys + at + (head - HEADS) * stride_head + half
    tl.store(target, first, mask=is_key)
    tl.store(target + HALF, second, mask=is_key)
    kv_head = tl.arange(0, KV_PAD)[:, None]
    whole = tl.arange(0, 2 * HALF)[None, :]
    v = tl.load(source + (HEADS + KV + kv_head) * 2 * HALF + whole, mask=kv_head < KV, other=0.0)
    tl.store(values + at + kv_head * stride_head + whole, v, mask=kv_head < KV)


@triton.jit
def look(query, k, v, seen, peak, total, mixed, scale):
    """Take a block of keys and values into a running softmax; `seen` says which query may look at which."""
    score = tl.where(seen, tl.dot(query, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
    top = tl.maximum(peak, tl.max(score, 1))
    fade = tl.exp2(peak - top)
    part = tl.exp2(score - top[:, None])
    mixed = mixed * fade[:, None] + tl.dot(part.to(v.dtype), v, input_precision="ieee")
    return top, total * fade + tl.sum(part, 1), mixed


@triton.jit
def _attend_row(
    q, keys, values, lengths, out, scale, stride_row, stride_head, stride_position,
    HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    kv = tl.program_id(1)
    length = tl.load(lengths + row).to(tl.int32)
    group = tl.arange(0, GROUP_PAD)
    dim = tl.arange(0, DIM)
    slot = tl.arange(0, BLOCK)
    at = (row * HEADS + kv * GROUP + group)[:, None] * DIM + dim[None, :]
    live_head = (group < GROUP)[:, None]
    query = tl.load(q + at, mask=live_head, other=0.0)
    base = row * stride_row + kv * stride_head
    peak = tl.full((GROUP_PAD,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP_PAD,), tl.float32)
    mixed = tl.zeros((GROUP_PAD, DIM), tl.float32)
    for start in range(0, length, BLOCK):
        seen = start + slot
        live = seen < length
        place = base + seen[:, None] * stride_position + dim[None, :]
        k = tl.load(keys + place, mask=live[:, None], other=0.0)
        v = tl.load(values + place, mask=live[:, None], other=0.0)
        peak, total, mixed = look(query, k, v, live[None, :], peak, total, mixed, scale)
    tl.store(out + at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=live_head)


@triton.jit
def _attend_block(
    q, keys, values, blocks, out, scale, stride_row, stride_head, stride_position,
    HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, QUERIES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    entry = blocks + tl.program_id(0) * 4
    head = tl.program_id(1)
    row = tl.load(entry).to(tl.int64)
    offset = tl.load(entry + 1).to(tl.int64)
    count = tl.load(entry + 2)
    first = tl.load(entry + 3)
    index = tl.arange(0, QUERIES)
    dim = tl.arange(0, DIM)
    slot = tl.arange(0, BLOCK)
    at = ((offset + index) * HEADS + head)[:, None] * DIM + dim[None, :]
    live_query = (index < count)[:, None]
    query = tl.load(q + at, mask=live_query, other=0.0)
    base = row * stride_row + (head // GROUP) * stride_head
    position = first + index
    end = first + count
    peak = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, DIM), tl.float32)
    for start in range(0, end, BLOCK):
        seen = start + slot
        live = seen < end
        place = base + seen[:, None] * stride_position + dim[None, :]
        k = tl.load(keys + place, mask=live[:, None], other=0.0)
        v = tl.load(values + place, mask=live[:, None], other=0.0)
        peak, total, mixed = look(query, k, v, seen[None, :] <= position[:, None], peak, total, mixed, scale)
    tl.store(out + at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=live_query)


@triton.jit
def _swiglu(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = at < width
    gate = tl.load(x + row * 2 * width + at, mask=live, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * width + width + at, mask=live, other=0.0)
    gate = (gate * tl.sigmoid(gate)).to(up.dtype)
    tl.store(out + row * width + at, gate * up, mask=live)


def power_of_two(value: int) -> int:
    return max(1, 1 << (value - 1).bit_length())


class TritonOps(TorchOps):
    """`TorchOps` with one launch per part."""

    def __init__(self, spec: ModelSpec, cos: Tensor, sin: Tensor) -> None:
        super().__init__(spec, cos, sin)
        self.group = spec.heads // spec.kv_heads
        self.scale = spec.head_dim**-0.5 * LOG2_E

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out = torch.empty_like(x)
        _norm[(x.shape[0],)](x, weight, out, x.shape[1], eps, BLOCK=power_of_two(x.shape[1]))
        return out

    def rotate_and_store(self, qkv: Tensor, layer: Layer, cache: Cache, plan: Plan) -> Tensor:
        spec, (keys, values) = self.spec, cache
        q = qkv.new_empty(qkv.shape[0], spec.heads, spec.head_dim)
        normed = layer.q_norm is not None
        _rotate[(qkv.shape[0],)](
            qkv, q, keys, values, plan.rows, plan.positions, plan.write, self.cos, self.sin,
            layer.q_norm if normed else qkv, layer.k_norm if normed else qkv, spec.eps, *keys.stride()[:3],
            HEADS=spec.heads, KV=spec.kv_heads, HALF=spec.head_dim // 2, NORMED=normed,
            PAD=power_of_two(spec.heads + spec.kv_heads), KV_PAD=power_of_two(spec.kv_heads),
        )  # fmt: skip
        return q

    def attend(self, q: Tensor, cache: Cache, plan: Plan) -> Tensor:
        spec, (keys, values) = self.spec, cache
        out = torch.empty_like(q)
        shape = {"HEADS": spec.heads, "GROUP": self.group, "DIM": spec.head_dim, "BLOCK": KEY_BLOCK}
        if plan.blocks is None:
            _attend_row[(q.shape[0], spec.kv_heads)](
                q, keys, values, plan.lengths, out, self.scale, *keys.stride()[:3],
                GROUP_PAD=max(16, power_of_two(self.group)), **shape,
            )  # fmt: skip
        else:
            _attend_block[(plan.blocks.shape[0], spec.heads)](
                q, keys, values, plan.blocks, out, self.scale, *keys.stride()[:3], QUERIES=QUERY_BLOCK, **shape
            )
        return out.view(q.shape[0], -1)

    def swiglu(self, x: Tensor) -> Tensor:
        width = x.shape[1] // 2
        out = x.new_empty(x.shape[0], width)
        block = min(1024, power_of_two(width))
        _swiglu[(x.shape[0], triton.cdiv(width, block))](x, out, width, BLOCK=block)
        return out


def query_blocks(spans: list[Span]) -> list[tuple[int, int, int, int]]:
    """Each span cut into blocks of queries: (row, offset, count, position of the first)."""
    return [
        (span.row, span.offset + done, min(QUERY_BLOCK, span.count - done), span.start + done)
        for span in spans
        for done in range(0, span.count, QUERY_BLOCK)
    ]


def usable(spec: ModelSpec) -> bool:
    """Whether the kernels' tiles fit this model."""
    return spec.head_dim in (16, 32, 64, 128, 256) and spec.heads % spec.kv_heads == 0


def relative_error(value: Tensor, reference: Tensor) -> float:
    wide: Any = reference.double()
    return float((value.double() - wide).norm() / wide.norm().clamp(min=1e-12))
