"""A decode step's layers in five Triton kernels each, every one started while the last still runs.

A step for a small model is a long chain of short kernels, and most of its time goes into the gaps
between them. Three things shorten it. The norms are part of the projections: their gains are folded
into the weights (`Projection.fold`), and a kernel that writes the residual stream also writes the sums
of squares of its part to `parts`, from which the next projection computes each row's scale. Rotation,
cache write and attention are one kernel. And on Hopper and later each kernel is launched early: it
fetches its weights, or its row's keys and values, into the cache, then waits for the one before it.

Rule of the early launch: what a kernel reads before `gdc_wait` must have been written two kernels ago or
earlier, because a kernel lets the next one start only after its own wait.
"""

# Triton is no dependency (torch for CUDA brings it) and its functions are a language of their own.
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-def, no-untyped-call"
# ruff: noqa: ANN001, ANN202

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from benchmax.inference.engine.kv_cache import KVCache
from benchmax.inference.kernels.layers import LOG2_E, look, power_of_two
from benchmax.inference.weights.llama import Projection, Weights

MAX_HIDDEN = 2048
"""Beyond this width a step is bound by its matrix products, which the vendor's library does better."""
COLUMNS = 32
TILE = {"ROWS": 64, "COLUMNS": COLUMNS, "DEPTH": 128, "num_warps": 4, "num_stages": 4}
GATED_TILE = {"ROWS": 64, "COLUMNS": 64, "DEPTH": 64, "num_warps": 4, "num_stages": 4}
TALL_TILE = {"ROWS": 128, "COLUMNS": COLUMNS, "DEPTH": 64, "num_warps": 8, "num_stages": 4}
TALL_GATED_TILE = {"ROWS": 128, "COLUMNS": 64, "DEPTH": 64, "num_warps": 8, "num_stages": 3}
MANY_ROWS = 256
"""Beyond this many rows the tiles are taller, or there would be more of them than multiprocessors."""
ATTENTION_TILE = {"BLOCK": 64, "num_warps": 4, "num_stages": 2}
SHARED_PERCENT = 50
"""How much of a multiprocessor's fast memory is shared memory rather than cache; measured best on an H200."""


@triton.jit
def _fetch(pointers):
    """Bring lines into the L2 cache; nothing waits for them."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [pointers.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _begin(
    ints, embed, x, parts, write, lengths, last, width,
    INTS: tl.constexpr, PARTS: tl.constexpr, WIDE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """The newest tokens' embeddings, and where each row writes and how far it looks."""
    row = tl.program_id(0).to(tl.int64)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    token = tl.load(ints + row * INTS)
    position = tl.load(ints + row * INTS + 1)
    active = tl.load(ints + row * INTS + 2) > 0
    lane = tl.arange(0, WIDE)
    value = tl.load(embed + token * width + lane, mask=lane < width, other=0.0)
    tl.store(x + row * width + lane, value, mask=lane < width)
    wide = value.to(tl.float32)
    part = tl.arange(0, PARTS)
    tl.store(parts + row * PARTS + part, tl.where(part == 0, tl.sum(wide * wide, 0), 0.0))
    tl.store(write + row, tl.where(active, position, last))
    tl.store(lengths + row, tl.where(active, position + 1, 1))


@triton.jit
def _project(
    x, weight, bias, out, parts, rows, width, columns, eps,
    NORMED: tl.constexpr, GATED: tl.constexpr, ADDED: tl.constexpr, BIASED: tl.constexpr, PARTS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """x @ weight.T: with x normed, with SwiGLU over the weight's two halves, or added to `out`."""
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, DEPTH)
    live_n, live_m = n < columns, m < rows
    live = live_m[:, None] & live_n[None, :]
    if BIASED:
        bias_1 = tl.load(bias + n, mask=live_n, other=0.0).to(tl.float32)[None, :]
        if GATED:
            bias_2 = tl.load(bias + columns + n, mask=live_n, other=0.0).to(tl.float32)[None, :]
    if EARLY:
        own = weight + tl.minimum(n, columns - 1)[:, None].to(tl.int64) * width
        line = tl.arange(0, 8)[None, :] * 64
        for start in range(0, width, 512):
            at = tl.minimum(start + line, width - 1)
            _fetch(own + at)
            if GATED:
                _fetch(own + columns * width + at)
        gdc_wait()
        gdc_launch_dependents()
    # What is needed after the loop is loaded before it, so that the load overlaps the loop.
    out_at = out + m[:, None].to(tl.int64) * columns + n[None, :]
    if NORMED:
        part = tl.arange(0, PARTS)
        squares = tl.load(parts + m[:, None] * PARTS + part[None, :], mask=live_m[:, None], other=0.0)
        scale = tl.rsqrt(tl.sum(squares, 1) / width + eps)[:, None]
    if ADDED:
        before = tl.load(out_at, mask=live, other=0.0).to(tl.float32)
    a_at = x + m[:, None].to(tl.int64) * width + k[None, :]
    b_at = weight + n[None, :].to(tl.int64) * width + k[:, None]
    first = tl.zeros((ROWS, COLUMNS), tl.float32)
    second = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, width, DEPTH):
        inside = start + k < width
        a = tl.load(a_at + start, mask=live_m[:, None] & inside[None, :], other=0.0)
        b = tl.load(b_at + start, mask=live_n[None, :] & inside[:, None], other=0.0)
        first = tl.dot(a, b, first, input_precision="ieee")
        if GATED:
            c = tl.load(b_at + columns * width + start, mask=live_n[None, :] & inside[:, None], other=0.0)
            second = tl.dot(a, c, second, input_precision="ieee")
    if NORMED:
        first *= scale
        second *= scale
    if BIASED:
        first += bias_1
        if GATED:
            second += bias_2
    if GATED:
        first = first * tl.sigmoid(first) * second
    if ADDED:
        first += before
    result = first.to(out.dtype.element_ty)
    tl.store(out_at, result, mask=live)
    if ADDED:
        wide = tl.where(live, result.to(tl.float32), 0.0)
        tl.store(parts + m * PARTS + tl.program_id(0), tl.sum(wide * wide, 1), mask=live_m)


@triton.jit
def _turned(at, other, gain, dim, cos, sin, live, eps, NORMED: tl.constexpr, DIM: tl.constexpr):
    """Heads at `at`, normed if the model norms them, rotated; `other` is the half each number turns with."""
    a = tl.load(at + dim, mask=live, other=0.0).to(tl.float32)
    b = tl.load(at + other, mask=live, other=0.0).to(tl.float32)
    if NORMED:
        scale = tl.rsqrt(tl.sum(a * a, 1) / DIM + eps)[:, None]
        own, turned = tl.load(gain + dim), tl.load(gain + other)
        a = ((a * scale).to(own.dtype) * own).to(tl.float32)
        b = ((b * scale).to(own.dtype) * turned).to(tl.float32)
    return a * cos + b * sin


@triton.jit
def _attend(
    qkv, keys, values, ints, write, lengths, cos, sin, q_gain, k_gain, out, eps, scale,
    stride_row, stride_head, stride_position,
    INTS: tl.constexpr, HEADS: tl.constexpr, KV: tl.constexpr, GROUP: tl.constexpr, PAD: tl.constexpr,
    DIM: tl.constexpr, BLOCK: tl.constexpr, NORMED: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """One row and one key-value head: rotate, write the new key and value, look at all before it."""
    row = tl.program_id(0).to(tl.int64)
    kv = tl.program_id(1)
    position = tl.load(ints + row * INTS + 1)
    slot = tl.load(write + row)
    past = tl.load(lengths + row).to(tl.int32) - 1
    base = row * stride_row + kv * stride_head
    slots = tl.arange(0, BLOCK)
    HALF: tl.constexpr = DIM // 2
    group = tl.arange(0, PAD)[:, None]
    dim = tl.arange(0, DIM)[None, :]
    other = (dim + HALF) % DIM
    c = tl.load(cos + position * HALF + dim % HALF)
    s = tl.load(sin + position * HALF + dim % HALF) * tl.where(dim < HALF, -1.0, 1.0)
    # The first block was written in earlier steps: it is read, not only fetched, before the wait.
    live = slots < past
    place = base + slots[:, None] * stride_position + dim
    k = tl.load(keys + place, mask=live[:, None], other=0.0)
    v = tl.load(values + place, mask=live[:, None], other=0.0)
    if EARLY:
        for start in range(BLOCK, past, BLOCK):
            at = base + tl.minimum(start + slots, past - 1) * stride_position
            _fetch(keys + at)
            _fetch(values + at)
        gdc_wait()
        gdc_launch_dependents()
    kind = out.dtype.element_ty
    source = qkv + row * (HEADS + 2 * KV) * DIM
    at_q = source + (kv * GROUP + group) * DIM
    query = _turned(at_q, other, q_gain, dim, c, s, group < GROUP, eps, NORMED, DIM).to(kind)
    at_k = source + (HEADS + kv) * DIM
    key = _turned(at_k, other, k_gain, dim, c, s, dim < DIM, eps, NORMED, DIM).to(kind)
    value = tl.load(at_k + KV * DIM + dim)
    tl.store(keys + base + slot * stride_position + dim, key)
    tl.store(values + base + slot * stride_position + dim, value)
    peak = tl.sum(query.to(tl.float32) * key.to(tl.float32), 1) * scale
    total = tl.full((PAD,), 1.0, tl.float32)
    mixed = tl.zeros((PAD, DIM), tl.float32) + value.to(tl.float32)
    peak, total, mixed = look(query, k, v, live[None, :], peak, total, mixed, scale)
    for start in range(BLOCK, past, BLOCK):
        live = start + slots < past
        place = base + (start + slots)[:, None] * stride_position + dim
        k = tl.load(keys + place, mask=live[:, None], other=0.0)
        v = tl.load(values + place, mask=live[:, None], other=0.0)
        peak, total, mixed = look(query, k, v, live[None, :], peak, total, mixed, scale)
    at = (row * HEADS + kv * GROUP + group) * DIM + dim
    tl.store(out + at, (mixed / total[:, None]).to(kind), mask=group < GROUP)


class Chain:
    """The layers of a decode step over the first rows of a table."""

    def __init__(self, weights: Weights, cos: Tensor, sin: Tensor) -> None:
        spec = weights.spec
        self.weights, self.spec, self.cos, self.sin = weights, spec, cos, sin
        self.many_rows = MANY_ROWS
        self.parts = max(2, power_of_two(triton.cdiv(spec.hidden, COLUMNS)))
        on_gpu = weights.device.type == "cuda"
        self.early = on_gpu and torch.cuda.get_device_capability(weights.device) >= (9, 0)
        weights.fold()

    def forward(self, ints: Tensor, kv: KVCache, batch: int) -> Tensor:
        """The residual stream after the last layer, one row per row of the table; keys and values are written."""
        spec = self.spec
        x = self.weights.embed.new_empty(batch, spec.hidden)
        parts = x.new_empty(batch, self.parts, dtype=torch.float32)
        places = ints.new_empty(2, batch)
        self._launch(
            _begin, (batch,), ints, self.weights.embed, x, parts, *places, kv.length - 1, spec.hidden,
            INTS=ints.shape[1], PARTS=self.parts, WIDE=power_of_two(spec.hidden),
        )  # fmt: skip
        for index, layer in enumerate(self.weights.layers):
            qkv = x.new_empty(batch, spec.q_width + 2 * spec.kv_width)
            self._project(x, layer.qkv, qkv, parts, NORMED=True)
            mixed = x.new_empty(batch, spec.q_width)
            gains = (layer.q_norm, layer.k_norm) if spec.qk_norm else (qkv, qkv)
            self._attend(qkv, kv.layer(index), ints, places, gains, mixed)
            self._project(mixed, layer.o, x, parts, ADDED=True)
            hidden = x.new_empty(batch, spec.intermediate)
            self._project(x, layer.gate_up, hidden, parts, NORMED=True, GATED=True)
            self._project(hidden, layer.down, x, parts, ADDED=True)
        return x

    def _project(
        self, x: Tensor, layer: Projection, out: Tensor, parts: Tensor,
        NORMED: bool = False, GATED: bool = False, ADDED: bool = False,
    ) -> None:  # fmt: skip
        (rows, width), columns = x.shape, out.shape[1]
        tile = (TALL_GATED_TILE if GATED else TALL_TILE) if rows > self.many_rows else GATED_TILE if GATED else TILE
        self._launch(
            _project, (triton.cdiv(columns, tile["COLUMNS"]), triton.cdiv(rows, tile["ROWS"])),
            x, layer.folded if NORMED else layer.weight, x if layer.bias is None else layer.bias, out, parts,
            rows, width, columns, self.spec.eps,
            NORMED=NORMED, GATED=GATED, ADDED=ADDED, BIASED=layer.bias is not None, PARTS=self.parts, **tile,
        )  # fmt: skip

    def _attend(
        self,
        qkv: Tensor,
        cache: tuple[Tensor, Tensor],
        ints: Tensor,
        places: Tensor,
        gains: tuple[Any, Any],
        out: Tensor,
    ) -> None:
        spec, (keys, values) = self.spec, cache
        group = spec.heads // spec.kv_heads
        self._launch(
            _attend, (qkv.shape[0], spec.kv_heads),
            qkv, keys, values, ints, *places, self.cos, self.sin, *gains, out, spec.eps, spec.head_dim**-0.5 * LOG2_E,
            *keys.stride()[:3], INTS=ints.shape[1], HEADS=spec.heads, KV=spec.kv_heads, GROUP=group,
            PAD=max(16, power_of_two(group)), DIM=spec.head_dim, NORMED=spec.qk_norm, **ATTENTION_TILE,
        )  # fmt: skip

    def _launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        if self.early:
            options["launch_pdl"] = True
        compiled = kernel[grid](*arguments, EARLY=self.early, **options)
        if self.early and compiled.function not in _CONFIGURED:
            _use_same_memory_split(compiled.function)


_CONFIGURED: set[int] = set()


def _use_same_memory_split(function: int) -> None:
    """Kernels that want a multiprocessor's memory split differently cannot run side by side, so all want the same.

    Triton has no word for it. Where the driver is not found they only overlap less.
    """
    preferred_shared_memory_carveout = 9
    _CONFIGURED.add(function)
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuFuncSetAttribute(ctypes.c_void_p(function), preferred_shared_memory_carveout, SHARED_PERCENT)


def usable(weights: Weights) -> bool:
    """Whether the chain is worth its second copy of some weights."""
    return weights.dtype.itemsize == 2 and weights.spec.hidden <= MAX_HIDDEN
