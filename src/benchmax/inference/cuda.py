"""The runner for CUDA: Triton kernels, decode steps captured as CUDA graphs, no wait per token.

A graph holds one decode step for one batch size: forward pass, sampling and the rows' bookkeeping.
The host replays it a few times, asks for the tokens to be copied, and reads them while the next
steps run. What fails (a kernel, a capture) is replaced by its slower twin, and `notes` says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from benchmax.inference.forward import Plan, TorchOps, forward, logits
from benchmax.inference.kv import KVCache
from benchmax.inference.llama import Layer, Weights
from benchmax.inference.runner import ACTIVE, STOPS, TEMPERATURE, TOP_P, Feed, Outcome, Runner

BATCHES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)


class CudaRunner(Runner):
    """Decode by replayed graphs."""

    burst = 8
    lag = 1
    length = 1024
    share = 256
    prefill_tokens = 16_384

    def __init__(self, weights: Weights, budget: int, kernels: bool = True, capture: bool = True) -> None:
        super().__init__(weights, budget)
        self.notes: list[str] = []
        self.capture = capture
        self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self.replays: dict[tuple[int, int, bool], torch.cuda.CUDAGraph] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.count = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.ring = torch.zeros(0, dtype=torch.int64, device=self.device)
        self.ring_logprobs = torch.zeros(0, device=self.device)
        self.fused = kernels and self._use_kernels()
        torch.cuda.synchronize(self.device)

    def _use_kernels(self) -> bool:
        assert isinstance(self.ops, TorchOps)
        try:
            from benchmax.inference import kernels

            if not kernels.usable(self.weights.spec):
                raise ValueError(f"head_dim {self.weights.spec.head_dim} does not fit the kernels")
            fused = kernels.TritonOps(self.weights.spec, self.ops.cos, self.ops.sin)
            check_kernels(self, fused)
        except Exception as error:  # whatever Triton raises, plain torch still works
            self.notes.append(f"kernels off: {type(error).__name__}: {str(error)[:300]}")
            return False
        self.ops = fused
        self.kernels = "triton"
        return True

    @property
    def graphs(self) -> int:  # type: ignore[override]
        return len(self.replays)

    def enter(self) -> None:
        torch.cuda.set_device(self.device)
        torch.cuda.set_stream(self.stream)

    def release(self) -> None:
        self.stream.synchronize()
        self.replays.clear()
        super().release()

    def upload(self, values: Sequence[object] | np.ndarray, dtype: torch.dtype) -> Tensor:
        return torch.as_tensor(np.asarray(values), dtype=dtype).pin_memory().to(self.device, non_blocking=True)

    def resize(self, rows: int, length: int, keep_rows: int = 0, keep_length: int = 0) -> None:
        self.stream.synchronize()
        self.replays.clear()
        self.pool = torch.cuda.graph_pool_handle()  # a pool whose graphs are all gone cannot be captured into again
        super().resize(rows, length, keep_rows, keep_length)
        self.ring = torch.zeros(self.burst, rows, dtype=torch.int64, device=self.device)
        self.ring_logprobs = torch.zeros(self.burst, rows, device=self.device)

    def _prefill_plan(self, feeds: Sequence[Feed]) -> Plan:
        plan = super()._prefill_plan(feeds)
        if self.fused:
            from benchmax.inference.kernels import query_blocks

            plan.blocks = self.upload(query_blocks(plan.spans), torch.int32)
        return plan

    def sample(self, scores: Tensor, rows: Tensor, truncated: bool) -> tuple[Tensor, Tensor]:
        if not self.fused or truncated:
            return super().sample(scores, rows, truncated)
        from benchmax.inference.kernels import sample

        tokens = torch.empty(1, len(rows), dtype=torch.int64, device=self.device)
        logprobs = torch.empty(1, len(rows), device=self.device)
        sample(scores, rows, self.ints, self.floats, (tokens, logprobs), torch.zeros_like(self.count), STOPS)
        return tokens[0], logprobs[0]

    def decode(self, batch: int, steps: int, lengths: Sequence[int], truncated: bool) -> Outcome:
        batch = self._batch(batch)
        longest = self.kv.length if self.fused else _length_bucket(max(lengths), self.kv.length)
        self.count.zero_()
        graph = self._graph(batch, longest, truncated)
        for _ in range(steps):
            if graph is None:
                self._advance(batch, longest, truncated)
            else:
                graph.replay()
        return self._outcome(self.ring[:steps, :batch], self.ring_logprobs[:steps, :batch])

    def _batch(self, rows: int) -> int:
        return min(next((size for size in BATCHES if size >= rows), rows), self.kv.rows)

    def worth_compacting(self, high: int, count: int) -> bool:
        return self._batch(high) > self._batch(count)

    def _advance(self, batch: int, longest: int, truncated: bool) -> None:
        """One decode step, tokens to the ring. Static shapes and addresses: this is what a graph holds."""
        plan = self.decode_plan(batch, [] if self.fused else [longest], batch)
        if self.fused and not truncated:
            from benchmax.inference.kernels import sample

            scores = logits(self.weights, forward(self.weights, self.kv, plan, self.ops), self.ops)
            ring = self.ring, self.ring_logprobs
            sample(scores, plan.rows, self.ints, self.floats, ring, self.count, STOPS)
        else:
            tokens, logprobs = self.step(plan, truncated)
            self.ring[:, :batch].index_copy_(0, self.count, tokens.unsqueeze(0))
            self.ring_logprobs[:, :batch].index_copy_(0, self.count, logprobs.unsqueeze(0))
        self.count.add_(1)

    def _graph(self, batch: int, longest: int, truncated: bool) -> torch.cuda.CUDAGraph | None:
        key = (batch, longest, truncated)
        if self.capture and key not in self.replays:
            try:
                self.replays[key] = self._captured(*key)
            except Exception as error:  # a failed capture leaves the eager step, which is slower and right
                self.capture = False
                self.notes.append(f"graphs off: {str(error)[:300]}")
        return self.replays.get(key) if self.capture else None

    def _captured(self, batch: int, longest: int, truncated: bool) -> torch.cuda.CUDAGraph:
        # A first run loads libraries and compiles kernels, which a capture may not. It is undone: state is put
        # back, and what it wrote to the cache the real step writes again.
        ints = self.ints.clone()
        self._advance(batch, longest, truncated)
        self.ints.copy_(ints)
        self.count.zero_()
        self.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads (a trainer) may allocate meanwhile: only this thread's calls count against the capture.
        graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
        try:
            self._advance(batch, longest, truncated)
        finally:
            graph.capture_end()
        return graph

    def _outcome(self, tokens: Tensor, logprobs: Tensor) -> Outcome:
        host_tokens = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        host_logprobs = torch.empty(logprobs.shape, dtype=logprobs.dtype, pin_memory=True)
        host_tokens.copy_(tokens, non_blocking=True)
        host_logprobs.copy_(logprobs, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(self.stream)
        return Outcome(host_tokens, host_logprobs, done)


def _length_bucket(length: int, most: int) -> int:
    return min(most, max(128, 1 << (length - 1).bit_length()))


def check_kernels(runner: Runner, fused: TorchOps) -> None:
    """Compare every kernel with plain torch on random input of the model's own shapes; raise when one differs."""
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


def _prefill_example(device: torch.device) -> Plan:
    from benchmax.inference.forward import Span
    from benchmax.inference.kernels import query_blocks

    spans = [Span(1, 0, 40, 0), Span(2, 40, 37, 70)]
    rows = torch.tensor([1] * 40 + [2] * 37, device=device)
    places = torch.tensor([*range(40), *range(70, 107)], device=device)
    blocks = torch.tensor(query_blocks(spans), dtype=torch.int32, device=device)
    return Plan(rows, rows, places, places, spans=spans, blocks=blocks)


def _decode_example(device: torch.device, dtype: torch.dtype) -> Plan:
    places = torch.tensor([0, 63, 130], device=device)
    lengths = places + 1
    hidden = torch.arange(131, device=device) >= lengths.unsqueeze(1)
    mask = torch.zeros(3, 131, device=device, dtype=dtype).masked_fill_(hidden, -torch.inf)
    rows = torch.arange(3, device=device)
    return Plan(rows, rows, places, places, lengths=lengths, trims=[131], mask=mask[:, None, None], chunk=3)


def _check_sampling(runner: Runner, scores: Tensor) -> None:
    from benchmax.inference.kernels import sample

    device = scores.device
    ints = torch.zeros(3, runner.ints.shape[1], dtype=torch.int64, device=device)
    ints[:, ACTIVE], ints[:, 3], ints[:, 4] = 1, 100, torch.tensor([11, 12, 13], device=device)
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
    from benchmax.inference.kernels import relative_error

    error = relative_error(value, reference)
    if not error < 2e-2:
        raise ValueError(f"the {what} kernel is off by {error:.3g} of the reference")
