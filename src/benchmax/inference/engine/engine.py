"""Token ids in, token ids out: the local engine.

One worker thread owns the model. Requests come from any thread or event loop and join the running batch between two
decode steps; each gets a future. Weights can be replaced in place between steps.

    engine = Engine.from_directory("path/to/model")
    done = await engine.generate(prompt_ids, SamplingParams(max_tokens=64, stop_token_ids=(2,)))
    done.ids, done.logprobs, done.finish
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

import torch
from torch import Tensor

from benchmax.cross_loop import LoopCalls, settle
from benchmax.errors import ModelError, ModelUnavailable, UsageError
from benchmax.files.display import readable_bytes
from benchmax.inference.engine.kv_cache import memory_budget, round_up
from benchmax.inference.engine.request import OnTokens, Request, ShouldStop, check_prompt
from benchmax.inference.engine.runner import Runner
from benchmax.inference.engine.sampling import Generation, SamplingParams
from benchmax.inference.engine.scheduler import Scheduler
from benchmax.inference.weights.bfloat16_probe import check_bfloat16
from benchmax.inference.weights.llama import ModelSpec, Weights
from benchmax.memory import out_of_memory

logger = logging.getLogger(__name__)

__all__ = ["Engine", "Generation", "OnTokens", "SamplingParams", "ShouldStop"]

SLOTS = {"cpu": 64, "cuda": 512}
QUIET_SECONDS = 0.0005
MAX_RESTARTS = 6
RESTART_SECONDS = 0.2
"""How often in a row the engine starts over when memory runs out, and how much longer it waits each time."""
GATHER_SECONDS = 0.1
"""How long an idle engine waits at most for a pause between requests of `QUIET_SECONDS`, so that requests submitted one
by one start as one batch."""

_open: WeakSet[Engine] = WeakSet()


@atexit.register
def _close_all() -> None:
    """End the threads of engines that nobody closed: one that outlives the interpreter aborts the process."""
    for engine in list(_open):
        engine.close()


class Engine:
    """A decoder-only model of the Llama family, sampled by continuous batching.

    `slots` is how many sequences run at once, `max_len` how long one may get (prompt and reply), `kv_bytes` how much
    memory their keys and values may take; defaults come from the device.
    """

    def __init__(
        self,
        weights: Weights,
        *,
        slots: int | None = None,
        max_len: int | None = None,
        kv_bytes: int | None = None,
        seed: int | None = None,
        kernels: bool = True,
        graphs: bool = True,
    ) -> None:
        self.weights = weights
        self.spec = weights.spec
        slots = SLOTS.get(weights.device.type, 64) if slots is None else slots
        self._runner = _runner(weights, kv_bytes or memory_budget(weights.device), kernels, graphs)
        self.max_len = _longest(self._runner, max_len)
        if slots < 1 or self.max_len < 2:
            raise UsageError(f"slots is {slots} and max_len {self.max_len}; use at least 1 slot and 2 tokens.")
        self._scheduler = Scheduler(self._runner, slots, self.max_len)
        self._random = random.Random(seed)
        self._wake = threading.Condition()
        self._arrivals: deque[Request] = deque()
        self._commands: deque[tuple[Callable[[], object], Future[Any]]] = deque()
        self._closing = False
        self._failure: BaseException | None = None
        self._shortages = 0
        """Times in a row that memory ran out."""
        self._thread = threading.Thread(target=self._run, name="benchmax-engine", daemon=True)
        self._thread.start()
        _open.add(self)

    @classmethod
    def from_directory(cls, path: str | Path, device: str = "auto", dtype: str = "auto", **options: Any) -> Engine:
        """Load a directory of config.json and safetensors. `options` are those of `Engine`."""
        spec = ModelSpec.from_directory(Path(path))
        weights = _allocate(spec, device, dtype)
        weights.load_directory(Path(path))
        return cls(weights, **options)

    @classmethod
    def from_model(cls, model: torch.nn.Module, device: str = "auto", dtype: str = "auto", **options: Any) -> Engine:
        """Copy a Hugging Face model that is in memory."""
        config: Any = model.config
        weights = _allocate(ModelSpec.from_config(config.to_dict()), device, dtype)
        weights.update(model.state_dict())
        return cls(weights, **options)

    @property
    def device(self) -> torch.device:
        return self.weights.device

    @property
    def kv_bytes(self) -> int:
        """How much memory keys and values may take; it falls when memory runs short."""
        return self._runner.kv.budget

    @kv_bytes.setter
    def kv_bytes(self, budget: int) -> None:
        kv = self._runner.kv
        kv.budget = max(budget, round_up(self.max_len + 1) * kv.position_bytes)

    # Sampling

    def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams = SamplingParams(),
        *,
        should_stop: ShouldStop | None = None,
        on_tokens: OnTokens | None = None,
    ) -> Future[Generation]:
        """Queue a request; cancel the future to end it early. Callable from any thread.

        `should_stop(ids)` gets the ids so far after every token: True ends the generation there, an int keeps that
        many ids, False or None goes on. On a GPU tokens come in bursts, and those beyond the end are dropped.
        `on_tokens(ids, logprobs)` gets new tokens. Both run in the engine's thread: keep them short. `max_tokens` is
        limited to what `max_len` leaves.
        """
        prompt = check_prompt(prompt_ids, self.spec.vocab, self.max_len)
        seed = self._random.getrandbits(63) if params.seed is None else params.seed & ((1 << 63) - 1)
        limit = min(len(prompt) + params.max_tokens, self.max_len)
        if params.top_k is not None and params.top_k > self.spec.vocab:
            params = replace(params, top_k=self.spec.vocab)  # the same draw, and it fits the device's integers
        request = Request(prompt, params, seed, limit, should_stop, on_tokens)
        with self._wake:
            self._check_open()
            self._arrivals.append(request)
            self._wake.notify()
        return request.future

    async def generate(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams = SamplingParams(),
        *,
        should_stop: ShouldStop | None = None,
        on_tokens: OnTokens | None = None,
    ) -> Generation:
        """`submit` for an event loop. Cancelling the await ends the generation."""
        done = self.submit(prompt_ids, params, should_stop=should_stop, on_tokens=on_tokens)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        calls = LoopCalls.of(loop)  # requests that end together wake it once
        done.add_done_callback(lambda _: calls.schedule(settle, waiter, None))
        try:
            await waiter
        except asyncio.CancelledError:
            done.cancel()
            raise
        return done.result()

    # Weights

    def update_weights(self, named: Mapping[str, Tensor]) -> None:
        """Copy parameters, all or some, by their Hugging Face names; returns when they are in place.

        Applied between two steps. Computed prompts are forgotten; running requests go on with the new weights and the
        keys and values they have.
        """
        ready = torch.cuda.current_stream(self.device).record_event() if self.device.type == "cuda" else None

        def swap() -> None:
            if ready is not None:
                torch.cuda.current_stream(self.device).wait_event(ready)
            self.weights.update(named)
            self._scheduler.forget_prefixes()
            if ready is not None:
                torch.cuda.current_stream(self.device).synchronize()

        self.call(swap)

    def start_afresh(self) -> None:
        """Forget what ran before, the shape of the cache too: the next requests are batched as in a new engine.

        On a CPU the same requests in the same order then have the same log-probs to the last bit, which depends on how
        many rows are computed together.
        """
        self.call(self._scheduler.start_afresh)

    def call(self, action: Callable[[], object]) -> object:
        """Run `action` in the engine's thread, between two steps, and wait for it."""
        if threading.current_thread() is self._thread:
            return action()
        done: Future[Any] = Future()
        with self._wake:
            self._check_open()
            self._commands.append((action, done))
            self._wake.notify()
        return done.result()

    # Life

    def stats(self) -> dict[str, Any]:
        """Totals since the start, and what runs now."""
        state, kv = self._scheduler.state, self._runner.kv
        counters = state.counters
        return {
            **asdict(counters),
            "tokens_per_second": counters.generated / counters.busy_seconds if counters.busy_seconds else 0.0,
            "mean_batch": counters.rows_stepped / counters.steps if counters.steps else 0.0,
            "active": int(state.table.busy.sum()),
            "queued": len(state.queue) + len(self._arrivals),
            "slots": state.slots,
            "kv_slots": kv.rows,
            "kv_length": kv.length,
            "kv_bytes": kv.bytes,
            "device": str(self.device),
            "dtype": str(self.weights.dtype).removeprefix("torch."),
            "kernels": self._runner.kernels,
            "graphs": self._runner.graphs,
            "notes": list(getattr(self._runner, "notes", ())),
        }

    def close(self) -> None:
        """Stop the thread and free the cache; requests still under way fail. Safe to call twice."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()
            _open.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def trouble(self) -> str:
        """Why it takes no more requests; empty while it does."""
        if self._failure is not None:
            return f"The engine stopped. {self._failure}"
        return "The engine is closed. Open a new one." if self._closing else ""

    def _check_open(self) -> None:
        if self.trouble:
            raise ModelUnavailable(self.trouble) from self._failure

    # The worker thread

    def _run(self) -> None:
        error: BaseException = ModelUnavailable("The engine was closed before the request was done. Open a new one.")
        try:
            self._runner.enter()
            with torch.inference_mode():
                while self._receive():
                    self._turn()
        except BaseException as failure:
            error = self._failure = _explain(failure, self._runner)
        self._end(error)

    def _turn(self) -> None:
        began = time.perf_counter()
        try:
            self._scheduler.turn()
            self._shortages = 0
        except UsageError as error:  # no memory for a larger cache: the present one stays sound
            self._scheduler.delivery.abandon(error)
        except (RuntimeError, MemoryError) as error:
            if (
                not out_of_memory(error)
                or self._shortages >= MAX_RESTARTS
                or not self._scheduler.capacity.half_is_enough
            ):
                raise
            self._shortages += 1
            logger.warning("out of memory (%s): going on with fewer rows", self._runner.describe_memory())
            self._scheduler.start_over()
            time.sleep(RESTART_SECONDS * self._shortages)  # others on the same device may release some
        self._scheduler.state.counters.busy_seconds += time.perf_counter() - began

    def _receive(self) -> bool:
        """Take in requests and commands; wait for them when idle. False when the engine is to close."""
        with self._wake:
            idle = self._scheduler.state.idle
            while idle and not (self._arrivals or self._commands or self._closing):
                self._wake.wait()
        if idle:
            self._gather()
        with self._wake:
            self._scheduler.state.counters.requests += len(self._arrivals)
            commands = self._take_in()
        for action, done in commands:
            try:
                done.set_result(action())
            except BaseException as error:
                done.set_exception(error)
        return not self._closing

    def _take_in(self) -> list[tuple[Callable[[], object], Future[Any]]]:
        """Queue what has arrived; returns the commands. Called with the lock held."""
        self._scheduler.state.queue.extend(self._arrivals)
        commands = list(self._commands)
        self._arrivals.clear()
        self._commands.clear()
        return commands

    def _gather(self) -> None:
        deadline = time.perf_counter() + GATHER_SECONDS
        count = 0
        while count < len(self._arrivals) < self._scheduler.state.slots and time.perf_counter() < deadline:
            count = len(self._arrivals)
            time.sleep(QUIET_SECONDS)

    def _end(self, error: BaseException) -> None:
        with self._wake:
            self._closing = True
            commands = self._take_in()
        self._scheduler.delivery.fail_all(error)
        for _, done in commands:
            done.set_exception(error)
        self._runner.release()


def _longest(runner: Runner, asked: int | None) -> int:
    """How long a sequence may get: what was asked for, what the model supports, what memory holds."""
    context, kv = runner.weights.spec.context, runner.kv
    room = kv.budget // kv.position_bytes // 64 * 64 - 1
    if asked is not None and room < min(asked, context):
        raise UsageError(
            f"A sequence of {asked} tokens takes {readable_bytes(asked * kv.position_bytes)} of keys and values; "
            f"{readable_bytes(kv.budget)} are set aside. Give more (kv_bytes) or use a shorter max_len."
        )
    return min(asked or context, context, room)


def _explain(failure: BaseException, runner: Runner) -> BaseException:
    """Why the engine stopped, and for lack of memory what to change."""
    if out_of_memory(failure):
        return ModelError(
            f"It ran out of memory ({runner.describe_memory()}). Use a smaller model, fewer slots, a shorter "
            "max_len or a smaller kv_bytes; in training, a smaller rollouts.group_size or rollouts.concurrency, or a "
            "shorter rollouts.max_new_tokens."
        )
    return ModelError(f"{type(failure).__name__}: {failure}. Open a new one.")


def _allocate(spec: ModelSpec, device: str, dtype: str) -> Weights:
    where = pick_device(device)
    kind = pick_dtype(dtype, where)
    try:
        return Weights(spec, where, kind)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise UsageError("The model does not fit the device's memory. Use a smaller model or device='cpu'.") from error


def pick_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"There is no device {name!r}. Use auto, cpu or cuda.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("torch finds no CUDA device. Choose the device cpu.")
    return torch.device("cuda", torch.cuda.current_device()) if name == "cuda" else device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """bfloat16 on CUDA, float32 on a CPU: there bfloat16 is often slower, and faults on some virtual machines."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    kind = known.get({"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}.get(name, name))
    if kind is None:
        raise UsageError(f"There is no dtype {name!r}. Use auto, {', '.join(known)}.")
    if device.type == "cpu" and kind is torch.float16:
        raise UsageError("On a CPU the engine computes in float32 or bfloat16, not float16. Use dtype='auto'.")
    if device.type == "cpu" and kind is torch.bfloat16:
        check_bfloat16()
    return kind


def _runner(weights: Weights, budget: int, kernels: bool, graphs: bool) -> Runner:
    if weights.device.type != "cuda":
        return Runner(weights, budget)
    from benchmax.inference.engine.cuda_runner import CudaRunner

    with torch.inference_mode():
        return CudaRunner(weights, budget, kernels, graphs)
