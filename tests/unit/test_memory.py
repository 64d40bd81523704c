"""Out of memory is known by whoever says it, and told in one line."""

from __future__ import annotations

import errno
import gc
import os
import weakref

import pytest
import torch

from benchmax.cli import app as cli_app
from benchmax.cli import main
from benchmax.memory import disk_is_full, gc_frozen, out_of_memory
from benchmax.trainer.config import build_config
from benchmax.trainer.learning.learner import _ways_to_save_memory

MMAP = RuntimeError("unable to mmap 538090408 bytes from file <model.safetensors>: Cannot allocate memory (12)")


@pytest.mark.parametrize(
    "error",
    [
        MMAP,
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("could not create a primitive"),
        RuntimeError("std::bad_alloc"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    ],
    ids=repr,
)
def test_it_is_out_of_memory(error):
    assert out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("could not create a primitive descriptor for a matmul primitive"),
        RuntimeError("device lost"),
        ValueError("the judge said: out of memory"),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    ],
    ids=repr,
)
def test_it_is_something_else(error):
    assert not out_of_memory(error)


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), True),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), True),
        (RuntimeError("I/O error: Disk quota exceeded (os error 122)"), True),
        (RuntimeError('Os { code: 27, kind: FileTooLarge, message: "File too large" }'), True),
        (RuntimeError("write failed: No space left on device"), True),
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), False),
        (RuntimeError("Permission denied (os error 13)"), False),
    ],
    ids=repr,
)
def test_a_full_disk_is_known_whoever_reports_it(error, full):
    assert disk_is_full(error) is full


def test_torch_without_memory_is_known():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**46)
    assert out_of_memory(caught.value)


def test_the_command_line_says_it_in_one_line(monkeypatch, capsys):
    def fail() -> None:
        raise MMAP

    monkeypatch.setattr(cli_app, "app_for", lambda words: fail)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "Out of memory. Use a smaller model" in " ".join(capsys.readouterr().err.split())


def test_only_what_was_not_done_is_advised():
    assert _ways_to_save_memory(build_config({"model": {"tune": "full"}})) == (
        "Lower rollouts.max_new_tokens or rollouts.max_tokens, switch on model.gradient_checkpointing, "
        "train with model.tune = 'lora', or use a smaller model."
    )
    done = {"tune": "lora", "gradient_checkpointing": True}
    assert _ways_to_save_memory(build_config({"model": done})) == (
        "Lower rollouts.max_new_tokens or rollouts.max_tokens, or use a smaller model."
    )


class Knot:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.own = self


def test_what_was_there_is_left_alone_and_what_comes_is_collected():
    before = weakref.ref(Knot())
    with gc_frozen():
        assert before() is None  # garbage of before is not kept for ever
        assert gc.get_freeze_count() > 10_000
        with gc_frozen():
            pass
        assert gc.get_freeze_count() > 10_000  # an inner block does not end the outer one's
        inside = weakref.ref(Knot())
        gc.collect()
        assert inside() is None
    assert gc.get_freeze_count() == 0
