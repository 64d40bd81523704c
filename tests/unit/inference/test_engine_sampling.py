"""The draw itself: right distribution, right log-probability, nothing of zero mass."""

from __future__ import annotations

import pytest
import torch

from benchmax.errors import ConfigError
from benchmax.inference.engine.sampling import SamplingParams, draw, inverse_cdf, truncate, uniforms


def _uniforms(count):
    return uniforms(torch.arange(count) * 7919, torch.arange(count) % 13)


def test_uniforms_are_uniform_and_never_touch_the_ends():
    u = _uniforms(200_000)
    assert 0 < u.min() < 1e-4
    assert 1 - 1e-4 < u.max() < 1
    assert torch.histc(u, 10, 0, 1).sub(20_000).abs().max() < 800


def test_uniforms_differ_between_neighbouring_seeds_and_positions():
    seeds, positions = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    u = uniforms(seeds.flatten(), positions.flatten()).view(64, 64)
    assert u.unique().numel() > 4000
    assert torch.corrcoef(u)[~torch.eye(64, dtype=torch.bool)].abs().mean() < 0.2


@pytest.mark.parametrize("width", [3, 256, 700])
def test_inverse_cdf_draws_in_proportion(width):
    torch.manual_seed(1)
    mass = torch.rand(width) ** 4
    count = 60_000
    drawn = inverse_cdf(mass.expand(count, -1).contiguous(), _uniforms(count))
    share = torch.bincount(drawn, minlength=width) / count
    assert (share - mass / mass.sum()).abs().max() < 0.01


def test_inverse_cdf_never_picks_zero_mass():
    mass = torch.zeros(4, 700)
    mass[0, 0], mass[1, 699], mass[2, 255], mass[3, 256] = 1.0, 1e-30, 3.0, 1e30
    for u in (1e-7, 0.5, 1 - 6e-8):
        assert inverse_cdf(mass, torch.full((4,), u)).tolist() == [0, 699, 255, 256]


def test_draw_reports_the_untruncated_logprob():
    torch.manual_seed(2)
    logits = torch.randn(64, 512) * 3
    temperature = torch.tensor([0.0, 0.5, 1.0, 1.7]).repeat(16)
    top_p, top_k = torch.full((64,), 0.6), torch.full((64,), 5)
    ids, logprob = draw(logits.clone(), temperature, _uniforms(64), top_p, top_k)
    scaled = logits / torch.where(temperature > 0, temperature, 1.0).unsqueeze(1)
    torch.testing.assert_close(logprob, scaled.log_softmax(-1).gather(1, ids.unsqueeze(1)).squeeze(1))
    assert (ids[::4] == logits[::4].argmax(-1)).all()
    assert (scaled.argsort(-1, descending=True)[:, :5] == ids.unsqueeze(1)).any(1).all()


@pytest.mark.parametrize(("p", "k"), [(0.9, 0), (0.3, 0), (1.0, 7), (0.8, 20), (1.0, 0), (0.01, 0), (0.1, 1800)])
@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
def test_truncate_keeps_what_transformers_keeps(p, k, spread):
    from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

    torch.manual_seed(3)
    logits = torch.randn(8, 2000) * spread
    expected = TopKLogitsWarper(k)(None, logits.clone()) if k else logits.clone()
    expected = TopPLogitsWarper(p)(None, expected) if p < 1 else expected
    kept = truncate((logits - logits.amax(-1, keepdim=True)).exp(), torch.full((8,), p), torch.full((8,), k)) > 0
    # The last token of a nucleus may fall either way by rounding.
    assert (kept != expected.isfinite()).sum() <= 2 if p < 1 else (kept == expected.isfinite()).all()


def test_a_temperature_too_small_to_divide_by_is_greedy():
    assert [SamplingParams(temperature=cold).greedy for cold in (1e-45, 1e-38, 1e-20)] == [True, True, False]
    torch.manual_seed(4)
    logits = torch.randn(4, 300) * 20
    ids, logprobs = draw(logits.clone(), torch.full((4,), 1e-20), _uniforms(4))
    assert (ids == logits.argmax(-1)).all()
    assert (logprobs == 0).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0}, {"max_tokens": 2.5}, {"temperature": -1}, {"temperature": float("nan")}, {"top_p": 0},
        {"temperature": "1"}, {"temperature": True}, {"top_p": "x"},
        {"top_k": 0}, {"top_k": 1.5}, {"seed": 0.5}, {"stop_token_ids": {2, 3}}, {"stop_token_ids": None},
        {"stop_token_ids": 5}, {"stop_token_ids": ("a",)}, {"stop_token_ids": (2**70,)}, {"stop_token_ids": (-1,)},
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        SamplingParams(**wrong)
