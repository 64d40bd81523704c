"""Requests come, stop, are cancelled and fail, and the engine goes on; it never leaves anyone waiting."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from queue import Queue

import numpy as np
import pytest
import tiny_llama as tiny
import torch

from benchmax.errors import ContextExceeded, ModelError, ModelUnavailable, NotFoundError, UsageError
from benchmax.inference.engine.engine import Engine, SamplingParams, pick_device, pick_dtype
from benchmax.inference.engine.kv_cache import KVCache
from benchmax.inference.weights import bfloat16_probe as probe
from benchmax.inference.weights.llama import ModelSpec

PROMPT = [5, 6, 7, 8, 9, 10]
GREEDY = SamplingParams(max_tokens=16, temperature=0)


@pytest.fixture
def engine():
    with Engine.from_model(tiny.shared(), device="cpu", slots=4) as opened:
        yield opened


def expected(new=16):
    return list(_computed(new))


@cache
def _computed(new):
    return tiny.greedy(tiny.shared(), PROMPT, new)


async def test_generate_awaits_many_at_once(engine):
    results = await asyncio.gather(*(engine.generate(PROMPT, GREEDY) for _ in range(12)))
    assert [done.ids for done in results] == [expected()] * 12


def test_requests_from_many_threads(engine):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(engine.submit(PROMPT, GREEDY).result(60).ids)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected()] * 8


def test_a_stop_token_ends_and_is_kept(engine):
    full = expected()
    stop = full[5]
    at = full.index(stop)
    params = SamplingParams(max_tokens=16, temperature=0, stop_token_ids=(stop,))
    done = engine.submit(PROMPT, params).result(60)
    assert (done.ids, done.finish) == (full[: at + 1], "stop")
    assert len(done.logprobs) == at + 1


def test_more_stop_tokens_than_the_device_checks(engine):
    full = expected()
    unused = [token for token in range(tiny.VOCAB) if token not in full][:12]
    params = SamplingParams(max_tokens=16, temperature=0, stop_token_ids=(*unused, full[3]))
    assert engine.submit(PROMPT, params).result(60).ids == full[: full.index(full[3]) + 1]


def test_should_stop_ends_there_or_keeps_a_count(engine):
    full = expected()
    done = engine.submit(PROMPT, GREEDY, should_stop=lambda ids: len(ids) == 7).result(60)
    assert (done.ids, done.finish) == (full[:7], "stop")
    done = engine.submit(PROMPT, GREEDY, should_stop=lambda ids: 4 if len(ids) == 7 else None).result(60)
    assert (done.ids, len(done.logprobs), done.finish) == (full[:4], 4, "stop")
    assert engine.submit(PROMPT + full[:4], GREEDY).result(60).ids[:12] == full[4:16]


def test_on_tokens_hears_every_token_in_order(engine):
    heard, scores = [], []
    done = engine.submit(PROMPT, GREEDY, on_tokens=lambda ids, lps: (heard.extend(ids), scores.extend(lps))).result(60)
    assert (heard, scores) == (done.ids, done.logprobs)


def test_a_failing_callback_fails_only_its_request(engine):
    def broken(ids):
        raise RuntimeError("bad callback")

    neighbour = engine.submit(PROMPT, GREEDY)
    with pytest.raises(RuntimeError, match="bad callback"):
        engine.submit(PROMPT, GREEDY, should_stop=broken).result(60)
    assert neighbour.result(60).ids == expected()


@pytest.mark.parametrize("answer", ["yes", float("nan"), object()])
def test_an_answer_that_is_no_number_fails_only_its_request(engine, answer):
    neighbour = engine.submit(PROMPT, GREEDY)
    with pytest.raises((TypeError, ValueError)):
        engine.submit(PROMPT, GREEDY, should_stop=lambda ids: answer).result(60)
    assert neighbour.result(60).ids == expected()
    assert engine.submit(PROMPT, GREEDY).result(60).ids == expected()


def test_a_request_whose_two_callbacks_fail_fails_alone(engine):
    def broken(*news):
        raise RuntimeError("bad callback")

    neighbour = engine.submit(PROMPT, GREEDY)
    with pytest.raises(RuntimeError, match="bad callback"):
        engine.submit(PROMPT, GREEDY, should_stop=broken, on_tokens=broken).result(60)
    assert neighbour.result(60).ids == expected()


def test_a_caller_cannot_change_what_was_sampled(engine):
    done = engine.submit(PROMPT, GREEDY, should_stop=lambda ids: ids.clear()).result(60)
    assert done.ids == expected()


def test_answers_of_numpy_count_as_yes_and_no(engine):
    done = engine.submit(PROMPT, GREEDY, should_stop=lambda ids: np.bool_(len(ids) == 7)).result(60)
    assert done.ids == expected()[:7]


def test_one_refused_allocation_does_not_keep_a_longer_request_waiting(monkeypatch):
    allocate, refuse = KVCache._allocate, iter([True])

    def once(self, rows, length):
        if next(refuse, False):
            raise MemoryError
        return allocate(self, rows, length)

    monkeypatch.setattr(KVCache, "_allocate", once)
    model, long = tiny.shared(), list(range(3, 60)) * 5
    with Engine.from_model(model, slots=1, max_len=500) as engine:
        assert engine.submit(PROMPT, GREEDY).result(60).ids == expected()
        done = engine.submit(long, GREEDY).result(60)
        assert tiny.is_greedy(model, long, done.ids)


def test_broken_weights_leave_nothing_behind():
    model = tiny.shared()
    name = "model.layers.1.self_attn.k_proj.weight"
    with Engine.from_model(model, slots=4) as engine:
        engine.update_weights({name: model.state_dict()[name] * float("nan")})
        assert np.isnan(engine.submit([3] * 100, SamplingParams(max_tokens=3)).result(60).logprobs).all()
        engine.update_weights(model.state_dict())
        done = engine.submit(PROMPT, GREEDY).result(60)
        assert done.ids == expected()
        assert np.isfinite(done.logprobs).all()


class Held:
    """Holds an engine at the first token it draws, so that nothing is done before it is let go."""

    def __init__(self):
        self.reached, self._free = threading.Event(), threading.Event()

    def on_tokens(self, ids, logprobs):
        self.reached.set()
        self._free.wait(60)

    def let_go(self):
        self._free.set()


async def test_cancelling_frees_the_row(engine):
    held = Held()
    long = SamplingParams(max_tokens=500, temperature=0)
    tasks = [asyncio.create_task(engine.generate([i + 1, 2, 3], long, on_tokens=held.on_tokens)) for i in range(6)]
    assert await asyncio.to_thread(held.reached.wait, 60)
    for task in tasks:
        task.cancel()
    assert all(isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*tasks, return_exceptions=True))
    held.let_go()
    assert (await engine.generate(PROMPT, GREEDY)).ids == expected()
    assert engine.stats()["active"] == 0
    assert engine.stats()["generated"] < 6 * 400


def test_max_tokens_is_cut_to_the_context():
    with Engine.from_model(tiny.shared(), device="cpu", slots=2, max_len=20) as engine:
        done = engine.submit(PROMPT, SamplingParams(max_tokens=100, temperature=0)).result(60)
        assert (done.ids, done.finish) == (expected(14), "length")
        with pytest.raises(ContextExceeded, match="max_len"):
            engine.submit(list(range(20)))


@pytest.mark.parametrize("prompt", [[], [tiny.VOCAB], [-1], [[1, 2], [3]], ["a"], [1.5]])
def test_wrong_prompts_are_refused_at_once(engine, prompt):
    with pytest.raises(UsageError):
        engine.submit(prompt)


def test_wrong_weights_are_refused_whole(engine):
    good = tiny.make(seed=11).state_dict()
    with pytest.raises(UsageError, match="no parameter 'nope'"):
        engine.update_weights({**good, "nope": torch.zeros(1)})
    with pytest.raises(UsageError, match="shape"):
        engine.update_weights({"model.norm.weight": torch.zeros(3)})
    assert engine.submit(PROMPT, GREEDY).result(60).ids == expected()


def test_weights_swapped_from_inside_a_callback_do_not_deadlock(engine):
    state = tiny.shared().state_dict()
    done = engine.submit(PROMPT, GREEDY, on_tokens=lambda *_: engine.update_weights(state)).result(60)
    assert done.ids == expected()


@pytest.fixture
def watched(engine, monkeypatch):
    """The engine with prompts in pieces of 16, and what it does: p with a number of tokens, d for a decode step."""
    runner, done = engine._runner, []
    prefill, decode = runner.prefill, runner.decode
    monkeypatch.setattr(type(runner), "prefill_chunk", 16)

    def compute(feeds, *rest):
        done.append(("p", sum(len(feed.ids) for feed in feeds)))
        return prefill(feeds, *rest)

    def step(*given):
        done.append(("d", 0))
        return decode(*given)

    monkeypatch.setattr(runner, "prefill", compute)
    monkeypatch.setattr(runner, "decode", step)
    return engine, done


LONG = [3 + i * 7 % 90 for i in range(70)]


def test_a_long_prompt_is_computed_in_pieces_and_those_who_run_go_on(watched):
    engine, done = watched
    asked = Queue()

    def ask(ids, logprobs):  # in the engine's thread, when the first has its first token
        if asked.empty():
            asked.put([engine.submit(LONG, GREEDY), engine.submit([9, 8, 7], GREEDY)])

    first = engine.submit(PROMPT, SamplingParams(max_tokens=100, temperature=0), on_tokens=ask)
    first.result(60)
    late, short = asked.get(timeout=60)
    assert late.result(60).ids == tiny.greedy(tiny.shared(), LONG, 16)
    assert short.result(60).ids == tiny.greedy(tiny.shared(), [9, 8, 7], 16)
    assert first.result(60).ids == tiny.greedy(tiny.shared(), PROMPT, 100)
    pieces = [at for at, (kind, _) in enumerate(done) if kind == "p"][1:]
    assert sum(done[at][1] for at in pieces) == len(LONG) + 3
    assert len(pieces) >= 5
    assert all(done[at + 1][0] == "d" for at in pieces), "a step for the others after every piece"
    assert late.result().prefix == 0, "its own pieces are no reuse"


def test_siblings_of_a_long_prompt_wait_for_it_and_it_is_computed_once(watched):
    engine, done = watched
    asked = [engine.submit(prompt, GREEDY) for prompt in (LONG, LONG, [*LONG, 5], LONG)]
    results = [one.result(60).ids for one in asked]
    assert results == [tiny.greedy(tiny.shared(), prompt, 16) for prompt in (LONG, LONG, [*LONG, 5], LONG)]
    assert sum(tokens for kind, tokens in done if kind == "p") <= len(LONG) + 8


def test_a_request_cancelled_between_two_pieces_leaves_nothing_running(watched):
    engine, _ = watched
    running = engine.submit(PROMPT, SamplingParams(max_tokens=60, temperature=0))
    engine.submit(LONG, GREEDY).cancel()
    assert running.result(60).ids == tiny.greedy(tiny.shared(), PROMPT, 60)
    assert engine.submit(LONG, GREEDY).result(60).ids == tiny.greedy(tiny.shared(), LONG, 16)
    assert (engine.stats()["active"], engine.stats()["queued"]) == (0, 0)


def test_prefix_reuse_changes_nothing(engine):
    params = SamplingParams(max_tokens=16, seed=3)
    first = engine.submit(PROMPT, params).result(60)
    reused = engine.submit(PROMPT, params).result(60)
    engine.update_weights({})
    fresh = engine.submit(PROMPT, params).result(60)
    assert first.ids == reused.ids == fresh.ids
    assert (first.prefix, reused.prefix, fresh.prefix) == (0, len(PROMPT) - 1, 0)
    assert reused.logprobs == pytest.approx(fresh.logprobs, abs=1e-5)


def test_closing_fails_what_waits_and_refuses_more():
    engine = Engine.from_model(tiny.shared(), device="cpu", slots=1)
    held = Held()
    futures = [engine.submit([1, 2, i], SamplingParams(max_tokens=500), on_tokens=held.on_tokens) for i in range(4)]
    assert held.reached.wait(60)
    closing = threading.Thread(target=engine.close)
    closing.start()
    with pytest.raises(ModelUnavailable, match="closed"):
        submit_until_refused(engine)
    held.let_go()
    closing.join()
    engine.close()
    for future in futures:
        with pytest.raises(ModelUnavailable):
            future.result(60)
    with pytest.raises(ModelUnavailable, match="closed"):
        engine.submit(PROMPT)


def submit_until_refused(engine):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        engine.submit(PROMPT)
        time.sleep(0.01)


def test_a_dead_engine_fails_everyone_and_says_why(monkeypatch):
    engine = Engine.from_model(tiny.shared(), device="cpu", slots=2)
    all_asked = threading.Event()

    def step(*_):
        all_asked.wait(60)
        raise RuntimeError("device lost")

    monkeypatch.setattr(engine._runner, "step", step)
    futures = [engine.submit([1, 2, i], SamplingParams(max_tokens=50)) for i in range(5)]
    all_asked.set()
    for future in futures:
        with pytest.raises(ModelError, match="device lost"):
            future.result(30)
    with pytest.raises(ModelUnavailable, match="device lost"):
        engine.submit(PROMPT)
    with pytest.raises(ModelUnavailable):
        engine.update_weights({})
    engine.close()


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), RuntimeError("could not create a primitive")])
def test_running_out_of_memory_advises(monkeypatch, error):
    engine = Engine.from_model(tiny.shared(), device="cpu", slots=2)
    monkeypatch.setattr(engine._runner, "step", lambda *_: (_ for _ in ()).throw(error))
    with pytest.raises(ModelError, match=r"ran out of memory.*fewer slots"):
        engine.submit(PROMPT, SamplingParams(max_tokens=9)).result(30)
    with pytest.raises(ModelUnavailable, match=r"^The engine stopped\. .*ran out of memory.*group_size"):
        engine.submit(PROMPT)
    engine.close()


def test_a_cache_that_cannot_grow_fails_the_requests_and_lives_on(engine, monkeypatch):
    engine.submit(PROMPT, GREEDY).result(60)
    monkeypatch.setattr(engine._runner.kv, "_allocate", lambda *_: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(UsageError, match="fewer slots"):
        engine.submit(PROMPT, SamplingParams(max_tokens=400)).result(60)
    assert engine.submit(PROMPT, GREEDY).result(60).ids == expected()


def test_without_memory_for_a_first_row_every_request_fails_at_once(monkeypatch):
    monkeypatch.setattr(KVCache, "_allocate", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("full")))
    with Engine.from_model(tiny.shared(), device="cpu", slots=8) as engine:
        for future in [engine.submit([1, 2, i], SamplingParams(max_tokens=9)) for i in range(20)]:
            with pytest.raises(UsageError, match="No memory"):
                future.result(30)


def test_with_less_memory_than_counted_on_fewer_run_at_once(monkeypatch):
    allocate = KVCache._allocate

    def grudging(kv, rows, length):
        if rows * length > 300:
            raise torch.OutOfMemoryError("full")
        return allocate(kv, rows, length)

    monkeypatch.setattr(KVCache, "_allocate", grudging)
    with Engine.from_model(tiny.shared(), device="cpu", slots=16) as engine:
        for future in [engine.submit(PROMPT, GREEDY) for _ in range(20)]:
            assert future.result(60).ids == expected()
        assert 1 <= engine._runner.kv.rows < 16


def test_memory_for_less_than_one_sequence_is_refused():
    with pytest.raises(UsageError, match="kv_bytes"):
        Engine.from_model(tiny.shared(), device="cpu", kv_bytes=10_000, max_len=200)


def test_unknown_architectures_are_named():
    with pytest.raises(UsageError, match=r"llama, qwen2, qwen3.*'gpt2'"):
        ModelSpec.from_config({"model_type": "gpt2"})


def test_a_directory_without_a_model_is_not_found(tmp_path):
    with pytest.raises(NotFoundError, match=r"config\.json"):
        Engine.from_directory(tmp_path)
    tiny.shared().config.save_pretrained(tmp_path)
    with pytest.raises(NotFoundError, match="safetensors"):
        Engine.from_directory(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_weights_that_are_not_finite_are_one_clear_line(tmp_path, value):
    model = tiny.make("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[3, 5] = value
        model.model.norm.weight[0] = value
    model.save_pretrained(tmp_path)
    with pytest.raises(UsageError) as caught:
        Engine.from_directory(tmp_path, device="cpu")
    assert str(caught.value) == (
        f"The weights in {tmp_path} are not finite numbers as float32: there is NaN or an infinity in "
        "model.layers.1.mlp.down_proj.weight and 1 more. Pull or copy the model again, or take an earlier checkpoint."
    )


def test_devices_and_dtypes_are_checked():
    with pytest.raises(UsageError, match="device"):
        pick_device("toaster")
    with pytest.raises(UsageError, match="dtype"):
        pick_dtype("float8", torch.device("cpu"))
    with pytest.raises(UsageError, match="float32"):
        pick_dtype("float16", torch.device("cpu"))
    assert pick_dtype("auto", torch.device("cpu")) is pick_dtype("fp32", torch.device("cpu")) is torch.float32


def test_bfloat16_on_a_cpu_is_tried_once_in_a_process_of_its_own_and_then_sampled_in(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path))
    where = torch.device("cpu")
    problem, certain = probe.probe(os.environ)
    assert certain
    if problem:
        with pytest.raises(UsageError, match=r"bfloat16 does not work.*float32"):
            pick_dtype("bf16", where)
        return
    assert pick_dtype("bf16", where) is torch.bfloat16
    monkeypatch.setattr(probe, "probe", lambda environ: pytest.fail("asked twice"))
    assert pick_dtype("bfloat16", where) is torch.bfloat16
    with Engine.from_model(tiny.shared(), device="cpu", dtype="bf16") as narrow:
        drawn = [narrow.submit(PROMPT, GREEDY).result(60) for _ in range(2)]
        long = narrow.submit(list(range(5)) * 60, SamplingParams(max_tokens=4, seed=1)).result(60)
    assert narrow.stats()["dtype"] == "bfloat16"
    assert drawn[0].ids == drawn[1].ids
    assert len(long.ids) == 4
    assert all(value <= 0 for value in (*drawn[0].logprobs, *long.logprobs))


@pytest.mark.parametrize(("works_with_isa", "says"), [(True, "With ONEDNN_MAX_CPU_ISA="), (False, "Use float32")])
def test_a_machine_whose_bfloat16_faults_gets_advice(tmp_path, monkeypatch, works_with_isa, says):
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path))
    monkeypatch.delenv(probe.ISA, raising=False)
    safe = "if os.environ.get('ONEDNN_MAX_CPU_ISA'): raise SystemExit\n" if works_with_isa else ""
    monkeypatch.setattr(probe, "PROGRAM", f"import os, signal\n{safe}os.kill(os.getpid(), signal.SIGILL)")
    for _ in range(2):  # the second answer is the kept one
        with pytest.raises(UsageError, match=f"SIGILL.*{says}"):
            pick_dtype("bf16", torch.device("cpu"))


def test_stats_count_what_happened(engine):
    futures = [engine.submit(PROMPT, GREEDY) for _ in range(3)]
    for future in futures:
        future.result(60)
    stats = engine.stats()
    assert stats["requests"] == 3
    assert stats["generated"] == 48
    assert stats["kv_slots"] == 4
    assert stats["tokens_per_second"] > 0
    assert 1 <= stats["mean_batch"] <= 4


@pytest.mark.parametrize("top_k", [2**63 - 1, 2**63, 10**30])
def test_a_top_k_of_any_size_is_no_limit(engine, top_k):
    wide = SamplingParams(max_tokens=4, seed=1, top_k=top_k)
    narrow = SamplingParams(max_tokens=4, seed=1)
    assert engine.submit([1, 2, 3], wide).result(30).ids == engine.submit([1, 2, 3], narrow).result(30).ids


FORGOTTEN = """
import tiny_llama as tiny
from benchmax.inference.engine.engine import Engine, SamplingParams
engine = Engine.from_model(tiny.shared(), device="cpu", slots=4)
engine.submit([5, 6, 7], SamplingParams(max_tokens=100))
print(len(engine.submit([5, 6, 7], SamplingParams(max_tokens=2)).result(60).ids))
"""


@pytest.mark.slow
def test_a_program_that_closes_nothing_ends_quietly():
    here = str(Path(__file__).parent)
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", FORGOTTEN],
            env={**os.environ, "PYTHONPATH": here},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")
