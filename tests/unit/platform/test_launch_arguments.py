"""Launch arguments become settings of the trainer."""

from __future__ import annotations

from pathlib import Path

from benchmax.platform.runner.children.train_child import train_config
from benchmax.platform.wire.launch_args import launch_args


def test_every_argument_that_is_given_reaches_the_trainer(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "run_1"
    config = train_config(run_dir, {"save_tokens": True, "seed": 7, "kl": 0.5, "max_turns": 2}, 40)
    assert config.output.save_tokens
    assert (config.output.dir, config.output.name) == (str(run_dir.parent), "run_1")
    assert (config.seed, config.algorithm.kl, config.rollouts.max_turns) == (7, 0.5, 2)


def test_tokens_are_kept_only_when_asked_for() -> None:
    spec = next(arg for arg in launch_args(gpu=False) if arg.name == "save_tokens")
    assert (spec.type, spec.default) == ("boolean", False)
