"""The model on a device: prefill into rows, decode steps over the first rows.

Everything a step needs to know about a row (newest token, position, limits, seed, temperature, stop tokens) is in two
small tensors beside the cache. A step reads and advances them, so many steps can run without the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmax.files.display import readable_bytes
from benchmax.inference.engine.forward import CHUNK_ROWS, Plan, Span, TorchOps, forward, logits
from benchmax.inference.engine.kv_cache import KVCache
from benchmax.inference.engine.request import Request
from benchmax.inference.engine.sampling import MAX_STOPS, draw, uniforms
from benchmax.inference.weights.llama import Weights, rope_tables

TOKEN, POSITION, ACTIVE, LIMIT, SEED, TOP_K, STOPS = range(7)
TEMPERATURE, TOP_P = range(2)


@dataclass(slots=True)
class Prefill:
    """Prompt tokens to compute into a row, the first at position `start`."""

    row: int
    ids: Sequence[int]
    start: int


class StepResult:
    """Tokens and log-probabilities of some steps, on their way to the host. -1: the row was not running."""

    def __init__(self, tokens: Tensor, logprobs: Tensor, done: torch.cuda.Event | None = None) -> None:
        self._tokens, self._logprobs, self._done = tokens, logprobs, done

    def read(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """[row, step]."""
        if self._done is not None:
            self._done.synchronize()
        return self._tokens.t().numpy(), self._logprobs.t().numpy()


class Runner:
    """Plain torch: the CPU's runner, and the reference for the others."""

    burst = 1
    """Decode steps between two looks of the host."""
    lag = 0
    """Results left unread while the next steps run."""
    length = 256
    """Positions a row is given at first, memory allowing."""
    share = 16
    """A prompt waits for another one's prefill when they share this many tokens."""
    prefill_tokens = 4096
    prefill_chunk = 128
    """A longer prompt is computed in chunks of this size, with decode steps for the others in between."""
    kernels = "torch"
    graphs = 0

    def __init__(self, weights: Weights, budget: int) -> None:
        self.weights, self.device = weights, weights.device
        self.kv = KVCache(weights.spec, weights.device, weights.dtype, budget)
        cos, sin = rope_tables(weights.spec, weights.spec.context, weights.device)
        self.ops = TorchOps(weights.spec, cos, sin)
        self.ints = torch.zeros(0, STOPS + MAX_STOPS, dtype=torch.int64, device=self.device)
        self.floats = torch.ones(0, 2, device=self.device)
        self.row_ids = torch.arange(0, device=self.device)

    def enter(self) -> None:
        """Called once in the thread that will run everything else."""

    def release(self) -> None:
        """Free the device's memory at the end."""
        self.kv.data = torch.empty(0)

    def release_cache(self) -> None:
        """Free the cache; the next rows get a new one."""
        self.kv.clear()
        self.kv.data = torch.empty(0)

    def describe_memory(self) -> str:
        return f"{self.kv.rows} slots of {self.kv.length} tokens take {readable_bytes(self.kv.bytes)}"

    def worth_compacting(self, high: int, count: int) -> bool:
        """Whether `count` running rows spread over the first `high` should be moved together."""
        return high > count

    def resize(self, rows: int, length: int, keep_rows: int = 0, keep_length: int = 0) -> None:
        """Change the cache's shape; only the given corner is kept."""
        self.kv.resize(rows, length, keep_rows, keep_length)
        if rows != self.ints.shape[0]:
            self.ints = _resized(self.ints, rows, keep_rows)
            self.floats = _resized(self.floats, rows, keep_rows)
            self.row_ids = torch.arange(rows, device=self.device)

    def upload(self, values: Sequence[object] | np.ndarray, dtype: torch.dtype) -> Tensor:
        return torch.as_tensor(np.asarray(values), dtype=dtype).to(self.device)

    def start(self, requests: Sequence[Request]) -> None:
        """Write the state of rows whose requests are about to sample their first token."""
        ints = [_state_of(request) for request in requests]
        floats = [(request.params.temperature, request.params.top_p) for request in requests]
        rows = self.upload([request.row for request in requests], torch.int64)
        self.ints[rows] = self.upload(ints, torch.int64)
        self.floats[rows] = self.upload(floats, torch.float32)

    def stop(self, rows: Sequence[int]) -> None:
        """End rows that the host abandoned: cancelled, or stopped by a text the device cannot see."""
        self.ints[self.upload(rows, torch.int64), ACTIVE] = 0

    def move(self, source: Sequence[int], target: Sequence[int], length: int) -> None:
        """Copy rows, state and cache, all read before any is written."""
        index = self.upload([source, target], torch.int64)
        self.ints[index[1]] = self.ints[index[0]]
        self.floats[index[1]] = self.floats[index[0]]
        self.kv.move(source, target, length)

    def prefill(self, prefills: Sequence[Prefill], readers: Sequence[tuple[int, int]], truncated: bool) -> StepResult:
        """Compute prompts, then draw a first token for each (index of a prefill, row) of `readers`."""
        plan = self._prefill_plan(prefills)
        x = forward(self.weights, self.kv, plan, self.ops)
        if not readers:
            return self._result(plan.tokens[:0].unsqueeze(0), x[:0, 0].float().unsqueeze(0))
        ends = [span.offset + span.count - 1 for span in plan.spans]
        scores = logits(self.weights, x[self.upload(ends, torch.int64)], self.ops)
        if [index for index, _ in readers] != list(range(len(prefills))):
            scores = scores[self.upload([index for index, _ in readers], torch.int64)]
        rows = self.upload([row for _, row in readers], torch.int64)
        tokens, logprobs = self.sample(scores, rows, truncated)
        return self._result(tokens.unsqueeze(0), logprobs.unsqueeze(0))

    def _prefill_plan(self, prefills: Sequence[Prefill]) -> Plan:
        spans, offset = [], 0
        for each in prefills:
            spans.append(Span(each.row, offset, len(each.ids), each.start))
            offset += len(each.ids)
        tokens = np.concatenate([np.asarray(each.ids, dtype=np.int64) for each in prefills])
        rows = np.repeat([each.row for each in prefills], [len(each.ids) for each in prefills])
        places = np.concatenate([np.arange(each.start, each.start + len(each.ids)) for each in prefills])
        packed = self.upload(np.stack([tokens, rows, places]), torch.int64)
        return Plan(packed[0], packed[1], packed[2], packed[2], spans=spans)

    def decode(self, batch: int, steps: int, lengths: Sequence[int], truncated: bool) -> StepResult:
        """`steps` tokens for rows 0…`batch`. `lengths`: what each row will hold after them, by the host's count."""
        assert steps == 1, "the plain runner reports every token"
        even = max(lengths) * batch < 1.25 * sum(lengths)
        chunk = batch if even else CHUNK_ROWS
        trims = [max(lengths[at : at + chunk]) for at in range(0, batch, chunk)]
        plan = self.decode_plan(batch, trims, chunk)
        tokens, logprobs = self.step(plan, truncated)
        return self._result(tokens.unsqueeze(0), logprobs.unsqueeze(0))

    def decode_plan(self, batch: int, trims: list[int], chunk: int) -> Plan:
        state = self.ints[:batch]
        active = state[:, ACTIVE] > 0
        position = state[:, POSITION].contiguous()
        # masked_fill, not where: where copies its scalar to the device, which a graph capture forbids.
        write = position.masked_fill(~active, self.kv.length - 1)
        lengths = (position + 1).masked_fill_(~active, 1)
        plan = Plan(state[:, TOKEN], self.row_ids[:batch], position, write, lengths=lengths, trims=trims, chunk=chunk)
        if trims:
            hidden = torch.arange(max(trims), device=self.device) >= lengths.unsqueeze(1)
            mask = torch.zeros(hidden.shape, device=self.device, dtype=self.weights.dtype)
            plan.mask = mask.masked_fill_(hidden, -torch.inf)[:, None, None]
        return plan

    def step(self, plan: Plan, truncated: bool) -> tuple[Tensor, Tensor]:
        x = forward(self.weights, self.kv, plan, self.ops)
        return self.sample(logits(self.weights, x, self.ops), plan.rows, truncated)

    def sample(self, scores: Tensor, rows: Tensor, truncated: bool) -> tuple[Tensor, Tensor]:
        """Draw a token for each of `rows` and advance their state; -1 for rows that do not run."""
        state, floats = self.ints[rows], self.floats[rows]
        active = state[:, ACTIVE] > 0
        position = state[:, POSITION] + 1
        narrow = (floats[:, TOP_P], state[:, TOP_K]) if truncated else (None, None)
        tokens, logprobs = draw(scores, floats[:, TEMPERATURE], uniforms(state[:, SEED], position), *narrow)
        ended = (tokens.unsqueeze(1) == state[:, STOPS:]).any(1) | (position + 1 >= state[:, LIMIT])
        state[:, TOKEN] = torch.where(active, tokens, state[:, TOKEN])
        state[:, POSITION] += active
        state[:, ACTIVE] = active & ~ended
        self.ints[rows] = state
        return tokens.masked_fill(~active, -1), logprobs

    def _result(self, tokens: Tensor, logprobs: Tensor) -> StepResult:
        return StepResult(tokens, logprobs)


def _state_of(request: Request) -> list[int]:
    stops = list(request.params.stop_token_ids[:MAX_STOPS])
    stops += [-1] * (MAX_STOPS - len(stops))
    newest = len(request.prompt) + len(request.ids) - 1
    return [0, newest, 1, request.limit, request.seed, min(request.params.top_k or 0, 1 << 31), *stops]


def _resized(table: Tensor, rows: int, keep: int) -> Tensor:
    bigger = torch.zeros(rows, table.shape[1], dtype=table.dtype, device=table.device)
    bigger[:keep] = table[:keep]
    return bigger
