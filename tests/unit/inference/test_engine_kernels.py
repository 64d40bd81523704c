"""The Triton kernels: against plain torch in Triton's interpreter, and the whole engine on a GPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_llama as tiny
import torch

from benchmax.inference.engine.cuda_runner import CudaRunner
from benchmax.inference.engine.engine import Engine, SamplingParams

CHECK = """
import torch
from benchmax.inference.kernels import check
from benchmax.inference.kernels import layers as kernels
from benchmax.inference.weights.llama import ModelSpec, Weights
from benchmax.inference.engine.runner import Runner

shapes = ((3, 1, 64, False, False), (4, 2, 16, True, False), (2, 2, 32, False, True))
for heads, kv_heads, head_dim, normed, biased in shapes:
    spec = ModelSpec(
        vocab=700, hidden=heads * head_dim, layers=1, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        intermediate=160, context=256, eps=1e-5, tied=True, qk_norm=normed,
        qkv_bias=biased, o_bias=biased, mlp_bias=biased,
        rope={"rope_theta": 1e4, "rope_type": "default"},
    )
    runner = Runner(Weights(spec, torch.device("cpu"), torch.float32), 1 << 30)
    with torch.inference_mode():
        check.check_kernels(runner, kernels.TritonOps(spec, runner.ops.cos, runner.ops.sin))
        check.check_chain(runner.weights, runner.ops)
print("same")
"""


LANE = Path(__file__).parents[3] / ".lanes" / "triton"
"""Where `make test` puts Triton on machines whose torch brings none."""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None and not LANE.is_dir(), reason="triton is not installed")
def test_kernels_compute_what_torch_computes():
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(LANE)])
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", CHECK], env=env, capture_output=True, text=True, timeout=250)
    assert done.stdout.strip() == "same", done.stderr[-2000:]


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(params=["kernels and graphs", "graphs", "eager"])
def options(request):
    return {"kernels": request.param == "kernels and graphs", "graphs": request.param != "eager", "slots": 16}


def assert_as_transformers(engine, model, prompts):
    """Greedy answers to all prompts at once, and their log-probs, are those of transformers."""
    futures = [engine.submit(prompt, SamplingParams(max_tokens=20, temperature=0)) for prompt in prompts]
    for prompt, future in zip(prompts, futures, strict=True):
        done = future.result(110)
        assert done.logprobs == pytest.approx(tiny.logprobs(model, prompt, done.ids, 0), abs=1e-3)
        assert done.ids == tiny.greedy(model, prompt, 20)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_float32_on_a_gpu_equals_transformers(family, options):
    model = tiny.make(family)
    prompts = tiny.prompts(20) + [tiny.prompts(1, seed=3)[0]] * 6
    with Engine.from_model(model, device="cuda", dtype="float32", **options) as engine:
        assert_as_transformers(engine, model, prompts)
        stats = engine.stats()
    assert stats["notes"] == []
    assert stats["kernels"] == ("triton" if options["kernels"] else "torch")
    assert (stats["graphs"] > 0) == options["graphs"]


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_bfloat16_logprobs_are_near_those_of_float32(family, options):
    model = tiny.make(family)
    prompts = tiny.prompts(12, seed=1)
    with Engine.from_model(model, device="cuda", **options) as engine:
        for top_p in (1.0, 0.9):
            futures = [
                engine.submit(prompt, SamplingParams(max_tokens=24, temperature=0.8, top_p=top_p, seed=i))
                for i, prompt in enumerate(prompts)
            ]
            for prompt, future in zip(prompts, futures, strict=True):
                done = future.result(110)
                exact = torch.tensor(tiny.logprobs(model, prompt, done.ids, 0.8))
                assert (torch.tensor(done.logprobs) - exact).abs().mean() < 0.05
        assert engine.stats()["notes"] == []


@pytest.mark.gpu
@gpu
def test_hundreds_of_rows_at_once_are_as_near():
    model = tiny.make()
    prompts = tiny.prompts(324, seed=4)
    with Engine.from_model(model, device="cuda", slots=324) as engine:
        futures = [engine.submit(prompt, SamplingParams(max_tokens=24, seed=i)) for i, prompt in enumerate(prompts)]
        done = [future.result(110) for future in futures]
        assert engine.stats()["notes"] == []
    for prompt, one in list(zip(prompts, done, strict=True))[::9]:
        exact = torch.tensor(tiny.logprobs(model, prompt, one.ids, 1.0))
        assert (torch.tensor(one.logprobs) - exact).abs().mean() < 0.05


@pytest.mark.gpu
@gpu
def test_weights_are_swapped_under_captured_graphs(options):
    first, second = tiny.make(), tiny.make(seed=5)
    prompt = tiny.prompts(1, seed=2)[0] + [1, 2, 3]
    params = SamplingParams(max_tokens=16, temperature=0)
    with Engine.from_model(first, device="cuda", dtype="float32", **options) as engine:
        assert engine.submit(prompt, params).result(110).ids == tiny.greedy(first, prompt, 16)
        graphs = engine.stats()["graphs"]
        engine.update_weights(second.state_dict())
        assert engine.submit(prompt, params).result(110).ids == tiny.greedy(second, prompt, 16)
        assert engine.stats()["graphs"] == graphs


@pytest.mark.gpu
@gpu
def test_stops_bursts_and_cancellation_on_a_gpu(options):
    model = tiny.make()
    prompt = [5, 6, 7, 8]
    full = tiny.greedy(model, prompt, 30)
    params = SamplingParams(max_tokens=30, temperature=0)
    with Engine.from_model(model, device="cuda", dtype="float32", **options) as engine:
        stop = SamplingParams(max_tokens=30, temperature=0, stop_token_ids=(full[11],))
        long = engine.submit([9, 9, 9], SamplingParams(max_tokens=400))
        assert engine.submit(prompt, stop).result(110).ids == full[: full.index(full[11]) + 1]
        assert engine.submit(prompt, params, should_stop=lambda ids: len(ids) == 13).result(110).ids == full[:13]
        long.cancel()
        assert engine.submit(prompt + full[:10], params).result(110).ids[:20] == full[10:]


@pytest.mark.gpu
@gpu
def test_long_prompts_in_chunks_on_a_gpu(options, monkeypatch):
    monkeypatch.setattr(CudaRunner, "prefill_chunk", 64)
    model = tiny.make()
    prompts = [prompt for prompt in tiny.prompts(12, longest=400, seed=6) if len(prompt) > 64] + tiny.prompts(6, seed=7)
    with Engine.from_model(model, device="cuda", dtype="float32", **options) as engine:
        assert_as_transformers(engine, model, prompts)
        assert engine.stats()["notes"] == []
