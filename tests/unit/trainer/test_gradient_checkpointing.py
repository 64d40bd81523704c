"""Gradient checkpointing: what is computed again in the backward pass is computed as it was the first time."""

from contextlib import contextmanager

import torch

from benchmax.trainer.learning import policy as policy_module
from benchmax.trainer.learning.batch import Batch, TokenSequence
from benchmax.trainer.learning.policy import Policy
from benchmax.trainer.tiny_model import make_tiny


def batch():
    ids = torch.arange(2, 14).numpy()
    return Batch.of([TokenSequence(ids, torch.arange(4, 12).numpy(), torch.zeros(8).numpy(), advantage=1.0)])


def gradients(policy):
    for micro in batch().micro_batches(64, 64):
        policy.logprobs(micro)[0].sum().backward()
    return {name: weight.grad.clone() for name, weight in policy.parameters().items() if weight.grad is not None}


def test_the_kernels_of_the_forward_pass_are_those_of_the_recomputation(tmp_path, monkeypatch):
    """Kernels may save tensors of another shape: on CUDA that ended the backward pass."""
    directory = make_tiny(tmp_path / "m", hidden=32, layers=2)
    plain = gradients(Policy.from_directory(directory, tune="full"))
    entered = []

    @contextmanager
    def kernels(device):
        entered.append(torch._C._current_graph_task_id() >= 0)
        yield

    monkeypatch.setattr(policy_module, "_kernels", kernels)
    again = gradients(Policy.from_directory(directory, tune="full", gradient_checkpointing=True))
    assert entered.count(True) == 2, "once for each layer, in the backward pass"
    assert plain.keys() == again.keys()
    for name in plain:
        torch.testing.assert_close(plain[name], again[name])
