"""Launch arguments become settings of the trainer."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmax.errors import ConfigError, UsageError
from benchmax.platform.runner.children.train_child import take_own_secrets, train_config
from benchmax.platform.server.services.runs.launch_checks import check_backend, specs
from benchmax.platform.wire.launch_args import launch_args
from benchmax.platform.wire.launches import check_launch_args


def test_every_argument_that_is_given_reaches_the_trainer(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "run_1"
    config = train_config(run_dir, {"save_tokens": True, "seed": 7, "kl": 0.5, "max_turns": 2}, 40)
    assert config.output.save_tokens
    assert (config.output.dir, config.output.name) == (str(run_dir.parent), "run_1")
    assert (config.seed, config.algorithm.kl, config.rollouts.max_turns) == (7, 0.5, 2)


def test_tokens_are_kept_only_when_asked_for() -> None:
    spec = next(arg for arg in launch_args(gpu=False) if arg.name == "save_tokens")
    assert (spec.type, spec.default) == ("boolean", False)


def test_another_trainer_has_models_of_its_own() -> None:
    asked = {"backend": "tinker", "model": "Qwen/Qwen3-8B"}
    args, _ = check_launch_args(specs(), asked)
    assert train_config(Path("runs/run_1"), args, 40).backend == "tinker"
    with pytest.raises(ConfigError, match="model must be one of"):
        check_launch_args(specs(), {"model": "Qwen/Qwen3-8B"})
    with pytest.raises(ConfigError, match="backend must be one of embedded, tinker"):
        check_launch_args(specs(), {"backend": "trl"})
    with pytest.raises(UsageError, match="Name one: model"):
        check_backend({"backend": "tinker"}, ())


@pytest.mark.skipif(find_spec("tinker") is not None, reason="it is installed")
def test_a_trainer_that_is_not_installed_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"^Tinker's package is not installed. Run: pip install 'tinker==0.36.0'$"):
        check_backend({"backend": "tinker", "model": "Qwen/Qwen3-8B"}, ["TINKER_API_KEY"])


def test_a_key_of_the_trainer_is_not_given_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "")
    given = {"TINKER_API_KEY": "tml-1", "JUDGE_KEY": "abc"}
    assert take_own_secrets("embedded", given) == given
    assert take_own_secrets("tinker", given) == {"JUDGE_KEY": "abc"}
    assert os.environ["TINKER_API_KEY"] == "tml-1"
