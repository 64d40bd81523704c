"""The engine computes what transformers computes: alone, in any batch, with reuse, after a weight swap."""

from __future__ import annotations

import pytest
import tiny_llama as tiny
import torch

from benchmax.inference.engine import engine as engine_module
from benchmax.inference.engine.engine import Engine, SamplingParams
from benchmax.inference.engine.runner import Runner, StepResult


class BurstRunner(Runner):
    """Several steps at a time, read late, as on a GPU."""

    burst = 4
    lag = 1
    share = 256

    def worth_compacting(self, high, count):
        return high > 2 * count

    def decode(self, batch, steps, lengths, truncated):
        parts = []
        for _ in range(steps):
            plan = self.decode_plan(batch, [max(lengths)], batch)
            parts.append(self.step(plan, truncated))
        return StepResult(torch.stack([part[0] for part in parts]), torch.stack([part[1] for part in parts]))


@pytest.fixture(params=["plain", "burst"])
def opened(request, monkeypatch):
    """Opens engines; runs each test with a runner that reports every token and one that reports in bursts."""
    if request.param == "burst":
        monkeypatch.setattr(engine_module, "_runner", lambda weights, budget, *_: BurstRunner(weights, budget))
    engines = []

    def open_(model, **options):
        engines.append(Engine.from_model(model, device="cpu", **options))
        return engines[-1]

    yield open_
    for engine in engines:
        engine.close()


def run(engine, prompts, **settings):
    """The answers to prompts that come at once: in the engine's thread none begins before the last is there."""

    def submitted():
        for i, prompt in enumerate(prompts):
            seed = {"seed": i} if settings.get("temperature", 1.0) else {}
            yield engine.submit(prompt, SamplingParams(**{**seed, **settings}))

    return [future.result(60) for future in engine.call(lambda: list(submitted()))]


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_greedy_equals_transformers(family, opened):
    model = tiny.shared(family)
    prompts = tiny.prompts(14)
    engine = opened(model, slots=6)
    for prompt, done in zip(prompts, run(engine, prompts, max_tokens=12, temperature=0), strict=True):
        assert tiny.is_greedy(model, prompt, done.ids)
        assert (len(done.ids), done.finish) == (12, "length")
        assert done.logprobs == pytest.approx(tiny.logprobs(model, prompt, done.ids, 0), abs=1e-4)


def test_groups_and_continuations_equal_transformers(opened):
    model = tiny.shared()
    base = tiny.prompts(3, seed=5)[0] + list(range(20))
    engine = opened(model, slots=8)
    group = run(engine, [base] * 5 + [[*base, 9], [*base[:-3], 7, 7]], max_tokens=9, temperature=0)
    assert [done.ids for done in group[:5]] == [tiny.greedy(model, base, 9)] * 5
    assert group[5].ids == tiny.greedy(model, [*base, 9], 9)
    assert group[6].ids == tiny.greedy(model, [*base[:-3], 7, 7], 9)
    turn = base + group[0].ids + [3, 1, 4]
    (follow,) = run(engine, [turn], max_tokens=9, temperature=0)
    assert follow.ids == tiny.greedy(model, turn, 9)
    assert follow.prefix >= len(base) + 8
    assert engine.stats()["prefix_hits"] >= 5


def test_sampled_logprobs_equal_a_fresh_pass(opened):
    model = tiny.shared()
    prompts = tiny.prompts(20, seed=2) + [tiny.prompts(1, seed=3)[0]] * 4
    engine = opened(model, slots=7)
    for temperature, top_p in ((1.0, 1.0), (0.7, 0.9)):
        for prompt, done in zip(
            prompts, run(engine, prompts, max_tokens=15, temperature=temperature, top_p=top_p), strict=True
        ):
            assert done.logprobs == pytest.approx(tiny.logprobs(model, prompt, done.ids, temperature), abs=1e-4)


def test_a_seed_gives_the_same_sample_in_any_company(opened):
    model = tiny.shared()
    prompt = tiny.prompts(1, seed=8)[0] + [1, 2, 3]
    params = SamplingParams(max_tokens=20, seed=42)
    alone = opened(model, slots=1).submit(prompt, params).result(60)
    crowd = opened(model, slots=5)
    others = [crowd.submit(p, SamplingParams(max_tokens=n)) for n, p in enumerate(tiny.prompts(9), 3)]
    again = [crowd.submit(prompt, params) for _ in range(3)]
    assert {tuple(future.result(60).ids) for future in again} == {tuple(alone.ids)}
    assert all(len(future.result(60).ids) == n for n, future in enumerate(others, 3))
    different = crowd.submit(prompt, SamplingParams(max_tokens=20, seed=43)).result(60)
    assert different.ids != alone.ids


def test_samples_follow_the_models_distribution(opened):
    model = tiny.shared()
    prompt = tiny.prompts(1, seed=4)[0] + [5] * 3
    done = run(opened(model, slots=32), [prompt] * 1500, max_tokens=1, temperature=0.8)
    with torch.no_grad():
        truth = (model(torch.tensor([prompt])).logits[0, -1] / 0.8).softmax(-1)
    share = torch.bincount(torch.tensor([d.ids[0] for d in done]), minlength=tiny.VOCAB) / len(done)
    assert (share - truth).abs().max() < 0.04


def test_the_cache_grows_and_full_memory_restarts_the_youngest(opened):
    model = tiny.shared()
    prompts = tiny.prompts(5, seed=6)
    bytes_per_token = 2 * 3 * 2 * 16 * 4
    engine = opened(model, slots=4, kv_bytes=4 * 256 * bytes_per_token)
    long = [[*range(100, 300), *prompt] for prompt in prompts]
    results = run(engine, long, max_tokens=100, temperature=0)
    for prompt, done in zip(long, results, strict=True):
        assert len(done.ids) == 100
        assert tiny.is_greedy(model, prompt, done.ids)
    stats = engine.stats()
    assert stats["kv_length"] == 512
    assert stats["preempted"] > 0
    assert stats["kv_slots"] == 2
    short = run(engine, prompts, max_tokens=20, temperature=0)
    assert all(tiny.is_greedy(model, prompt, done.ids) for prompt, done in zip(prompts, short, strict=True))
    assert engine.stats()["kv_slots"] == 4


def watched(engine):
    """What the engine computes from now on: rows, lengths and shape of the cache of every batch."""
    runner, seen = engine._runner, []
    prefill, decode = runner.prefill, runner.decode

    def prefilled(prefills, readers, truncated):
        seen.append((runner.kv.data.shape, [(each.row, each.start, len(each.ids)) for each in prefills], readers))
        return prefill(prefills, readers, truncated)

    def decoded(batch, steps, lengths, truncated):
        seen.append((runner.kv.data.shape, batch, steps, lengths))
        return decode(batch, steps, lengths, truncated)

    runner.prefill, runner.decode = prefilled, decoded
    return seen


def conversations(engine):
    """Two turns of a few conversations that begin alike and end at different times."""
    opening, told = [7] * 30, []

    def asked(prompts):
        lengths = [12 + 6 * number for number in range(len(prompts))]
        return engine.call(lambda: [
            engine.submit(prompt, SamplingParams(max_tokens=length, seed=length))
            for prompt, length in zip(prompts, lengths, strict=True)
        ])  # fmt: skip

    prompts = [[*opening, *prompt] for prompt in tiny.prompts(5, seed=8)]
    for _ in range(2):
        done = [future.result(60) for future in asked(prompts)]
        told += done
        prompts = [[*prompt, *reply.ids, 9, 9] for prompt, reply in zip(prompts, done, strict=True)]
    return [(reply.ids, reply.logprobs, reply.prefix) for reply in told]


def test_after_a_fresh_start_an_engine_computes_as_a_new_one(opened):
    model = tiny.shared()
    new, old = opened(model, slots=8), opened(model, slots=8)
    run(old, tiny.prompts(20, seed=9), max_tokens=30)
    conversations(old)  # leaves rows, prefixes and a longer cache behind
    run(old, [[3] * 400], max_tokens=4)
    seen = watched(new), watched(old)
    told = conversations(new)
    used = conversations(old)
    assert seen[0] != seen[1], "the past shows"
    seen[1].clear()
    old.start_afresh()
    assert conversations(old) == told, "bit by bit"
    assert seen[0] == seen[1]
    assert [ids for ids, *_ in used] == [ids for ids, *_ in told]


def test_a_fresh_start_keeps_the_memory_and_leaves_who_runs_alone(opened):
    model = tiny.shared()
    engine = opened(model, slots=2)
    prompt = tiny.prompts(1, seed=7)[0]
    run(engine, [prompt], max_tokens=10)
    memory = engine._runner.kv.data.data_ptr()
    engine.start_afresh()
    first = []

    def start_again(ids, logprobs):
        if not first:
            engine.start_afresh()
        first.extend(ids)

    done = engine.submit(prompt, SamplingParams(max_tokens=20, temperature=0), on_tokens=start_again).result(60)
    assert done.ids == first == tiny.greedy(model, prompt, 20)
    assert engine._runner.kv.data.data_ptr() == memory


def test_the_memory_of_a_run_before_leaves_room_for_one_sequence(opened):
    engine = opened(tiny.shared(), slots=4)
    engine.kv_bytes = 1
    assert engine.kv_bytes == 576 * 2 * 3 * 2 * 16 * 4, "the longest, and a place to scribble"
    assert len(run(engine, [[3] * 408] * 3, max_tokens=100)[2].ids) == 100


def test_a_weight_swap_equals_a_fresh_engine(opened):
    first, second = tiny.shared(), tiny.make(seed=9)
    prompt = tiny.prompts(1, seed=7)[0] + [1] * 10
    engine = opened(first, slots=4)
    before = run(engine, [prompt] * 2, max_tokens=10, temperature=0)
    engine.update_weights(second.state_dict())
    after = run(engine, [prompt] * 2, max_tokens=10, temperature=0)
    assert before[0].ids == tiny.greedy(first, prompt, 10)
    assert [done.ids for done in after] == [tiny.greedy(second, prompt, 10)] * 2
    assert after[0].prefix == 0


def test_a_partial_swap_touches_only_what_it_names(opened):
    model = tiny.make(seed=3)
    engine = opened(model, slots=2)
    name = "model.layers.1.self_attn.k_proj.weight"
    with torch.no_grad():
        parameter = dict(model.named_parameters())[name]
        parameter.add_(torch.randn_like(parameter) * 0.2)
    engine.update_weights({name: parameter})
    prompt = tiny.prompts(1, seed=1)[0] + [2] * 5
    assert run(engine, [prompt], max_tokens=10, temperature=0)[0].ids == tiny.greedy(model, prompt, 10)


def test_a_saved_directory_loads_the_same_model(tmp_path):
    model = tiny.shared("qwen3")
    model.save_pretrained(tmp_path)
    with Engine.from_directory(tmp_path, device="cpu") as engine:
        prompt = tiny.prompts(1)[0]
        assert run(engine, [prompt], max_tokens=8, temperature=0)[0].ids == tiny.greedy(model, prompt, 8)
