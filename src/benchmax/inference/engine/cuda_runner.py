"""The runner for CUDA: Triton kernels, decode steps captured as CUDA graphs, no wait per token.

A graph holds one decode step for one batch size: forward pass, sampling and the rows' state. The host replays it a few
times, starts the copy of the tokens, and reads them while the next steps run. For a small model two implementations of
the layers are captured, chained kernels and the vendor's matrix products, and the faster one is kept. What fails (a
kernel, a capture) is replaced by its slower equivalent, and `notes` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from benchmax.inference.engine.forward import Plan, forward, logits
from benchmax.inference.engine.runner import STOPS, Prefill, Runner, StepResult
from benchmax.inference.weights.llama import Weights

if TYPE_CHECKING:
    from benchmax.inference.kernels.decode import Chain

BATCHES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)


class CudaRunner(Runner):
    """Decode by replayed graphs."""

    burst = 8
    lag = 1
    length = 1024
    share = 256
    prefill_tokens = 16_384
    prefill_chunk = 8_192

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
        self.chain = self._chain() if self.fused else None
        torch.cuda.synchronize(self.device)

    def _use_kernels(self) -> bool:
        try:
            from benchmax.inference.kernels import check, layers

            if not layers.usable(self.weights.spec):
                raise ValueError(f"head_dim {self.weights.spec.head_dim} does not fit the kernels")
            fused = layers.TritonOps(self.weights.spec, self.ops.cos, self.ops.sin)
            check.check_kernels(self, fused)
        except Exception as error:  # whatever Triton raises, plain torch still works
            self.notes.append(f"kernels off: {type(error).__name__}: {str(error)[:300]}")
            return False
        self.ops = fused
        self.kernels = "triton"
        return True

    def _chain(self) -> Chain | None:
        try:
            from benchmax.inference.kernels import check, decode

            if not decode.usable(self.weights):
                return None
            check.check_chain(self.weights, self.ops)
            return decode.Chain(self.weights, self.ops.cos, self.ops.sin)
        except Exception as error:  # as above: the step of separate kernels still works
            self.notes.append(f"chained kernels off: {type(error).__name__}: {str(error)[:300]}")
            return None

    @property
    def graphs(self) -> int:  # type: ignore[override]
        return len(self.replays)

    def enter(self) -> None:
        torch.cuda.set_device(self.device)
        torch.cuda.set_stream(self.stream)

    def _drop_graphs(self) -> None:
        self.stream.synchronize()
        self.replays.clear()
        self.pool = torch.cuda.graph_pool_handle()  # a pool whose graphs are all gone cannot be captured into again

    def release(self) -> None:
        self._drop_graphs()
        super().release()

    def release_cache(self) -> None:
        self._drop_graphs()
        super().release_cache()
        torch.cuda.empty_cache()

    def upload(self, values: Sequence[object] | np.ndarray, dtype: torch.dtype) -> Tensor:
        return torch.as_tensor(np.asarray(values), dtype=dtype).pin_memory().to(self.device, non_blocking=True)

    def resize(self, rows: int, length: int, keep_rows: int = 0, keep_length: int = 0) -> None:
        self._drop_graphs()
        super().resize(rows, length, keep_rows, keep_length)
        self.ring = torch.zeros(self.burst, rows, dtype=torch.int64, device=self.device)
        self.ring_logprobs = torch.zeros(self.burst, rows, device=self.device)

    def _prefill_plan(self, prefills: Sequence[Prefill]) -> Plan:
        plan = super()._prefill_plan(prefills)
        if self.fused:
            from benchmax.inference.kernels.layers import query_blocks

            plan.blocks = self.upload(query_blocks(plan.spans), torch.int32)
        return plan

    def sample(self, scores: Tensor, rows: Tensor, truncated: bool) -> tuple[Tensor, Tensor]:
        if not self.fused or truncated:
            return super().sample(scores, rows, truncated)
        from benchmax.inference.kernels.sample import sample

        tokens = torch.empty(1, len(rows), dtype=torch.int64, device=self.device)
        logprobs = torch.empty(1, len(rows), device=self.device)
        sample(scores, rows, self.ints, self.floats, (tokens, logprobs), torch.zeros_like(self.count), STOPS)
        return tokens[0], logprobs[0]

    def decode(self, batch: int, steps: int, lengths: Sequence[int], truncated: bool) -> StepResult:
        batch = self._batch(batch)
        longest = self.kv.length if self.fused else _length_bucket(max(lengths), self.kv.length)
        self.count.zero_()
        graph = self._graph(batch, longest, truncated)
        for _ in range(steps):
            if graph is None:
                self._advance(batch, longest, truncated, self.chain)
            else:
                graph.replay()
        return self._result(self.ring[:steps, :batch], self.ring_logprobs[:steps, :batch])

    def _batch(self, rows: int) -> int:
        return min(next((size for size in BATCHES if size >= rows), rows), self.kv.rows)

    def worth_compacting(self, high: int, count: int) -> bool:
        return self._batch(high) > self._batch(count)

    def _advance(self, batch: int, longest: int, truncated: bool, chain: Chain | None) -> None:
        """One decode step, tokens to the ring. Static shapes and addresses: this is what a graph holds."""
        if chain is not None:
            x = chain.forward(self.ints, self.kv, batch)
        else:
            plan = self.decode_plan(batch, [] if self.fused else [longest], batch)
            x = forward(self.weights, self.kv, plan, self.ops)
        scores, rows = logits(self.weights, x, self.ops), self.row_ids[:batch]
        if self.fused and not truncated:
            from benchmax.inference.kernels.sample import sample

            sample(scores, rows, self.ints, self.floats, (self.ring, self.ring_logprobs), self.count, STOPS)
        else:
            tokens, logprobs = self.sample(scores, rows, truncated)
            self.ring[:, :batch].index_copy_(0, self.count, tokens.unsqueeze(0))
            self.ring_logprobs[:, :batch].index_copy_(0, self.count, logprobs.unsqueeze(0))
        self.count.add_(1)

    def _graph(self, batch: int, longest: int, truncated: bool) -> torch.cuda.CUDAGraph | None:
        key = (batch, longest, truncated)
        if self.capture and key not in self.replays:
            try:
                self.replays[key] = self._fastest(*key)
            except Exception as error:  # a failed capture leaves the eager step, which is slower and right
                self.capture = False
                self.notes.append(f"graphs off: {str(error)[:300]}")
        return self.replays.get(key) if self.capture else None

    def _fastest(self, batch: int, longest: int, truncated: bool) -> torch.cuda.CUDAGraph:
        ways = [None] if self.chain is None else [None, self.chain]
        graphs = [self._captured(batch, longest, truncated, chain) for chain in ways]
        return min(graphs, key=self._milliseconds) if len(graphs) > 1 else graphs[0]

    def _captured(self, batch: int, longest: int, truncated: bool, chain: Chain | None) -> torch.cuda.CUDAGraph:
        # A first run loads libraries and compiles kernels, which a capture may not. It is undone: state is put
        # back, and what it wrote to the cache the real step writes again.
        ints = self.ints.clone()
        self._advance(batch, longest, truncated, chain)
        self._rewind(ints)
        self.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads (a trainer) may allocate meanwhile: only this thread's calls count against the capture.
        graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
        try:
            self._advance(batch, longest, truncated, chain)
        finally:
            graph.capture_end()
        return graph

    def _milliseconds(self, graph: torch.cuda.CUDAGraph) -> float:
        """The shortest of some replays, each undone."""
        ints = self.ints.clone()
        times: list[float] = []
        for _ in range(5):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record(self.stream)
            graph.replay()
            end.record(self.stream)
            self._rewind(ints)
            end.synchronize()
            times.append(start.elapsed_time(end))
        return min(times)

    def _rewind(self, ints: Tensor) -> None:
        self.ints.copy_(ints)
        self.count.zero_()

    def _result(self, tokens: Tensor, logprobs: Tensor) -> StepResult:
        host_tokens = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        host_logprobs = torch.empty(logprobs.shape, dtype=logprobs.dtype, pin_memory=True)
        host_tokens.copy_(tokens, non_blocking=True)
        host_logprobs.copy_(logprobs, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(self.stream)
        return StepResult(host_tokens, host_logprobs, done)


def _length_bucket(length: int, most: int) -> int:
    return min(most, max(128, 1 << (length - 1).bit_length()))
